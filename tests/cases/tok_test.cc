// TOK cases, as `octavo tokenize` shows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/support/command.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<unsigned>;

const fs::path kGolden = fs::path(OCTAVO_GOLDEN_DIR) / "text";

Ids ids_of(const fs::path& model, const std::string& text, std::vector<std::string> options = {}) {
  const TempDir dir;
  std::ofstream(dir / "text", std::ios::binary) << text;
  options.insert(options.begin(),
                 {"tokenize", model.string(), "--json", "--file", (dir / "text").string()});
  const Outcome run = run_octavo(options);
  EXPECT_EQ(run.status, 0) << run.err;
  return run.status == 0 ? run.json()["tokens"].get<Ids>() : Ids();
}

std::vector<std::string> pieces_of(const fs::path& model, const std::string& text) {
  const Outcome run = run_octavo({"tokenize", model.string(), "--json", text});
  EXPECT_EQ(run.status, 0) << run.err;
  return run.status == 0 ? run.json()["pieces"].get<std::vector<std::string>>()
                         : std::vector<std::string>();
}

json read_json(const fs::path& path) { return json::parse(std::ifstream(path)); }

// The ids of `text` where each of its repeated parts has the ids of one.
Ids repeated(const Ids& part, std::size_t count) {
  Ids ids;
  for (std::size_t i = 0; i < count; ++i) ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

std::string times(const std::string& unit, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += unit;
  return text;
}

TEST(Tok01, LongRunsTakeLittleStack) {
  // Of letters whose run has no merges, so that the expected ids are known: the split must not
  // break, and merging must not slow down. A stack of 256 KiB has no room for a frame per letter.
  for (const char* name : {"qwen.tokenizer.json", "nemo.tokenizer.json"}) {
    json document = read_json(kGolden / name);
    document["model"]["merges"] = json::array({json::array({"A", "A"})});
    document["model"]["vocab"]["AA"] = 5000;
    const TempDir dir;
    std::ofstream(dir / "tokenizer.json") << document;
    std::ofstream(dir / "text") << times("A", 43'000);
    const std::vector<std::string> arguments = {"tokenize", (dir / "tokenizer.json").string(),
                                                "--json", "--file", (dir / "text").string()};
    const Outcome run = run_octavo(arguments, "ulimit -s 256; ");
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.json()["tokens"].get<Ids>(), repeated({5000}, 21'500)) << name;
    const Ids ab = ids_of(dir / "tokenizer.json", "ab");
    ASSERT_EQ(ab.size(), 2u);
    EXPECT_EQ(ids_of(dir / "tokenizer.json", times("ab", 10'000)), repeated(ab, 10'000)) << name;
  }
}

TEST(Tok02, EachStepOfASequenceIsHonoured) {
  // Punctuation, ByteLevel, Digits, Split [0-9][0-9][0-9].
  const fs::path model = kGolden / "falcon.tokenizer.json";
  const json document = read_json(model);
  EXPECT_EQ(document["pre_tokenizer"]["pretokenizers"].size(), 4u);
  // A token never spans two parts: "1234567" is 123, 456, 7 whatever merges there are.
  json digits = document;
  digits["model"]["vocab"]["12"] = 5000;
  digits["model"]["vocab"]["34"] = 5001;
  digits["model"]["vocab"]["!!"] = 5002;
  digits["model"]["merges"] =
      json::array({json::array({"1", "2"}), json::array({"3", "4"}), json::array({"!", "!"})});
  const TempDir dir;
  std::ofstream(dir / "tokenizer.json") << digits;
  EXPECT_THAT(pieces_of(dir / "tokenizer.json", "1234567!!"),
              ElementsAre("12", "3", "4", "5", "6", "7", "!", "!"));
  // Without the last step 3 and 4 meet.
  digits["pre_tokenizer"]["pretokenizers"].erase(3);
  std::ofstream(dir / "tokenizer.json") << digits;
  EXPECT_THAT(pieces_of(dir / "tokenizer.json", "1234567!!"),
              ElementsAre("12", "34", "5", "6", "7", "!", "!"));
  digits["pre_tokenizer"]["pretokenizers"][0] = {{"type", "FixedLength"}, {"length", 3}};
  std::ofstream(dir / "tokenizer.json") << digits;
  const Outcome refused = run_octavo({"tokenize", (dir / "tokenizer.json").string(), "x"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(only_line(refused), HasSubstr("pre_tokenizer.pretokenizers[0]: the pre-tokenizer "
                                            "FixedLength is not supported"));
}

TEST(Tok03, IgnoreMergesTakesTheWholeWordFirst) {
  const fs::path model = kGolden / "llama3.tokenizer.json";
  json document = read_json(model);
  ASSERT_EQ(document["model"]["ignore_merges"], true);
  const unsigned whole = document["model"]["vocab"]["ĠViá»ĩt"];
  EXPECT_THAT(ids_of(model, " Việt", {"--no-added-special"}), ElementsAre(whole));
  document["model"]["ignore_merges"] = false;
  const TempDir dir;
  std::ofstream(dir / "tokenizer.json") << document;
  const Ids merged = ids_of(dir / "tokenizer.json", " Việt", {"--no-added-special"});
  EXPECT_GT(merged.size(), 1u);
  EXPECT_THAT(merged, testing::Not(testing::Contains(whole)));
}

TEST(Tok04, PrefixSpaces) {
  // The three texts are the first lines of lines.bin; ids.json has what the tokenizers package
  // gives.
  const json golden = read_json(kGolden / "ids.json");
  const std::vector<std::string> texts = {"G", "<s>G", " G"};
  for (const char* scheme : {"always", "first", "never"}) {
    const std::string name = std::string("metaspace_") + scheme;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(ids_of(kGolden / (name + ".tokenizer.json"), texts[i]),
                golden[name]["first"][i].get<Ids>())
          << name << " " << texts[i];
    }
  }
  // A normalizer's Prepend is put in front of each part between special tokens.
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(ids_of(kGolden / "mistral.tokenizer.json", texts[i]),
              golden["mistral"]["first"][i].get<Ids>());
}

TEST(Tok05, StrippingIsNoConditionOfAMatch) {
  // Two spaces are a token there, which would be found among those that are swallowed.
  json document = read_json(kGolden / "added.tokenizer.json");
  std::erase_if(document["added_tokens"].get_ref<json::array_t&>(),
                [](const json& token) { return token["content"] == "  "; });
  const TempDir dir;
  const fs::path model = dir / "tokenizer.json";
  std::ofstream(model) << document;
  const Ids near = ids_of(model, "<|user|>Hello");
  EXPECT_EQ(pieces_of(model, "<|user|>Hello").front(), "<|user|>");
  EXPECT_EQ(ids_of(model, "<|user|>   Hello"), near);
  EXPECT_EQ(ids_of(model, "<|user|> \n\u00a0Hello"), near);
  EXPECT_NE(ids_of(model, "   <|user|>Hello"), near);
}

TEST(Tok06, SpecialTokensInTextOnRequest) {
  const fs::path model = kGolden / "gpt2.tokenizer.json";
  const unsigned id = read_json(model)["model"]["vocab"]["<|endoftext|>"];
  EXPECT_THAT(ids_of(model, "<|endoftext|>"), ElementsAre(id));
  const Ids plain = ids_of(model, "<|endoftext|>", {"--no-parse-special"});
  EXPECT_GT(plain.size(), 1u);
  EXPECT_THAT(plain, testing::Not(testing::Contains(id)));
  std::ostringstream words;
  for (const unsigned token : plain) words << token << ' ';
  EXPECT_EQ(run_octavo({"tokenize", model.string(), "--decode", words.str()}).out,
            "<|endoftext|>\n");
}

TEST(Tok07, OneBosWhereTheTextHasItAlready) {
  const fs::path model = kGolden / "llama3.tokenizer.json";
  const Ids rendered = ids_of(model, "<|endoftext|>Hello", {"--no-added-special"});
  EXPECT_EQ(rendered, ids_of(model, "Hello"));
  EXPECT_EQ(std::ranges::count(rendered, rendered.front()), 1);
}

}  // namespace
}  // namespace octavo::tests
