#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "octavo/text/unicode_changes.h"
#include "octavo/text/unicode_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

std::string utf8(char32_t code) {
  std::string text;
  append_utf8(text, code);
  return text;
}

TEST(Utf8, EveryCodePointThereAndBack) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    const std::string text = utf8(code);
    const Utf8Unit unit = first_unit(text);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(unit.valid, !surrogate) << static_cast<unsigned>(code);
    if (surrogate) continue;
    ASSERT_EQ(unit.code, code);
    ASSERT_EQ(unit.bytes, text.size());
    ASSERT_EQ(unit_bytes(text[0]), text.size());
    ASSERT_EQ(last_code("x" + text), code);
    for (std::size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_TRUE(first_unit(std::string_view(text).substr(0, cut)).cut);
  }
}

// The examples of the Unicode standard, section 3.9, tables 3-8 to 3-11.
TEST(Utf8, LongestPartsBecomeOneReplacement) {
  const auto count = [](std::string_view text) {
    const std::string valid = valid_utf8(text);
    EXPECT_EQ(invalid_utf8_at(valid), std::nullopt);
    std::size_t found = 0;
    for (std::size_t at = valid.find(kReplacementText); at != valid.npos;
         at = valid.find(kReplacementText, at + 1))
      ++found;
    return found;
  };
  EXPECT_EQ(count("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), 8u);
  EXPECT_EQ(count("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), 8u);
  EXPECT_EQ(count("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), 7u);
  EXPECT_EQ(count("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), 4u);
  EXPECT_EQ(valid_utf8("a\xE1\x80"), "a\xEF\xBF\xBD");
  EXPECT_EQ(invalid_utf8_at("01234567\xC3\xA9 \xC3"), 11u);
}

TEST(Utf8, PartsAtTheEndThatMayBecomeACodePoint) {
  for (const char32_t code : {U'a', U'\u00E9', U'\u20AC', U'\U0001F600'}) {
    const std::string text = utf8(code);
    EXPECT_EQ(cut_bytes("x" + text), 0u);
    for (std::size_t bytes = 1; bytes < text.size(); ++bytes)
      EXPECT_EQ(cut_bytes("x" + text.substr(0, bytes)), bytes);
  }
  EXPECT_EQ(cut_bytes(""), 0u);
  for (const char* never :
       {"x\x80", "x\xFF", "x\xC0", "x\xE0\x80", "x\xED\xA0", "\x80\x80\x80\x80"})
    EXPECT_EQ(cut_bytes(never), 0u) << never;
}

TEST(Unicode, StandInsHaveTheSameLengthAndAreOld) {
  char32_t before = 0;
  for (const UnicodeChange& change : kUnicodeChanges) {
    EXPECT_GE(change.first, before);
    EXPECT_GE(change.first, 0x800u) << "has_changed_codes looks at longer ones only";
    for (char32_t code = change.first; code <= change.last; ++code) {
      EXPECT_EQ(stand_in(code), change.stand_in);
      EXPECT_EQ(utf8(code).size(), utf8(change.stand_in).size());
    }
    EXPECT_EQ(stand_in(change.stand_in), change.stand_in);
    before = change.last + 1;
  }
  EXPECT_FALSE(has_changed_codes("plain, na\xC3\xAFve, \xE6\xBC\xA2"));
  const std::string newer = "x" + utf8(0x323AF) + "y";  // CJK extension H, Unicode 15
  EXPECT_TRUE(has_changed_codes(newer));
  EXPECT_EQ(with_stand_ins(newer).size(), newer.size());
  EXPECT_FALSE(has_changed_codes(with_stand_ins(newer)));
}

TEST(Unicode, Classes) {
  const auto count = [](bool (*is)(char32_t)) {
    std::size_t members = 0;
    for (char32_t code = 0; code <= 0x10FFFF; ++code) members += is(code) ? 1 : 0;
    return members;
  };
  EXPECT_EQ(count(is_space), 25u);      // White_Space
  EXPECT_EQ(count(is_numeric), 1924u);  // N of Unicode 17
  for (const char32_t code : {U'_', U'a', U'é', U'\u0301', U'٣', U'\u200D', U'Ⓐ', U'漢'})
    EXPECT_TRUE(is_word(code)) << static_cast<unsigned>(code);
  for (const char32_t code : {U' ', U'-', U'½', U'€', U'👍'})
    EXPECT_FALSE(is_word(code)) << static_cast<unsigned>(code);
  for (const char32_t code : {U'!', U'$', U'+', U'_', U'—', U'。'})
    EXPECT_TRUE(is_punctuation(code)) << static_cast<unsigned>(code);
  for (const char32_t code : {U'a', U'0', U' ', U'€', U'\x7F'})
    EXPECT_FALSE(is_punctuation(code)) << static_cast<unsigned>(code);
}

TEST(NormalForms, OfTheStandard) {
  using enum NormalForm;
  // D-dot-above, D-dot-below: examples of UAX 15.
  EXPECT_EQ(normalized(nfd, "\u1E0A"), "D\u0307");
  EXPECT_EQ(normalized(nfc, "D\u0307\u0323"), "\u1E0C\u0307");
  EXPECT_EQ(normalized(nfc, "\u1E0A\u0323"), "\u1E0C\u0307");
  EXPECT_EQ(normalized(nfkc, "\uFB01\u0301"), "f\u00ED");
  EXPECT_EQ(normalized(nfkd, "\u1E9B\u0323"), "s\u0323\u0307");
  EXPECT_EQ(normalized(nfc, "\u1E9B\u0323"), "\u1E9B\u0323");
  EXPECT_EQ(normalized(nfd, "\uAC01"), "\u1100\u1161\u11A8");
  EXPECT_EQ(normalized(nfc, "\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(normalized(nfc, "\u212B"), "\u00C5");
  EXPECT_EQ(normalized(nfkc, "\u00A0"), " ");
  EXPECT_EQ(normalized(nfc, ""), "");
}

TEST(NormalForms, ComposingWhatWasDecomposedAndTwiceIsOnce) {
  for (char32_t code = 0xA0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const std::string text = utf8(code);
    const std::string composed = normalized(NormalForm::nfc, text);
    ASSERT_EQ(normalized(NormalForm::nfc, normalized(NormalForm::nfd, text)), composed);
    ASSERT_EQ(normalized(NormalForm::nfc, composed), composed);
    const std::string compatible = normalized(NormalForm::nfkc, text);
    ASSERT_EQ(normalized(NormalForm::nfkc, compatible), compatible);
  }
}

TEST(NormalForms, MarksInTheWorstOrder) {
  // 200,000 marks whose classes alternate: exchanging neighbours would take 10^10 steps.
  constexpr std::size_t kPairs = 100'000;
  std::string text = "a";
  for (std::size_t i = 0; i < kPairs; ++i) text += "\u0307\u0323";
  const std::string sorted = normalized(NormalForm::nfd, text);
  ASSERT_EQ(sorted.size(), text.size());
  EXPECT_EQ(sorted.rfind("\u0323"), 1 + 2 * (kPairs - 1));
  EXPECT_EQ(sorted.find("\u0307"), 1 + 2 * kPairs);
}

TEST(Unicode, LowerCase) { EXPECT_EQ(lowered("ÀΣİẞ\u212A1"), "àσi\u0307ßk1"); }

}  // namespace
}  // namespace octavo::text
