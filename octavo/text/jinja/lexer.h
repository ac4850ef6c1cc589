// Template text to tokens, with the white space control of Jinja as Transformers sets it:
// trim_blocks and lstrip_blocks on, the last newline of the template dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::text::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  symbol,
  end,
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;          // of data, names, strings (without escapes) and symbols
  std::int64_t integer = 0;  // of integers
  double real = 0;           // of reals
};

// Throws Failure. The last token is `end`.
std::vector<Token> tokenize(std::string_view source);

}  // namespace octavo::text::jinja
