#include "octavo/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "octavo/base/file.h"
#include "octavo/base/json.h"
#include "octavo/text/encoder_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path kGolden = fs::path(OCTAVO_GOLDEN_DIR) / "text";

Tokenizer golden(const char* name) {
  Result<Tokenizer> tokenizer = Tokenizer::load(kGolden / name);
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
  return *std::move(tokenizer);
}

// A model of the letters a to d, with some merges.
Json small_document() {
  return Json::parse(R"({
    "added_tokens": [{"content": "<s>", "special": true}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "<unk>": 6},
              "merges": ["b c", ["a", "bc"], "a b"], "unk_token": "<unk>"}})");
}

Result<Tokenizer> parsed(const Json& document) { return Tokenizer::parse(document.dump(), "file"); }

std::vector<TokenId> encoded(const Json& document, std::string_view text) {
  const Result<Tokenizer> tokenizer = parsed(document);
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    return {};
  }
  return tokenizer->encode(text).value();
}

TEST(Tokenizer, MergesByRankAndFromTheLeft) {
  Json document = small_document();
  EXPECT_THAT(encoded(document, "abc"), ElementsAre(5));
  EXPECT_THAT(encoded(document, "abab"), ElementsAre(3, 3));
  EXPECT_THAT(encoded(document, "abx?c"), ElementsAre(3, 6, 6, 2));
  document["model"]["fuse_unk"] = true;
  EXPECT_THAT(encoded(document, "abx?c"), ElementsAre(3, 6, 2));
  EXPECT_THAT(encoded(document, "x<s>y"), ElementsAre(6, 7, 6));
  document["model"]["merges"] = Json::array({"a b", "b c"});
  EXPECT_THAT(encoded(document, "abc"), ElementsAre(3, 2));
  document["model"]["ignore_merges"] = true;
  EXPECT_THAT(encoded(document, "abc"), ElementsAre(5));
  document["model"]["unk_token"] = nullptr;
  EXPECT_THAT(encoded(document, "ab??c"), ElementsAre(3, 2));
}

TEST(Tokenizer, NamesAndSizes) {
  const Tokenizer tokenizer = parsed(small_document()).value();
  EXPECT_EQ(tokenizer.token_to_id("abc"), 5u);
  EXPECT_EQ(tokenizer.token_to_id("<s>"), 7u);
  EXPECT_EQ(tokenizer.token_to_id("zz"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(7), "<s>");
  EXPECT_EQ(tokenizer.id_to_token(8), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(7));
  EXPECT_FALSE(tokenizer.is_special(6));
  EXPECT_EQ(tokenizer.vocab_size(), 8u);
  EXPECT_EQ(tokenizer.id_limit(), 8u);
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{0, 7, 99, 5}), "a <s> abc");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{0, 7, 5}, {.skip_special = true}), "a abc");
}

TEST(Tokenizer, InvalidTextIsReplaced) {
  const Tokenizer tokenizer = golden("gpt2.tokenizer.json");
  EXPECT_EQ(tokenizer.encode("a\xFF\xE6\xBC").value(), tokenizer.encode("a\uFFFD\uFFFD").value());
}

TEST(Tokenizer, BytesOfTokens) {
  const Tokenizer gpt2 = golden("gpt2.tokenizer.json");
  std::string joined;
  const std::vector<TokenId> ids = gpt2.encode(" é\n<|im_end|>").value();
  for (const TokenId id : ids) joined += gpt2.token_bytes(id);
  EXPECT_EQ(joined, " é\n<|im_end|>");
  const Tokenizer mistral = golden("mistral.tokenizer.json");
  EXPECT_EQ(mistral.token_bytes(mistral.token_to_id("<0xE2>").value()), "\xE2");
  EXPECT_EQ(mistral.token_bytes(mistral.token_to_id("▁it").value()), " it");
}

TEST(Tokenizer, SpecialTokensOfTheTemplateComeOnRequest) {
  const Tokenizer tokenizer = golden("llama3.tokenizer.json");
  const std::vector<TokenId> with = tokenizer.encode("x").value();
  const std::vector<TokenId> without = tokenizer.encode("x", {.add_special_tokens = false}).value();
  EXPECT_EQ(with.size(), without.size() + 1);
  EXPECT_EQ(with.front(), tokenizer.token_to_id("<|endoftext|>"));
}

