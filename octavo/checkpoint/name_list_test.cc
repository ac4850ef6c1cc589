#include "octavo/checkpoint/name_list.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool names(const std::string& entry, const std::string& tensor) {
  return NameList::parse({entry}, {tensor}).value().find(tensor).has_value();
}

// The tensors that one entry names in a model.
std::vector<std::string> named(const std::string& entry, const std::vector<std::string>& model) {
  const NameList list = NameList::parse({entry}, model).value();
  std::vector<std::string> found;
  for (const std::string& tensor : model) {
    if (list.find(tensor)) found.push_back(tensor);
  }
  EXPECT_EQ(list.unused().empty(), !found.empty()) << entry;
  return found;
}

struct Match {
  const char* entry;
  const char* tensor;
  bool matches;
};

const Match kMatches[] = {
    // whole segments, anywhere
    {"mlp.gate", "model.layers.0.mlp.gate.weight", true},
    {"mlp.gate", "model.layers.0.mlp.gate_proj.weight", false},
    {"mlp.gate", "model.layers.0.mlp.gate.x.weight", true},
    {"gate", "model.layers.0.mlp.gate.weight", true},
    {"gate", "model.layers.0.mlp.shared_expert_gate.weight", false},
    {"gate", "model.layers.0.mlp.gate_proj.weight", false},
    {"lm_head", "lm_head.weight", true},
    {"lm_head", "my_lm_head.weight", false},
    {"model.layers.1", "model.layers.1.mlp.up_proj.weight", true},
    {"model.layers.1", "model.layers.10.mlp.up_proj.weight", false},
    {"layers.1.mlp", "model.layers.1.mlp.up_proj.weight", true},
    {"model.layers.1.mlp.up_proj", "model.layers.1.mlp.up_proj.weight", true},
    {"model.layers.1.mlp.up_proj.x", "model.layers.1.mlp.up_proj.weight", false},
    {"e_score_correction_bias", "model.layers.0.mlp.gate.e_score_correction_bias", true},
    {"", "lm_head.weight", false},
    // ".weight" at the end
    {"lm_head.weight", "lm_head.weight", true},
    {"mlp.gate.weight", "model.layers.0.mlp.gate.weight", true},
    {"mlp.gate.weight", "model.layers.0.mlp.gate_proj.weight", false},
    // dots are dots, other characters themselves
    {"mlp.gate", "model.mlpxgate.weight", false},
    {"layers.0.a+b", "model.layers.0.a+b.weight", true},
    {"(", "model.x.weight", false},
    // wrappers
    {"model.language_model.layers.0.mlp", "model.layers.0.mlp.up_proj.weight", true},
    {"model.layers.0.mlp", "model.language_model.layers.0.mlp.up_proj.weight", true},
    {"model.layers.0.mlp", "language_model.model.layers.0.mlp.up_proj.weight", true},
    {"language_model.model.layers.0.mlp", "model.language_model.layers.0.mlp.up_proj.weight", true},
    {"language_model.lm_head", "lm_head.weight", true},
    {"model.vision_tower", "vision_tower.blocks.0.fc.weight", true},
    {"model.vision_tower", "model.vision_tower.blocks.0.fc.weight", true},
    {"model.visual", "model.visual_proj.weight", false},
    // a wrapper by itself names all that is in it
    {"language_model", "model.language_model.layers.0.mlp.up_proj.weight", true},
    {"language_model", "model.visual.blocks.0.fc.weight", false},
    {"language_model.*", "model.language_model.layers.0.mlp.up_proj.weight", true},
    {"language_model.*", "model.visual.blocks.0.fc.weight", false},
    {"language_model.*", "lm_head.weight", false},
    {"model.*", "model.layers.0.mlp.up_proj.weight", true},
    {"model.*", "visual.blocks.0.fc.weight", false},
    {"model.*", "lm_head.weight", false},
    {"language_model.model.*", "lm_head.weight", false},
    {"language_model.model.*", "model.visual.blocks.0.fc.weight", false},
    {"model.*.gate", "visual.blocks.0.gate.weight", false},
    // globs
    {"model.layers.1.*", "model.layers.1.mlp.up_proj.weight", true},
    {"model.layers.1.*", "model.layers.10.mlp.up_proj.weight", false},
    {"model.layers.*.mlp.gate", "model.layers.12.mlp.gate.weight", true},
    {"model.layers.*.mlp.gate", "model.layers.12.mlp.gate_proj.weight", false},
    {"*.gate", "model.layers.0.mlp.gate.weight", true},
    {"*.gate", "model.layers.0.mlp.gate_proj.weight", false},
    {"*gate*", "model.layers.0.mlp.gate_proj.weight", true},
    {"*lm_head*", "lm_head.weight", true},
    {"*", "anything.weight", true},
    {"*_proj.weight", "model.layers.0.mlp.up_proj.weight", true},
    {"layers.*a*b*c", "layers.1.xaxbxbxc.weight", true},
    {"layers.*a*b*c", "layers.1.xaxcxb.weight", false},
    // a glob ends at the end of any segment, as an entry without a star does
    {"model.layers.*.self_attn", "model.layers.3.self_attn.q_proj.weight", true},
    {"model.layers.*.self_attn", "model.layers.3.self_attn_norm.weight", false},
    // regular expressions, of the whole module name
    {"re:.*gate", "model.layers.0.mlp.gate.weight", true},
    {"re:.*gate", "model.layers.0.mlp.gate_proj.weight", false},
    {"re:gate", "model.layers.0.mlp.gate.weight", false},
    {"re:.*layers\\.[0-2]\\..*", "model.layers.2.mlp.up_proj.weight", true},
    {"re:.*layers\\.[0-2]\\..*", "model.layers.12.mlp.up_proj.weight", false},
    {"re:a|ab", "ab.weight", true},
};

