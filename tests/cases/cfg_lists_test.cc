// CFG cases about skip lists: spellings, keys, entries that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Extent kSquare{256, 256};
using Names = std::vector<std::string>;

std::string fp8_config(const std::string& key, const Names& entries) {
  nlohmann::json config = nlohmann::json::parse(kFp8Config);
  config["quantization_config"][key] = entries;
  return config.dump(2);
}

void add_fp8(Tensors& tensors, const std::string& module, std::uint64_t seed) {
  const Fp8Weight weight = fp8_weight(kSquare, seed);
  tensors[module + ".weight"] = weight.codes;
  tensors[module + ".weight_scale_inv"] = weight.scales;
}

nlohmann::json inspect(const TempDir& dir) {
  const Outcome run = run_octavo({"inspect", (dir / "in").string(), "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  return run.json();
}

// What happens to each tensor, and the written skip list; without the reasons, which name the key.
nlohmann::json plan_of(const TempDir& dir, const std::string& command) {
  const Outcome run = run_octavo({command, (dir / "in").string(), "--plan", "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  nlohmann::json plan = run.json();
  for (auto& tensor : plan.at("tensors")) tensor.erase("reason");
  plan.erase("warnings");
  return plan;
}

std::string action_of(const nlohmann::json& plan, const std::string& tensor) {
  for (const auto& entry : plan.at("tensors")) {
    if (entry.at("name") == tensor) return entry.at("action");
  }
  ADD_FAILURE() << tensor << " is not planned";
  return "";
}

std::size_t count_of(std::string_view text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(Cfg01, ShortEntryMatchesTheEndOfAName) {
  const TempDir dir;
  const std::string listed = "model.layers.0.linear_attn.in_proj_qkv.weight";
  const Tensor wide = bf16_weight(kSquare, 11);
  Tensors tensors = {{listed, wide}};
  add_fp8(tensors, "model.layers.0.linear_attn.out_proj", 12);
  write_model(
      dir / "in", tensors,
      fp8_config("modules_to_not_convert", {"linear_attn.in_proj_qkv", "attn.in_proj", "qkv"}));

  const nlohmann::json list = inspect(dir).at("summary").at("skip_list");
  EXPECT_EQ(list.at("entries").at(0).at("tensors"), 1);
  EXPECT_EQ(list.at("entries").at(1).at("tensors"), 0) << "whole segments only";
  EXPECT_EQ(list.at("entries").at(2).at("tensors"), 0);
  EXPECT_EQ(list.at("unused"), 2);
  EXPECT_TRUE(list.at("unlisted").empty());
  EXPECT_THAT(run_octavo({"inspect", (dir / "in").string()}).err,
              HasSubstr("2 of 3 entries of modules_to_not_convert in config.json name no tensor: "
                        "attn.in_proj"));

  // The dtype of the file decides, with or without the entry.
  EXPECT_EQ(action_of(plan_of(dir, "dequantize"), listed), "keep");
  const Outcome run = run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string()});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(read_model(dir / "out").tensors.at(listed), wide);

  // A wide model with this list: the entry keeps it wide.
  const TempDir source;
  write_model(source / "in", {{listed, wide}, {"model.layers.0.linear_attn.out_proj.weight", wide}},
              fp8_config("modules_to_not_convert", {"linear_attn.in_proj_qkv"}));
  const nlohmann::json plan = plan_of(source, "quantize");
  EXPECT_EQ(action_of(plan, listed), "keep");
  EXPECT_EQ(action_of(plan, "model.layers.0.linear_attn.out_proj.weight"), "quantize");
}

TEST(Cfg02, WrapperPrefixesDoNotMatter) {
  const Names wrappers = {"model.", "model.language_model.", "language_model.model."};
  for (const std::string& in_list : wrappers) {
    for (const std::string& in_file : wrappers) {
      SCOPED_TRACE(in_list + " in the list, " + in_file + " in the file");
      const TempDir dir;
      const std::string wide = in_file + "layers.0.mlp.up_proj.weight";
      Tensors tensors = {{wide, bf16_weight(kSquare, 21)}};
      add_fp8(tensors, in_file + "layers.0.mlp.down_proj", 22);
      write_model(dir / "in", tensors,
                  fp8_config("ignored_layers",
                             {in_list + "layers.0.mlp.up_proj", in_list + "layers.0.mlp.down_prj",
                              in_list + "layers.0.mlp.nothing_like_it"}));
      const nlohmann::json list = inspect(dir).at("summary").at("skip_list");
      EXPECT_EQ(list.at("entries").at(0).at("tensors"), 1);
      EXPECT_EQ(list.at("entries").at(0).at("normalized"), "layers.0.mlp.up_proj");
      EXPECT_TRUE(list.at("unlisted").empty());

      // Entries that name nothing: once, with the nearest real name.
      const Outcome run =
          run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string(), "--quiet"});
      ASSERT_EQ(run.status, 0) << run.err;
      EXPECT_EQ(count_of(run.err, "warning"), 1u) << run.err;
      EXPECT_THAT(run.err,
                  AllOf(HasSubstr("2 of 3 entries of ignored_layers in config.json"),
                        HasSubstr("down_prj (nearest: " + in_file + "layers.0.mlp.down_proj)")));

      const TempDir source;
      write_model(source / "in",
                  {{wide, bf16_weight(kSquare, 21)},
                   {in_file + "layers.0.mlp.down_proj.weight", bf16_weight(kSquare, 23)}},
                  fp8_config("ignored_layers", {in_list + "layers.0.mlp.up_proj"}));
      const nlohmann::json plan = plan_of(source, "quantize");
      EXPECT_EQ(action_of(plan, wide), "keep");
      EXPECT_EQ(action_of(plan, in_file + "layers.0.mlp.down_proj.weight"), "quantize");
    }
  }
}

TEST(Cfg02, HundredsOfWrongEntriesAreOneLine) {
  const TempDir dir;
  Tensors tensors;
  add_fp8(tensors, "model.layers.0.mlp.down_proj", 24);
  Names entries;
  for (int i = 0; i < 600; ++i) entries.push_back("visual.blocks." + std::to_string(i) + ".attn");
  write_model(dir / "in", tensors, fp8_config("ignore", entries));
  for (const Names& arguments : {Names{"inspect", (dir / "in").string()},
                                 Names{"dequantize", (dir / "in").string(), "--plan"}}) {
    const Outcome run = run_octavo(arguments);
    EXPECT_EQ(run.status, 0);
    EXPECT_EQ(count_of(run.out + run.err, "name no tensor"), 1u);
    EXPECT_THAT(run.out + run.err, HasSubstr("600 of 600 entries of ignore in config.json"));
    EXPECT_THAT(run.out + run.err, HasSubstr("and 597 more"));
  }
}

TEST(Cfg03, FourKeysGiveOnePlan) {
  const Names entries = {"lm_head", "re:.*mlp\\.gate", "*.q_proj", "model.layers.1.mlp.down_proj"};
  Tensors tensors;
  std::uint64_t seed = 30;
  for (const char* name : {"lm_head", "model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj",
                           "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj",
                           "model.layers.1.self_attn.qkv_proj", "model.layers.1.mlp.down_proj",
                           "model.layers.11.mlp.down_proj"})
    tensors[std::string(name) + ".weight"] = bf16_weight(kSquare, seed++);

  struct Source {
    const char* key;
    const char* file;
  };
  std::vector<nlohmann::json> plans;
  for (const Source& source :
       {Source{"ignored_layers", "config.json"}, Source{"modules_to_not_convert", "config.json"},
        Source{"ignore", "config.json"}, Source{"exclude_modules", "hf_quant_config.json"}}) {
    SCOPED_TRACE(source.key);
    const TempDir dir;
    if (source.file == std::string_view("config.json")) {
      write_model(dir / "in", tensors, fp8_config(source.key, entries));
    } else {
      write_model(dir / "in", tensors, kPlainConfig);
      const nlohmann::json modelopt = {
          {"producer", {{"name", "modelopt"}}},
          {"quantization", {{"quant_algo", "FP8"}, {"exclude_modules", entries}}}};
      write_string(dir / "in" / "hf_quant_config.json", modelopt.dump());
    }
    plans.push_back(plan_of(dir, "quantize"));

    const nlohmann::json list = inspect(dir).at("summary").at("skip_list");
    EXPECT_EQ(list.at("key"), source.key);
    EXPECT_EQ(list.at("file"), source.file);
    Names normalized;
    std::vector<int> matches;
    for (const auto& entry : list.at("entries")) {
      normalized.push_back(entry.at("normalized"));
      matches.push_back(entry.at("tensors"));
    }
    EXPECT_EQ(normalized,
              (Names{"lm_head", "re:.*mlp\\.gate", "*.q_proj", "layers.1.mlp.down_proj"}));
    EXPECT_EQ(matches, (std::vector{1, 1, 2, 1}));
    EXPECT_THAT(run_octavo({"inspect", (dir / "in").string()}).out,
                AllOf(HasSubstr("4 entries of " + std::string(source.key) + " in " + source.file),
                      HasSubstr("layers.1.mlp.down_proj  (written model.layers.1.mlp.down_proj)")));
  }
  EXPECT_EQ(plans[0].at("modules_to_not_convert"),
            (Names{"lm_head", "model.layers.0.mlp.gate", "model.layers.0.self_attn.q_proj",
                   "model.layers.1.mlp.down_proj", "model.layers.1.self_attn.q_proj"}));
  for (const nlohmann::json& plan : plans) EXPECT_EQ(plan, plans[0]);
}

TEST(Cfg08, AListedTensorThatIsFp8IsReadAsFp8) {
  const TempDir dir;
  Tensors tensors;
  const std::string gate = "model.layers.0.mlp.gate_proj";
  const Fp8Weight weight = fp8_weight(kSquare, 81);
  tensors[gate + ".weight"] = weight.codes;
  tensors[gate + ".weight_scale_inv"] = weight.scales;
  add_fp8(tensors, "model.layers.1.mlp.gate_proj", 82);
  add_fp8(tensors, "model.layers.0.mlp.up_proj", 83);
  write_model(dir / "in", tensors, fp8_config("modules_to_not_convert", {"gate_proj"}));
  const std::string warning =
      "2 tensors are named in modules_to_not_convert in config.json but quantized, with a scale: "
      "the file counts";

  const nlohmann::json summary = inspect(dir).at("summary");
  EXPECT_EQ(summary.at("skip_list").at("quantized"),
            (Names{gate + ".weight", "model.layers.1.mlp.gate_proj.weight"}));
  EXPECT_EQ(summary.at("unpaired"), 0);
  const Outcome shown = run_octavo({"inspect", (dir / "in").string()});
  EXPECT_EQ(count_of(shown.err, warning), 1u) << shown.err;
  EXPECT_EQ(count_of(shown.err, "warning"), 1u) << shown.err;

  const Outcome run =
      run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string(), "--quiet"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(count_of(run.err, warning), 1u) << run.err;
  const Tensors out = read_model(dir / "out").tensors;
  EXPECT_EQ(out.size(), 3u);
  EXPECT_EQ(out.at(gate + ".weight"), as_bf16(weight));

  // Quantizing anew: it is a quantized weight, so it stays one, with a scale of its own.
  const Outcome again =
      run_octavo({"quantize", (dir / "in").string(), "--plan", "--json", "--requantize"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(action_of(again.json(), gate + ".weight"), "quantize");
  EXPECT_THAT(again.json().at("warnings").dump(), HasSubstr(warning));
}

TEST(Cfg08, AnEntryThatIsNoRegularExpressionIsNamed) {
  const TempDir dir;
  Tensors tensors;
  add_fp8(tensors, "model.layers.0.mlp.up_proj", 84);
  write_model(dir / "in", tensors, fp8_config("ignore", {"re:("}));
  const auto words = AllOf(HasSubstr("config.json: ignore: \"re:(\" is not a regular expression"));
  const Outcome shown = run_octavo({"inspect", (dir / "in").string()});
  EXPECT_EQ(shown.status, 0);
  EXPECT_THAT(shown.err, words);
  // What is FP8 is in the file: dequantizing needs no list.
  const Outcome run = run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string()});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, words);
  // What stays wide is in the list alone.
  const TempDir source;
  write_model(source / "in", {{"a.weight", bf16_weight(kSquare, 85)}},
              fp8_config("ignore", {"re:("}));
  const Outcome refused =
      run_octavo({"quantize", (source / "in").string(), (source / "out").string()});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(only_line(refused), words);
}

}  // namespace
}  // namespace octavo::tests