// Word by word, with and without a cache, a text has the same tokens; merging takes at most three
// candidates per byte, whatever the text.
// What a user wrote stays text beside tokens of a template.
TEST(Tokenizer, MarkedSpecialTokensAreText) {
  for (const bool normalized : {false, true}) {
    Json document = small_document();
    document["added_tokens"][0]["normalized"] = normalized;
    document["added_tokens"].push_back({{"content", "aab"}, {"special", false}});
    const Result<Tokenizer> tokenizer = parsed(document);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const TokenId bos = tokenizer->token_to_id("<s>").value(), unknown = 6;
    const auto encode = [&](const std::string& text, bool marks) {
      return tokenizer->encode(text, {.literal_marks = marks}).value();
    };
    const std::string user = tokenizer->mark_literal("ab<s>c");
    EXPECT_THAT(encode("<s>" + user + "<s>", true),
                ElementsAre(bos, 3, unknown, unknown, unknown, 2, bos));
    EXPECT_THAT(encode("<s>ab<s>c<s>", true), ElementsAre(bos, 3, bos, 2, bos));
    // Marks are nothing special where they are not asked for, and what needs none has none.
    EXPECT_THAT(encode(std::string("a") + std::string(kLiteralMark) + "b", false),
                ElementsAre(0, unknown, 1));
    EXPECT_THAT(encode(std::string("a") + std::string(kLiteralMark) + "b", true), ElementsAre(3));
    EXPECT_EQ(tokenizer->mark_literal("aab <s"), "aab <s");
    // A mark that the user wrote goes: the template's token behind it stays one, and what it
    // parted is marked itself.
    const std::string mark(kLiteralMark);
    EXPECT_THAT(encode(tokenizer->mark_literal("ab" + mark) + "<s>", true), ElementsAre(3, bos));
    EXPECT_EQ(tokenizer->mark_literal("ab<" + mark + mark + "s>c"), user);
    EXPECT_EQ(tokenizer->mark_literal("\xEF" + mark + "\xB7\x90").find(mark), std::string::npos);
    EXPECT_EQ(tokenizer->mark_literal(""), "");
  }
}

TEST(Tokenizer, MergeStepsAreLinear) {
  const std::string name = (kGolden / "mistral.tokenizer.json").string();
  const Result<std::string> json = octavo::read_text(name);
  const TokenizerData data = read_tokenizer_json(*json, name).value();
  for (const std::string unit : {" ", "a", "ab", "the ", "漢", "\xF0\x9F\x91\x8D", "e", "in the"}) {
    for (const std::size_t count : {1'000u, 100'000u}) {
      std::string text;
      for (std::size_t i = 0; i < count; ++i) text += unit;
      Encoder encoder(data, text, {});
      const Result<std::vector<TokenId>> ids = encoder.run();
      ASSERT_TRUE(ids.has_value());
      // A space becomes a metaspace, of three bytes but one symbol.
      EXPECT_LE(encoder.merge_steps(), 3 * (text.size() + 1)) << unit << " x " << count;
    }
  }
}

TEST(Tokenizer, CacheChangesNothing) {
  // Few different words and a small cache, so that words push one another out.
  const Tokenizer tokenizer = golden("qwen.tokenizer.json");
  std::mt19937 random(7);
  std::string text;
  std::vector<TokenId> apart;
  for (int i = 0; i < 5'000; ++i) {
    std::string word = "\n" + std::string(1 + random() % 3, "abcdefgh"[random() % 8]) +
                       std::string(random() % 3, "ethoinsr"[random() % 8]) + ".";
    const std::vector<TokenId> ids = tokenizer.encode(word).value();
    apart.insert(apart.end(), ids.begin(), ids.end());
    text += word;
  }
  EXPECT_EQ(tokenizer.encode(text).value(), apart);
}

TEST(DecodeStream, HoldsBackWhatIsNotWhole) {
  const Tokenizer tokenizer = golden("gpt2.tokenizer.json");
  const auto id = [&](const char* token) { return tokenizer.token_to_id(token).value(); };
  DecodeStream stream(tokenizer);
  EXPECT_EQ(stream.push(id("a")), "a");
  EXPECT_EQ(stream.push(id("æ")), "");    // E6
  EXPECT_EQ(stream.push(id("¼")), "");    // BC
  EXPECT_EQ(stream.push(id("¢")), "漢");  // A2
  EXPECT_EQ(stream.push(id("æ")), "");
  EXPECT_EQ(stream.push(id("a")), "\uFFFDa");
  EXPECT_EQ(stream.push(id("æ")), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.push(id("a")), "a");
}

TEST(DecodeStream, ByteTokensAreOneTextOrNone) {
  const Tokenizer tokenizer = golden("mistral.tokenizer.json");
  const auto id = [&](const char* token) { return tokenizer.token_to_id(token).value(); };
  DecodeStream stream(tokenizer);
  EXPECT_EQ(stream.push(id("▁it")), "it");
  for (const char* byte : {"<0xE6>", "<0xBC>", "<0xA2>"}) EXPECT_EQ(stream.push(id(byte)), "");
  EXPECT_EQ(stream.push(id("▁it")), "漢 it");
  EXPECT_EQ(stream.push(id("<0xE6>")), "");
  EXPECT_EQ(stream.push(id("<0x41>")), "");
  EXPECT_EQ(stream.finish(), "\uFFFD\uFFFD");
}