TEST(NameList, Table) {
  for (const Match& m : kMatches) {
    EXPECT_EQ(names(m.entry, m.tensor), m.matches) << "\"" << m.entry << "\" and " << m.tensor;
  }
}

TEST(NameList, FullNamesStayInTheirTower) {
  const std::string text = "model.layers.0.q.weight";
  const std::string other = "model.layers.1.q.weight";
  const std::string vision = "vision_tower.layers.0.q.weight";
  const std::vector<std::string> model = {text, other, vision};
  for (const char* entry : {"model.layers.0.q", "model.layers.0.q.weight", "model.layers.0",
                            "model.layers.*0.q", "language_model.layers.0.q",
                            "model.language_model.layers.0", "language_model.model.layers.*0.q"}) {
    EXPECT_THAT(named(entry, model), ElementsAre(text)) << entry;
  }
  EXPECT_THAT(named("model.layers", model), ElementsAre(text, other));
  EXPECT_THAT(named("model.layers.*", model), ElementsAre(text, other));
  EXPECT_THAT(named("vision_tower.layers.0.q", model), ElementsAre(vision));
  // A part of a name is looked for everywhere.
  EXPECT_THAT(named("layers.0.q", model), ElementsAre(text, vision));
  EXPECT_THAT(named("q", model), ElementsAre(text, other, vision));
  EXPECT_THAT(named("layers.0.*", model), ElementsAre(text, vision));
}

TEST(NameList, FullNamesBehindAnotherPrefixStayInTheirTower) {
  const std::string text = "thinker.model.layers.0.q.weight";
  const std::string vision = "thinker.visual.layers.0.q.weight";
  EXPECT_THAT(named("model.layers.0.q", {text, vision}), ElementsAre(text));
  EXPECT_THAT(named("model.layers.0.q", {vision}), ElementsAre(vision));
}

TEST(NameList, AListOfFullNamesReproducesTheSplit) {
  // Every subset of the modules of two towers, one of which has no prefix.
  const std::vector<std::string> modules = {"layers.0.q",
                                            "layers.0.q.extra",
                                            "model.layers.0.q",
                                            "vision_tower.layers.0.q",
                                            "vision_tower.layers.0.k",
                                            "q"};
  std::vector<std::string> model;
  for (const std::string& module : modules) model.push_back(module + ".weight");
  for (unsigned subset = 0; subset < 1u << modules.size(); ++subset) {
    std::vector<std::string> entries;
    for (std::size_t i = 0; i < modules.size(); ++i) {
      if ((subset >> i & 1) != 0) entries.push_back(modules[i]);
    }
    const NameList list = NameList::parse(entries, model).value();
    EXPECT_THAT(list.unused(), IsEmpty());
    for (std::size_t i = 0; i < modules.size(); ++i) {
      // "layers.0.q" contains "layers.0.q.extra".
      const bool expected = (subset >> i & 1) != 0 || (i == 1 && (subset & 1) != 0);
      EXPECT_EQ(list.find(model[i]).has_value(), expected) << subset << " " << model[i];
    }
  }
}

TEST(NameList, BadRegularExpressions) {
  for (const char* entry : {"re:(", "re:[a", "re:*", "re:a{2,1}"}) {
    const Result<NameList> list = NameList::parse({"lm_head", entry}, {"lm_head.weight"});
    ASSERT_FALSE(list) << entry;
    EXPECT_EQ(list.error().code, ErrorCode::bad_value);
    EXPECT_THAT(list.error().message, HasSubstr(entry));
    EXPECT_EQ(list.error().message.find('\n'), std::string::npos);
  }
}

