// Ruby's syntax of regular expressions, as Oniguruma reads it, in PCRE2's words.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "octavo/text/regex_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

// Inside a class. PCRE2's own \s has U+180E as well, its \w lacks marks, and both depend on
// options.
constexpr std::string_view kSpace =
    "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"
    "3000}";
constexpr std::string_view kNoSpace = "\\S\\x{180e}";
// With the six numbers of Latin-1 that Oniguruma counts in.
constexpr std::string_view kWord =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr std::string_view kHex = "0-9A-Fa-f";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// Names that only one of the two knows. Inside a class.
std::optional<std::string_view> class_of_name(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kNames = {
      {{"letter", "\\p{L}"},
       {"mark", "\\p{M}"},
       {"number", "\\p{N}"},
       {"punctuation", "\\p{P}"},
       {"symbol", "\\p{S}"},
       {"separator", "\\p{Z}"},
       {"other", "\\p{C}"},
       {"alpha", "\\p{Alphabetic}"},
       {"alnum", "\\p{Alphabetic}\\p{Nd}"},
       {"digit", "\\p{Nd}"},
       {"upper", "\\p{Uppercase}"},
       {"lower", "\\p{Lowercase}"},
       {"space", kSpace},
       {"word", kWord},
       {"xdigit", kHex},
       {"ascii", "\\x00-\\x7f"}}};
  for (const auto& [known, members] : kNames)
    if (known == name) return members;
  return std::nullopt;
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        OCTAVO_CHECK(escape(false));
      } else if (c == '[') {
        OCTAVO_CHECK(char_class());
      } else if (c == '(') {
        OCTAVO_CHECK(group());
      } else if (c == '{') {
        OCTAVO_CHECK(interval());
      } else {
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  std::unexpected<Error> refuse(std::string_view construct) const {
    return fail(
        ErrorCode::unsupported,
        fmt::format("{}: the regular expression uses {} at offset {}, which is not supported",
                    where_, construct, at_));
  }
  char peek(std::size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  // A set of members, in a class or as one.
  void put_set(std::string_view members, bool in_class, bool negated = false) {
    out_ +=
        in_class ? fmt::format("{}", members) : fmt::format("[{}{}]", negated ? "^" : "", members);
  }

  Result<void> property(bool in_class) {
    bool negated = in_[at_ + 1] == 'P';
    const std::size_t close = in_.find('}', at_);
    if (peek(2) != '{' || close == in_.npos) return refuse("\\p without braces");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool plain =
        std::ranges::all_of(name, [](char c) { return is_letter(c) || c == '_' || is_digit(c); });
    if (name.empty() || !plain) return refuse("a property of an unusual name");
    std::string lower(name);
    for (char& c : lower) c = is_letter(c) ? static_cast<char>(c | 0x20) : c;
    if (const auto members = class_of_name(lower)) {
      if (negated && in_class) return refuse(fmt::format("\\P{{{}}} in a class", name));
      put_set(*members, in_class, negated);
    } else {
      out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name);
    }
    at_ = close + 1;
    return {};
  }

  // \xHH, \x{H...}, \uHHHH
  Result<void> code_point() {
    const bool braces = peek(2) == '{';
    const std::size_t begin = at_ + (braces ? 3 : 2);
    const std::size_t most = in_[at_ + 1] == 'u' ? 4 : braces ? 8 : 2;
    std::size_t end = begin;
    while (end < in_.size() && end - begin < most && is_hex(in_[end])) ++end;
    const bool closed = !braces || (end < in_.size() && in_[end] == '}');
    if (begin == end || !closed || (most == 4 && end - begin != 4))
      return refuse("an unfinished \\x or \\u");
    // Above \x7f it is one byte of a code point.
    if (most == 2 && end - begin == 2 && in_[begin] >= '8') return refuse("a byte in \\x");
    out_ += fmt::format("\\x{{{}}}", in_.substr(begin, end - begin));
    at_ = end + (braces ? 1 : 0);
    return {};
  }

  Result<void> escape(bool in_class) {
    const char c = peek(1);
    const auto done = [&]() -> Result<void> {
      at_ += 2;
      return {};
    };
    switch (c) {
      case '\0':
        return refuse("a backslash at the end");
      case 'p':
      case 'P':
        return property(in_class);
      case 'x':
      case 'u':
        return code_point();
      case 'd':
        out_ += "\\p{Nd}";
        return done();
      case 'D':
        out_ += "\\P{Nd}";
        return done();
      case 's':
        put_set(kSpace, in_class);
        return done();
      case 'S':
        put_set(in_class ? kNoSpace : kSpace, in_class, true);
        return done();
      case 'w':
        put_set(kWord, in_class);
        return done();
      case 'h':
        put_set(kHex, in_class);
        return done();
      case 'W':
      case 'H':
        if (in_class) return refuse(fmt::format("\\{} in a class", c));
        put_set(c == 'W' ? kWord : kHex, false, true);
        return done();
      case 'v':
        out_ += "\\x0b";
        return done();
      case 'b':
      case 'B':
        out_ += in_class   ? "\\x08"
                : c == 'b' ? fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord)
                           : fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord);
        return done();
      default:
        break;
    }
    constexpr std::string_view kSame = "nrtfae";
    constexpr std::string_view kSameOutside = "AzZG123456789";
    const bool same = kSame.contains(c) || (!in_class && kSameOutside.contains(c));
    if (!same && (is_letter(c) || is_digit(c))) return refuse(fmt::format("\\{}", c));
    if (static_cast<unsigned char>(c) >= 0x80) {
      ++at_;  // the code point itself
      return {};
    }
    out_ += {'\\', c};
    return done();
  }

  Result<void> char_class() {
    out_ += '[';
    ++at_;
    if (peek(0) == '^') {
      out_ += '^';
      ++at_;
    }
    for (bool first = true; at_ < in_.size(); first = false) {
      const char c = in_[at_];
      if (c == ']' && !first) {
        out_ += ']';
        ++at_;
        return {};
      }
      if (c == '\\') {
        OCTAVO_CHECK(escape(true));
      } else if (c == '[') {
        const std::size_t close = in_.find(":]", at_);
        if (peek(1) != ':' || close == in_.npos) return refuse("a class within a class");
        const auto members = class_of_name(in_.substr(at_ + 2, close - at_ - 2));
        if (!members) return refuse("this [:name:]");
        out_ += *members;
        at_ = close + 2;
      } else if (c == '&' && peek(1) == '&') {
        return refuse("&& in a class");
      } else {
        out_ += c;
        ++at_;
      }
    }
    return refuse("a class without end");
  }

  Result<void> group() {
    if (peek(1) == '*') return refuse("(*");
    out_ += '(';
    ++at_;
    if (peek(0) != '?') return {};
    for (const std::string_view same : {"?:", "?=", "?!", "?>", "?<=", "?<!"}) {
      if (!in_.substr(at_).starts_with(same)) continue;
      out_ += same;
      at_ += same.size();
      return {};
    }
    std::size_t end = at_ + 1;
    while (end < in_.size() && (in_[end] == 'i' || in_[end] == 'm' || in_[end] == '-')) ++end;
    if (end == at_ + 1 || end == in_.size() || (in_[end] != ':' && in_[end] != ')'))
      return refuse("a kind of group");
    out_ += '?';
    // Ruby's m lets the dot match line ends.
    for (; at_ + 1 < end; ++at_) out_ += in_[at_ + 1] == 'm' ? 's' : in_[at_ + 1];
    ++at_;
    return {};
  }

  Result<void> interval() {
    std::size_t end = at_ + 1;
    while (end < in_.size() && (is_digit(in_[end]) || in_[end] == ',')) ++end;
    const std::string_view bounds = in_.substr(at_ + 1, end - at_ - 1);
    const std::size_t comma = bounds.find(',');
    const bool interval = end < in_.size() && in_[end] == '}' && !bounds.empty() && bounds != "," &&
                          bounds.rfind(',') == comma;
    if (!interval) {
      out_ += "\\{";
      ++at_;
      return {};
    }
    const char next = end + 1 < in_.size() ? in_[end + 1] : '\0';
    // Both are something else there than here.
    if (next == '+' || (next == '?' && comma == bounds.npos))
      return refuse(fmt::format("{} behind {{{}}}", next, bounds));
    out_ += fmt::format("{{{}{}}}", comma == 0 ? "0" : "", bounds);
    at_ = end + 1;
    return {};
  }

  std::string_view in_;
  std::string_view where_;
  std::string out_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::string> to_pcre2(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

}  // namespace octavo::text