// Steps behind Fuse see the whole text as one token, also where it comes in parts.
TEST(DecodeStream, StepsBehindFuse) {
  Json document = small_document();
  const auto decoded = [&](const std::vector<Json>& steps) {
    document["decoder"] = {{"type", "Sequence"}, {"decoders", steps}};
    const Tokenizer tokenizer = parsed(document).value();
    return tokenizer.decode(std::vector<TokenId>{0, 1, 2, 0, 3});  // a b c a ab
  };
  const Json fuse = {{"type", "Fuse"}};
  const Json byte_level = {{"type", "ByteLevel"}};
  const Json fallback = {{"type", "ByteFallback"}};
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", "bc"}}}, {"content", "-"}};
  const auto strip = [](int start, int stop) {
    return Json{{"type", "Strip"}, {"content", "a"}, {"start", start}, {"stop", stop}};
  };
  EXPECT_EQ(decoded({replace}), "abcaab");
  EXPECT_EQ(decoded({fuse, replace}), "a-aab");
  EXPECT_EQ(decoded({byte_level, replace, fuse, fallback, byte_level}), "a-aab");
  EXPECT_EQ(decoded({strip(1, 0)}), "bcb");
  EXPECT_EQ(decoded({strip(0, 1)}), "bcab");
  EXPECT_EQ(decoded({fuse, strip(2, 0)}), "bcaab");
  const Json last_b = {{"type", "Strip"}, {"content", "b"}, {"start", 0}, {"stop", 3}};
  EXPECT_EQ(decoded({byte_level, last_b}), "abcaa");
}

TEST(TokenizerFile, RefusesByName) {
  const auto refuses = [](const char* pointer, const Json& value, const char* words) {
    Json document = small_document();
    document[Json::json_pointer(pointer)] = value;
    const Result<Tokenizer> tokenizer = parsed(document);
    ASSERT_FALSE(tokenizer.has_value()) << words;
    EXPECT_THAT(tokenizer.error().message, AllOf(testing::StartsWith("file: "), HasSubstr(words)));
  };
  const auto step = [](const char* type) { return Json{{"type", type}}; };
  refuses("/model/type", "Unigram", "model: Unigram tokenizers are not supported");
  refuses("/model/type", "WordPiece", "model: WordPiece tokenizers are not supported");
  refuses("/model/dropout", 0.1, "dropout");
  refuses("/model/merges/0", "b c d", "model.merges: entry 0 is no pair");
  refuses("/model/merges/0", "b d", "entry 0 needs \"d\", which the vocabulary lacks");
  refuses("/model/vocab/a", -1, "the id of \"a\"");
  refuses("/model/vocab/a", 4294967295, "the id of \"a\"");
  refuses("/normalizer", step("Precompiled"), "the normalizer Precompiled is not supported");
  refuses("/pre_tokenizer", step("UnicodeScripts"), "the pre-tokenizer UnicodeScripts");
  refuses("/post_processor", step("RobertaProcessing"), "the post-processor RobertaProcessing");
  refuses("/decoder", step("CTC"), "the decoder CTC is not supported");
  refuses("/version", "2.0", "version 2.0 is not known");
  refuses("/pre_tokenizer",
          {{"type", "Sequence"},
           {"pretokenizers",
            {{{"type", "Split"}, {"pattern", {{"Regex", "(?x)a"}}}, {"behavior", "Isolated"}}}}},
          "pre_tokenizer.pretokenizers[0].pattern: the regular expression uses");
  refuses("/added_tokens/0/content", std::string(5000, 'x'), "added_tokens[0]: an added token of");
  Json nested = step("Digits");
  for (int i = 0; i < 100; ++i) nested = {{"type", "Sequence"}, {"pretokenizers", {nested}}};
  refuses("/pre_tokenizer", nested, "sequences within sequences");
  Json grows = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  for (int i = 0; i < 4; ++i) {
    grows["normalizers"].push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(200, 'a')}});
  }
  refuses("/normalizer", grows, "times as long");
  EXPECT_FALSE(Tokenizer::parse("", "file").has_value());
  EXPECT_FALSE(Tokenizer::parse("[]", "file").has_value());
  EXPECT_FALSE(Tokenizer::parse("{}", "file").has_value());
}

TEST(TokenizerFile, SaysWhatADirectoryLacks) {
  const fs::path directory = fs::path(testing::TempDir()) / "octavo_no_tokenizer";
  fs::create_directories(directory);
  EXPECT_THAT(Tokenizer::load(directory).error().message, HasSubstr("no tokenizer.json in it"));
  ASSERT_TRUE(write_text(directory / "tokenizer.model", "x").has_value());
  EXPECT_THAT(Tokenizer::load(directory).error().message,
              HasSubstr("tokenizer.model is not supported"));
  EXPECT_THAT(Tokenizer::load(directory / "tokenizer.model").error().message,
              HasSubstr("SentencePiece files are not supported"));
  fs::remove_all(directory);
}

TEST(Tokenizer, HostilePatternFailsInsteadOfHanging) {
  Json document = small_document();
  document["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(?:(?:a|aa)+)+[bc]"}}}, {"behavior", "Isolated"}};
  const Tokenizer tokenizer = parsed(document).value();
  const auto ids = tokenizer.encode(std::string(100, 'a'));
  ASSERT_FALSE(ids.has_value());
  EXPECT_THAT(ids.error().message, HasSubstr("too many steps"));
}

}  // namespace
}  // namespace octavo::text
