// octavo tokenize: what it prints, and how it fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/command.h"

namespace octavo::tests {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kModel = std::string(OCTAVO_GOLDEN_DIR) + "/text/gpt2.tokenizer.json";

void write(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST(Tokenize, ThereAndBack) {
  for (const std::string text :
       {"Hello, world 123", " don't\tstop\n", "naïve 漢字 👩‍👩‍👧", "<|im_end|>"}) {
    const Outcome ids = run_octavo({"tokenize", kModel, text});
    ASSERT_EQ(ids.status, 0) << ids.err;
    EXPECT_EQ(run_octavo({"tokenize", kModel, "--decode", ids.out}).out, text + "\n");
    const json report = run_octavo({"tokenize", kModel, "--json", text}).json();
    std::string words;
    for (const unsigned id : report["tokens"])
      words += (words.empty() ? "" : " ") + std::to_string(id);
    EXPECT_EQ(words + "\n", ids.out);
    EXPECT_EQ(report["pieces"].size(), report["tokens"].size());
    const json back =
        run_octavo({"tokenize", kModel, "--json", "--decode", report["tokens"].dump()}).json();
    EXPECT_EQ(back["text"], text);
    EXPECT_EQ(back["pieces"], report["pieces"]);
  }
}

TEST(Tokenize, PiecesAreTextOrBytes) {
  const json report = run_octavo({"tokenize", kModel, "--json", "a龥"}).json();
  std::string bytes;
  bool has_bytes = false;
  for (const json& piece : report["pieces"]) {
    has_bytes = has_bytes || piece.is_array();
    if (piece.is_string()) bytes += piece.get<std::string>();
    if (piece.is_array())
      for (const unsigned byte : piece) bytes += static_cast<char>(byte);
  }
  EXPECT_EQ(bytes, "a龥");
  EXPECT_TRUE(has_bytes) << "龥 is no token, so that its bytes are apart";
  EXPECT_THAT(run_octavo({"tokenize", kModel, "--pieces", "a"}).out, HasSubstr("  \"a\"\n"));
}

TEST(Tokenize, FromFilesAndStandardInput) {
  const TempDir dir;
  write(dir / "text", "a\nb");
  const std::string file = (dir / "text").string();
  const std::string whole = run_octavo({"tokenize", kModel, "--file", file}).out;
  EXPECT_EQ(whole, run_octavo({"tokenize", kModel, "a\nb"}).out);
  EXPECT_EQ(run_octavo({"tokenize", kModel}, "printf 'a\\nb' | ").out, whole);
  const std::string a = run_octavo({"tokenize", kModel, "a"}).out;
  const std::string b = run_octavo({"tokenize", kModel, "b"}).out;
  EXPECT_EQ(run_octavo({"tokenize", kModel, "--lines", "--file", file}).out, a + b);
  write(dir / "text", std::string("a\0b\0", 4));
  EXPECT_EQ(run_octavo({"tokenize", kModel, "--null", "--file", file}).out, a + b);
  const json records = run_octavo({"tokenize", kModel, "-z", "--json", "--file", file}).json();
  EXPECT_EQ(records["records"].size(), 2u);
  EXPECT_EQ(run_octavo({"tokenize", kModel, ""}).out, "\n");
  EXPECT_THAT(run_octavo({"tokenize", kModel, "--json", ""}).json()["tokens"], testing::IsEmpty());
}

TEST(Tokenize, SpecialTokens) {
  const std::string text = "<|im_start|>a<|im_end|>";
  const std::string ids = run_octavo({"tokenize", kModel, text}).out;
  EXPECT_EQ(run_octavo({"tokenize", kModel, "--decode", ids}).out, text + "\n");
  EXPECT_EQ(run_octavo({"tokenize", kModel, "--decode", "--skip-special", ids}).out, "a\n");
  EXPECT_NE(run_octavo({"tokenize", kModel, "--no-parse-special", text}).out, ids);
}

TEST(Tokenize, FailsInOneLine) {
  const TempDir dir;
  write(dir / "text", "good \xC3\xA9\nbad \xFF");
  const auto fails = [&](const std::vector<std::string>& arguments, int status, const char* words) {
    std::vector<std::string> all = {"tokenize"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome run = run_octavo(all);
    EXPECT_EQ(run.status, status) << words;
    EXPECT_EQ(run.out, "") << words;
    EXPECT_THAT(only_line(run), HasSubstr(words));
  };
  const std::string file = (dir / "text").string();
  fails({kModel, "--file", file}, 1, "text: not valid UTF-8 at offset 12");
  fails({kModel, "bad \xFF"}, 2, "TEXT: not valid UTF-8 at offset 4");
  fails({kModel, "x", "--file", file}, 2, "TEXT and --file are both given");
  fails({kModel, "--decode", "1 x"}, 2, "x is not the id of a token");
  fails({kModel, "--decode", "99999999"}, 2, "99999999 is not the id of a token");
  fails({(dir / "missing").string(), "x"}, 1, "missing");
  fails({file, "x"}, 1, "text: not valid JSON");
  std::filesystem::create_directory(dir / "model");
  fails({(dir / "model").string(), "x"}, 1, "no tokenizer.json in it");
  write(dir / "model" / "tokenizer.model", "x");
  fails({(dir / "model").string(), "x"}, 1, "tokenizer.model is not supported");
  write(dir / "model" / "tokenizer.json", R"({"model": {"type": "Unigram", "vocab": []}})");
  fails({(dir / "model").string(), "x"}, 1,
        "model: Unigram tokenizers are not supported, only BPE");
}

}  // namespace
}  // namespace octavo::tests
