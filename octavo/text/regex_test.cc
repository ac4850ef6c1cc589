#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "octavo/text/regex_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> matches_of(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::compile(pattern, "here");
  EXPECT_TRUE(regex.has_value()) << pattern << ": " << regex.error().message;
  std::vector<std::string> found;
  if (!regex) return found;
  RegexScratch scratch;
  RegexMatches matches(*regex, scratch, text);
  std::size_t begin = 0;
  std::size_t end = 0;
  while (matches.next(begin, end)) found.emplace_back(text.substr(begin, end - begin));
  EXPECT_FALSE(matches.failed());
  return found;
}

std::size_t members_of(std::string_view pattern) {
  std::string every;
  for (char32_t code = 0; code <= 0x10FFFF; ++code)
    if (code < 0xD800 || code >= 0xE000) append_utf8(every, code);
  return matches_of(pattern, every).size();
}

TEST(Regex, FindsFromTheLeft) {
  EXPECT_THAT(matches_of("a+|b", "aabxab"), ElementsAre("aa", "b", "a", "b"));
  EXPECT_THAT(matches_of(R"(\s+(?!\S)|\s+)", "a   b  "), ElementsAre("  ", " ", "  "));
  EXPECT_THAT(matches_of("x", "abc"), IsEmpty());
}

TEST(Regex, EmptyMatchesStandBetweenOthersOnly) {
  EXPECT_THAT(matches_of("a*", "baac"), ElementsAre("", "aa", ""));
  EXPECT_THAT(matches_of("", "\xC3\xA9x"), ElementsAre("", "", ""));
}

TEST(Regex, RubysMeanings) {
  EXPECT_THAT(matches_of("(?m)a.b", "a\nb"), ElementsAre("a\nb"));  // m: the dot matches line ends
  EXPECT_THAT(matches_of("^b$", "a\nb\nc"), ElementsAre("b"));
  EXPECT_THAT(matches_of(R"(\h+)", "xfF09z"), ElementsAre("fF09"));
  EXPECT_THAT(matches_of(R"(\v)", "\n\v"), ElementsAre("\v"));
  EXPECT_THAT(matches_of("a{,2}b", "aaab"), ElementsAre("aab"));
  EXPECT_THAT(matches_of("a{x", "a{x"), ElementsAre("a{x"));
  EXPECT_THAT(matches_of(R"([\u00e9\x{61}-c]+)", "é-abc"), ElementsAre("é", "abc"));
  EXPECT_THAT(matches_of("[[:alpha:]]+|[[:digit:]]", "aé1"), ElementsAre("aé", "1"));
  EXPECT_THAT(matches_of("(?i:'s|'LL)", "it'S we'll \u2019s"), ElementsAre("'S", "'ll"));
  EXPECT_THAT(matches_of(R"(\p{Letter}+|\p{^L})", "aé1"), ElementsAre("aé", "1"));
  EXPECT_THAT(matches_of(R"([\]\[\\^-]+)", "a]^[\\-"), ElementsAre("]^[\\-"));
  EXPECT_THAT(matches_of(R"(\bb)", "a b_b é\u0301b"), ElementsAre("b"));
}

// The numbers that the tokenizers package 0.23.3 gives: Oniguruma with Unicode 16.
TEST(Regex, ClassesOfUnicode16) {
  EXPECT_EQ(members_of(R"(\p{L})"), 141028u);
  EXPECT_EQ(members_of(R"(\p{Lo})"), 136477u);
  EXPECT_EQ(members_of(R"(\p{Han})"), 99030u);
  EXPECT_EQ(members_of(R"(\p{N})"), 1911u);
  EXPECT_EQ(members_of(R"(\s)"), 25u);
  EXPECT_EQ(members_of(R"([^\S])"), 25u);
  EXPECT_EQ(members_of(R"(\w)"), 144671u);
}

TEST(Regex, RefusesByName) {
  for (const auto& [pattern, construct] :
       std::vector<std::pair<std::string, std::string>>{{R"(a\K)", R"(\K)"},
                                                        {"[a[bc]]", "a class within a class"},
                                                        {"[a&&b]", "&& in a class"},
                                                        {"(?x) a", "a kind of group"},
                                                        {"(*UTF)a", "(*"},
                                                        {"a{2}+", "+ behind {2}"},
                                                        {"a{2}?", "? behind {2}"},
                                                        {R"([\W])", R"(\W in a class)"},
                                                        {R"(\pL)", R"(\p without braces)"},
                                                        {R"(\xe9)", R"(a byte in \x)"},
                                                        {"[abc", "a class without end"},
                                                        {"a\\", "a backslash at the end"}}) {
    const Result<Regex> regex = Regex::compile(pattern, "file: step");
    ASSERT_FALSE(regex.has_value()) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::unsupported);
    EXPECT_THAT(regex.error().message, AllOf(HasSubstr("file: step: "), HasSubstr(construct)));
  }
  const Result<Regex> open = Regex::compile("(a", "file: step");
  ASSERT_FALSE(open.has_value());
  EXPECT_THAT(open.error().message, HasSubstr("missing closing parenthesis"));
  EXPECT_FALSE(Regex::compile(std::string(1 << 17, 'a'), "file: step").has_value());
  EXPECT_FALSE(Regex::compile(std::string(5000, '(') + std::string(5000, ')'), "f").has_value());
}

TEST(Regex, StopsWhereOneMatchTakesTooManySteps) {
  const Result<Regex> regex = Regex::compile("(?:(?:a|aa)+)+b", "here");
  ASSERT_TRUE(regex.has_value());
  const std::string text(100, 'a');
  RegexScratch scratch;
  RegexMatches matches(*regex, scratch, text);
  std::size_t begin = 0;
  std::size_t end = 0;
  EXPECT_FALSE(matches.next(begin, end));
  EXPECT_TRUE(matches.failed());
}

TEST(Regex, LongRunsTakeFewSteps) {
  const std::string pattern = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|\s*[\r\n]+|\s+(?!\S)|\s+)";
  for (const std::string unit : {" ", "A", "\n", "é", "1"}) {
    std::string text = "x";
    for (int i = 0; i < 1'000'000; ++i) text += unit;
    text += "y";
    std::size_t bytes = 0;
    for (const std::string& match : matches_of(pattern, text)) bytes += match.size();
    EXPECT_EQ(bytes, text.size()) << unit;
  }
}

}  // namespace
}  // namespace octavo::text
