#include "octavo/base/error.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(Printable, KeepsWhatATerminalCanShow) {
  for (const char* text : {"", "a tensor's name", "\\x1B", "\u00A0\u07FF\u0800\uFFFD",
                           "\u8108\u7f51\U00010000\U0010FFFF"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesControlCharacters) {
  using namespace std::string_literals;
  EXPECT_EQ(printable("a\nb\tc\x1B[2J\x7F"), "a\\x0Ab\\x09c\\x1B[2J\\x7F");
  EXPECT_EQ(printable("a\0b"s), "a\\x00b");
  EXPECT_EQ(printable("\u009B2J"), "\\xC2\\x9B2J") << "the other beginning of a terminal command";
}

TEST(Printable, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(printable("\xFF\x80z"), "\\xFF\\x80z");
  EXPECT_EQ(printable("\xC0\xAF"), "\\xC0\\xAF") << "overlong";
  EXPECT_EQ(printable("\xE0\x9F\xBF"), "\\xE0\\x9F\\xBF") << "overlong";
  EXPECT_EQ(printable("\xF0\x8F\xBF\xBF"), "\\xF0\\x8F\\xBF\\xBF") << "overlong";
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xED\\xA0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80") << "beyond U+10FFFF";
  EXPECT_EQ(printable("\xE8\x84"), "\\xE8\\x84") << "cut";
  EXPECT_EQ(printable("\xE8z"), "\\xE8z");
}

}  // namespace
}  // namespace octavo
