#include "octavo/text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "octavo/text/jinja/literals.h"
#include "octavo/text/jinja/unicode.h"
#include "octavo/text/jinja/value.h"

namespace octavo::text::jinja {
namespace {

// \r\n and \r become \n.
std::string with_unix_newlines(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
    } else {
      result += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    }
  }
  return result;
}

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
  return is_digit_char(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_data();
    push(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) const {
    throw Failure{ErrorCode::bad_file, std::move(message), line_};
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }

  void push(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, line_, std::move(text)});
  }

  // Moves on, counting lines.
  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::ranges::count(rest().substr(0, bytes), '\n'));
    at_ += bytes;
  }

  void skip_space() { advance(leading_space(rest())); }
  void skip_newline() {
    if (looking_at("\n")) advance(1);
  }

  // Text up to `end`, an opening tag with `sign` after it, less what the sign and lstrip_blocks
  // take. `line_start`: the text begins on a line of its own.
  std::string_view before_tag(std::string_view text, char sign, bool variable,
                              bool line_start) const {
    if (sign == '-') return text.substr(0, text.size() - trailing_space(text));
    if (sign == '+' || variable) return text;
    const std::size_t newline = text.rfind('\n');
    if (newline == text.npos && !line_start) return text;
    const std::size_t begin = newline == text.npos ? 0 : newline + 1;
    const std::string_view last = text.substr(begin);
    return leading_space(last) == last.size() ? text.substr(0, begin) : text;
  }

  char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  bool at_line_start() const { return at_ == 0 || source_[at_ - 1] == '\n'; }

  void push_data(std::string_view text) {
    if (!text.empty()) push(TokenKind::data, std::string(text));
  }

  void lex_data() {
    const std::string_view text = rest();
    std::size_t tag = text.find('{');
    while (tag != text.npos &&
           (tag + 1 == text.size() ||
            (text[tag + 1] != '{' && text[tag + 1] != '%' && text[tag + 1] != '#')))
      tag = text.find('{', tag + 1);
    if (tag == text.npos) {
      push_data(text);
      return advance(text.size());
    }
    const char kind = text[tag + 1];
    const char sign = sign_at(at_ + tag + 2);
    push_data(before_tag(text.substr(0, tag), sign, kind == '{', at_line_start()));
    advance(tag);
    if (kind == '%' && lex_raw()) return;
    const std::size_t opening = sign == '\0' ? 2 : 3;
    if (kind == '#') return lex_comment(opening);
    push(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin);
    advance(opening);
    lex_tag(kind == '{');
  }

  void lex_comment(std::size_t opening) {
    const std::size_t begin = at_ + opening;
    const std::size_t end = source_.find("#}", begin);
    if (end == source_.npos) fail("a comment is not closed: #} is missing");
    const char sign = end > begin ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    if (sign == '-') {
      skip_space();
    } else if (sign != '+') {
      skip_newline();
    }
  }

  // The bytes of an opening tag `{%[-+] NAME [-]%}` at `at`, for raw; of any sign for endraw, where
  // what follows it is taken, too.
  std::optional<std::size_t> raw_tag(std::size_t at, std::string_view name, bool closing) const {
    const std::string_view text(source_);
    std::size_t i = at + 2;
    if (sign_at(i) != '\0') ++i;
    i += leading_space(text.substr(i));
    if (!text.substr(i).starts_with(name)) return std::nullopt;
    i += name.size();
    i += leading_space(text.substr(i));
    const std::string_view end = text.substr(i);
    if (end.starts_with("-%}")) return i + 3 + leading_space(text.substr(i + 3)) - at;
    if (closing && end.starts_with("+%}")) return i + 3 - at;
    if (!end.starts_with("%}")) return std::nullopt;
    i += 2;
    return (closing && i < text.size() && text[i] == '\n' ? i + 1 : i) - at;
  }

  bool lex_raw() {
    const std::optional<std::size_t> opening = raw_tag(at_, "raw", false);
    if (!opening) return false;
    advance(*opening);
    const std::size_t begin = at_;
    for (std::size_t tag = source_.find("{%", begin); tag != source_.npos;
         tag = source_.find("{%", tag + 1)) {
      const std::optional<std::size_t> closing = raw_tag(tag, "endraw", true);
      if (!closing) continue;
      push_data(before_tag(std::string_view(source_).substr(begin, tag - begin), sign_at(tag + 2),
                           false, at_line_start()));
      advance(tag + *closing - begin);
      return true;
    }
    fail("a raw block is not closed: {% endraw %} is missing");
  }

  // Whether the tag ends here, at brackets that are closed.
  bool lex_end(bool variable) {
    if (!open_.empty()) return false;
    const std::string_view closing = variable ? "}}" : "%}";
    const bool minus = looking_at("-") && rest().substr(1).starts_with(closing);
    const bool plus = !variable && looking_at("+") && rest().substr(1).starts_with(closing);
    if (!minus && !plus && !looking_at(closing)) return false;
    push(variable ? TokenKind::variable_end : TokenKind::block_end);
    advance(closing.size() + (minus || plus ? 1 : 0));
    if (minus) {
      skip_space();
    } else if (!plus && !variable) {
      skip_newline();
    }
    return true;
  }

  void lex_tag(bool variable) {
    open_.clear();
    while (at_ < source_.size()) {
      if (lex_end(variable)) return;
      const char c = source_[at_];
      if (const std::size_t space = leading_space(rest())) {
        advance(space);
      } else if (is_digit_char(c)) {
        lex_number();
      } else if (is_name_char(c)) {
        std::size_t size = 1;
        while (at_ + size < source_.size() && is_name_char(source_[at_ + size])) ++size;
        push(TokenKind::name, source_.substr(at_, size));
        advance(size);
      } else if (c == '\'' || c == '"') {
        lex_string(c);
      } else {
        lex_symbol();
      }
    }
  }

  void lex_number() {
    const bool after_point = at_ > 0 && source_[at_ - 1] == '.';
    Token token{TokenKind::integer, line_, {}, 0, 0};
    std::size_t size = after_point ? 0 : float_literal(rest());
    if (size > 0) {
      token.kind = TokenKind::real;
      const std::optional<double> real = parse_float(rest().substr(0, size));
      if (!real) fail("a number is malformed");
      token.real = *real;
    } else {
      size = integer_literal(rest());
      const std::optional<std::int64_t> integer = parse_integer(rest().substr(0, size), 0);
      if (!integer) fail("an integer does not fit in 64 bits");
      token.integer = *integer;
    }
    tokens_.push_back(std::move(token));
    advance(size);
  }

  void lex_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string is not closed");
    const Result<std::string> text =
        unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1));
    if (!text) fail(text.error().message);
    push(TokenKind::string, *text);
    advance(end + 1 - at_);
  }

  void lex_symbol() {
    static constexpr std::string_view kSymbols[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto found =
        std::ranges::find_if(kSymbols, [&](std::string_view symbol) { return looking_at(symbol); });
    if (found == std::end(kSymbols)) {
      std::size_t after = at_;
      next_code_point(source_, after);
      fail(fmt::format("unexpected character '{}'", source_.substr(at_, after - at_)));
    }
    if (*found == "(") open_ += ')';
    if (*found == "[") open_ += ']';
    if (*found == "{") open_ += '}';
    if (*found == ")" || *found == "]" || *found == "}") {
      if (open_.empty()) fail(fmt::format("unexpected '{}'", *found));
      if (open_.back() != (*found)[0])
        fail(fmt::format("unexpected '{}', expected '{}'", *found, open_.back()));
      open_.pop_back();
    }
    push(TokenKind::symbol, std::string(*found));
    advance(found->size());
  }

  const std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  std::string open_;  // closing brackets that are due
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (invalid_utf8_at(source)) throw Failure{ErrorCode::bad_file, "the template is not UTF-8"};
  std::string text = with_unix_newlines(source);
  if (text.ends_with('\n')) text.pop_back();
  return Lexer(std::move(text)).run();
}

}  // namespace octavo::text::jinja
