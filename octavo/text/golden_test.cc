// Ids and texts of tests/golden/text, which the tokenizers package made.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "octavo/base/file.h"
#include "octavo/base/json.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

namespace fs = std::filesystem;

const fs::path kDirectory = fs::path(OCTAVO_GOLDEN_DIR) / "text";

class Fnv {
 public:
  void add(std::uint32_t number) {
    for (int shift = 0; shift < 32; shift += 8) hash_ = (hash_ ^ (number >> shift & 0xFF)) * kPrime;
  }
  void end_record() { add(0xFFFFFFFF); }
  std::string text() const {
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash_));
    return digits.data();
  }

 private:
  static constexpr std::uint64_t kPrime = 0x100000001B3;
  std::uint64_t hash_ = 0xCBF29CE484222325;
};

std::vector<std::string> golden_lines() {
  const Result<std::string> content = read_text(kDirectory / "lines.bin");
  std::vector<std::string> lines;
  if (!content) return lines;
  for (std::size_t begin = 0; begin < content->size();) {
    const std::size_t end = content->find('\0', begin);
    lines.push_back(content->substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// A file here, or a large one: below OCTAVO_TOKENIZERS, SmolLM2's in OCTAVO_SMOLLM2.
fs::path path_of(const std::string& file) {
  if (file.find('/') == file.npos) return kDirectory / file;
  const char* const smollm2 = std::getenv("OCTAVO_SMOLLM2");
  if (file.starts_with("smollm2/") && smollm2 != nullptr)
    return fs::path(smollm2) / "tokenizer.json";
  const char* const directory = std::getenv("OCTAVO_TOKENIZERS");
  return directory == nullptr ? fs::path() : fs::path(directory) / file;
}

Result<Tokenizer> load(const fs::path& path) {
  if (fs::exists(path)) return Tokenizer::load(path);
  const std::string command = "gzip -dc '" + path.string() + ".gz'";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  std::array<char, 65536> piece{};
  for (std::size_t n = 0; (n = std::fread(piece.data(), 1, piece.size(), pipe)) != 0;)
    text.append(piece.data(), n);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return Tokenizer::parse(text, path.string());
}

void expect_golden(const std::string& file, const Json& golden) {
  ASSERT_TRUE(golden.is_object());
  const fs::path path = path_of(file);
  if (golden.contains("large") && !fs::exists(path) && !fs::exists(path.string() + ".gz"))
    GTEST_SKIP() << file << ": neither OCTAVO_TOKENIZERS nor OCTAVO_SMOLLM2 has it";
  const Result<Tokenizer> tokenizer = load(path);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  Fnv ids_hash;
  Fnv text_hash;
  std::size_t count = 0;
  std::size_t line_number = 0;
  for (const std::string& line : golden_lines()) {
    const Result<std::vector<TokenId>> ids = tokenizer->encode(line);
    ASSERT_TRUE(ids.has_value()) << ids.error().message;
    if (line_number < golden["first"].size()) {
      EXPECT_EQ(*ids, golden["first"][line_number].get<std::vector<TokenId>>()) << line;
    }
    ++line_number;
    count += ids->size();
    for (const TokenId id : *ids) ids_hash.add(id);
    ids_hash.end_record();

    DecodeStream stream(*tokenizer);
    std::string joined;
    for (const TokenId id : *ids) {
      const std::string part = stream.push(id);
      EXPECT_EQ(invalid_utf8_at(part), std::nullopt) << "parts are whole code points: " << line;
      joined += part;
    }
    joined += stream.finish();
    EXPECT_EQ(joined, tokenizer->decode(*ids));
    for (const char byte : joined) text_hash.add(static_cast<unsigned char>(byte));
    text_hash.end_record();
  }
  EXPECT_EQ(count, golden["ids"].get<std::size_t>());
  EXPECT_EQ(ids_hash.text(), golden["fnv"].get<std::string>());
  EXPECT_EQ(text_hash.text(), golden["text_fnv"].get<std::string>());
}

class GoldenTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizer, GivesTheSameIdsAndTexts) {
  const Result<std::string> text = read_text(kDirectory / "ids.json");
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const Result<Json> golden = parse_json(*text, "ids.json");
  ASSERT_TRUE(golden.has_value());
  ASSERT_GE(golden_lines().size(), 1000u);
  const std::string file = GetParam();
  expect_golden(file, golden->at(file.substr(0, file.find_first_of("./"))));
}

// The last four are large and not kept.
INSTANTIATE_TEST_SUITE_P(
    All, GoldenTokenizer,
    ::testing::Values("gpt2.tokenizer.json", "llama3.tokenizer.json", "qwen.tokenizer.json",
                      "nemo.tokenizer.json", "falcon.tokenizer.json", "mistral.tokenizer.json",
                      "metaspace_always.tokenizer.json", "metaspace_first.tokenizer.json",
                      "metaspace_never.tokenizer.json", "affixes.tokenizer.json",
                      "added.tokenizer.json", "behaviors.tokenizer.json", "smollm2/tokenizer.json",
                      "qwen3/tokenizer.json", "deepseek_v3/tokenizer.json",
                      "mistral_7b_v0.1/tokenizer.json"),
    [](const auto& test) {
      const std::string file = test.param;
      return file.substr(0, file.find_first_of("./"));
    });

}  // namespace
}  // namespace octavo::text