TEST(NameList, MatchingIsBounded) {
  // Unbounded, these would take longer than the universe has. A name that cannot be decided is an
  // error, so that nothing that was to stay wide is quantized.
  const std::vector<std::string> name = {std::string(40'000, 'a') + "b.weight"};
  for (const char* entry : {"re:(a+)+c", "re:(a|aa)+c", "re:(.*)*x(.*)*x"}) {
    const Result<NameList> list = NameList::parse({entry}, name);
    ASSERT_FALSE(list) << entry;
    EXPECT_EQ(list.error().code, ErrorCode::bad_value);
    EXPECT_THAT(list.error().message, ::testing::HasSubstr("takes too long"));
  }
  EXPECT_FALSE(names("*a*a*a*a*a*a*a*c", name[0]));
  // A segment in every second byte.
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += "a.";
  EXPECT_FALSE(names(deep + "b", deep + "c"));
  EXPECT_FALSE(names("b." + deep + "c", deep + "c"));
  EXPECT_TRUE(names("a.a", deep + "c"));
}

TEST(NameList, ManyNamesAndManyEntries) {
  // Each of the first 50,000 modules under one of the three readings; a comparison of every name
  // with every entry would be 5e9 of them.
  constexpr std::size_t kNames = 100'000;
  std::vector<std::string> model;
  std::vector<std::string> entries;
  for (std::size_t i = 0; i < kNames; ++i) {
    model.push_back(fmt::format("model.layers.{}.mlp.experts.{}.up_proj.weight", i / 100, i));
    if (i % 2 == 1) continue;
    entries.push_back(i % 4 == 0 ? fmt::format("model.layers.{}.mlp.experts.{}.up_proj", i / 100, i)
                      : i % 8 == 2
                          ? fmt::format("language_model.layers.{}.mlp.experts.{}", i / 100, i)
                          : fmt::format("experts.{}", i));
  }
  const NameList list = NameList::parse(entries, model).value();
  EXPECT_THAT(list.unused(), IsEmpty());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kNames; ++i) {
    const auto entry = list.find(model[i]);
    if (entry.has_value() != (i % 2 == 0)) ++wrong;
    if (entry && *entry != entries[i / 2]) ++wrong;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(NameList, NamesThatAreNotUtf8DoNotMatch) {
  EXPECT_FALSE(names("re:.*", "a\xFF.weight"));
  EXPECT_TRUE(names("re:\xC3\xA9.", "\xC3\xA9\xC3\xA9.weight")) << "a dot is a character";
}

TEST(NameList, TheFirstEntryThatNamesATensor) {
  const std::string up = "model.layers.0.mlp.up_proj.weight";
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  const NameList list =
      NameList::parse({"lm_head", "re:.*up_proj", "mlp", "lm_head", "*.up_proj", "x*"}, {up, q})
          .value();
  EXPECT_EQ(list.find(up), "re:.*up_proj");
  EXPECT_EQ(list.find(q), std::nullopt);
  EXPECT_EQ(list.find("not.in.the.model"), std::nullopt);
  EXPECT_THAT(list.unused(), ElementsAre("lm_head", "x*")) << "those that come second are in use";
}

TEST(NameList, CountsWhatEachEntryNames) {
  const NameList list =
      NameList::parse({"layers.0", "q", "layers.0", "x"},
                      {"layers.0.q.weight", "layers.0.k.weight", "layers.1.q.weight"})
          .value();
  EXPECT_THAT(list.matches(), ElementsAre(2, 2, 0, 0)) << "a repeated entry where it first stands";
}

TEST(NameList, RegularExpressionsOfAnotherWrapper) {
  const std::string bare = "layers.0.q.weight";
  for (const char* tensor : {"model.", "model.language_model.", "language_model.model."}) {
    for (const char* wrapper : {"model", "model\\.language_model", "language_model\\.model"}) {
      EXPECT_TRUE(names(std::string("re:") + wrapper + "\\.layers\\.0\\.q", tensor + bare))
          << wrapper << tensor;
    }
  }
  EXPECT_FALSE(names("re:visual\\.layers\\.0\\.q", "model.layers.0.q.weight"));
  // Where one spelling names something, the others are not tried.
  EXPECT_THAT(named("re:model\\.q", {"model.q.weight", "model.language_model.q.weight"}),
              ElementsAre("model.q.weight"));
}

TEST(NameList, Normalized) {
  EXPECT_EQ(normalized_entry("model.language_model.layers.0.q.weight"), "layers.0.q");
  EXPECT_EQ(normalized_entry("re:model.q"), "re:model.q");
  EXPECT_EQ(normalized_entry("model.*"), "model.*");
}

}  // namespace
}  // namespace octavo
