#include "octavo/runtime/stop.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace octavo::runtime {
namespace {

StopStrings stops(std::vector<std::string> strings) {
  return StopStrings::create(std::move(strings)).value();
}

// What comes out of each piece, and of finish() at the end.
std::vector<std::string> shown(StopStrings stop, const std::vector<std::string>& pieces) {
  std::vector<std::string> out;
  for (const std::string& piece : pieces) out.push_back(stop.push(piece));
  out.push_back(stop.finish());
  return out;
}

using Texts = std::vector<std::string>;

TEST(StopStrings, WithoutAnyTextPassesAtOnce) {
  EXPECT_EQ(shown(StopStrings(), {"a", "bc"}), (Texts{"a", "bc", ""}));
}

TEST(StopStrings, ABeginningIsHeldUntilItIsDecided) {
  EXPECT_EQ(shown(stops({"END"}), {"aE", "N", "D", "b"}), (Texts{"a", "", "", "", ""}));
  EXPECT_EQ(shown(stops({"END"}), {"aE", "N", "x"}), (Texts{"a", "", "ENx", ""}));
  EXPECT_EQ(shown(stops({"END"}), {"aEN"}), (Texts{"a", "EN"}));
  EXPECT_EQ(shown(stops({"END"}), {"EENEND!"}), (Texts{"EEN", ""}));
  EXPECT_EQ(shown(stops({"aab"}), {"aa", "a", "b"}), (Texts{"", "a", "", ""}));
}

TEST(StopStrings, TheFirstThatIsComplete) {
  StopStrings stop = stops({"abc", "b"});
  EXPECT_EQ(stop.push("xabc"), "xa");
  EXPECT_EQ(stop.found(), "b");
  stop = stops({"bc", "abc", "c"});
  EXPECT_EQ(stop.push("xabc"), "x");
  EXPECT_EQ(stop.found(), "abc");
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.finish(), "");
  EXPECT_EQ(stops({"z"}).found(), "");
}

TEST(StopStrings, CharactersComeOutWhole) {
  EXPECT_EQ(shown(stops({"\xE2\x82\xAC"}), {"a\xE2", "\x82", "\xAD"}),
            (Texts{"a", "", "\xE2\x82\xAD", ""}));
  EXPECT_EQ(shown(StopStrings(), {"\xF0\x9F", "\x98\x80!"}), (Texts{"", "\xF0\x9F\x98\x80!", ""}));
  EXPECT_EQ(shown(StopStrings(), {"a\xC3"}), (Texts{"a", "\xEF\xBF\xBD"}));
  EXPECT_EQ(shown(StopStrings(), {"\xE2\x82"}), (Texts{"", "\xEF\xBF\xBD"}));
  // What is no UTF-8 at all is not held for ever.
  EXPECT_EQ(shown(StopStrings(), {"\x80\x80\x80\x80",
                                  "\xFF"
                                  "abcd"}),
            (Texts{"\x80\x80\x80\x80",
                   "\xFF"
                   "abcd",
                   ""}));
}

TEST(StopStrings, AnEmptyOneIsRefused) {
  EXPECT_FALSE(StopStrings::create({"a", ""}));
  EXPECT_TRUE(StopStrings::create({}));
}

// The text as a whole is what matters: up to where the first stop string that is complete begins.
RC_GTEST_PROP(StopStrings, CuttingChangesNothing, ()) {
  const auto letters = rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc")));
  const auto text = *letters;
  const auto strings = *rc::gen::container<std::vector<std::string>>(rc::gen::nonEmpty(letters));
  std::string expected = text;
  for (std::size_t end = 1; end <= text.size() && expected == text; ++end) {
    for (const std::string& s : strings) {
      const std::string_view prefix(text.data(), end);
      if (prefix.ends_with(s) && end - s.size() < expected.size())
        expected = text.substr(0, end - s.size());
    }
  }
  StopStrings stop = stops(strings);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto n = *rc::gen::inRange<std::size_t>(1, text.size() - at + 1);
    out += stop.push(std::string_view(text).substr(at, n));
    RC_ASSERT(expected.starts_with(out));
    at += n;
  }
  out += stop.finish();
  RC_ASSERT(out == expected);
  RC_ASSERT(stop.found().empty() == (expected == text));
}

}  // namespace
}  // namespace octavo::runtime
