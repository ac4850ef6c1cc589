// tokenizer.json, and what it makes of some texts.
#include <algorithm>
#include <array>
#include <string>

#include "fuzz/check.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace octavo;
  using fuzz::require;
  // Each at most 64 bytes: a pattern from the file may take quadratic time.
  constexpr std::array<std::string_view, 8> kTexts = {
      "",
      "Hello, world 123 it's",
      "<s>ab <|x|>  aab\n\n c",
      "e\u0301 \u1E9B\u0323 \U0001F469\u200D\U0001F467 \u6F22\u5B57 \u0663",
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
      "                \t\r\n  \u00A0 x",
      "\u2581a\u2581\u2581b<0x0A>\uFFFD",
      "\xFF\xE6\xBC\x00 \xF0\x9F",
  };
  const Result<text::Tokenizer> tokenizer =
      text::Tokenizer::parse(fuzz::as_text(data, size), "file");
  if (!tokenizer) {
    fuzz::require_message(tokenizer.error().message, "file");
    return 0;
  }
  for (const std::string_view sample : kTexts) {
    const auto ids = tokenizer->encode(sample);
    if (!ids) {
      require(!ids.error().message.empty(), "errors say something");
      continue;
    }
    require(tokenizer->encode(sample).value() == *ids, "the same text has the same ids");
    std::string joined;
    text::DecodeStream stream(*tokenizer);
    for (const text::TokenId id : *ids) {
      const std::string part = stream.push(id);
      require(!text::invalid_utf8_at(part), "parts are whole code points");
      joined += part;
    }
    joined += stream.finish();
    require(!text::invalid_utf8_at(joined), "decoded text is valid");
    require(joined == tokenizer->decode(*ids), "a stream gives the same text");
    tokenizer->encode(sample, {.add_special_tokens = false, .parse_special = false});
    tokenizer->decode(*ids, {.skip_special = true});
  }
  for (text::TokenId id = 0; id < std::min<std::size_t>(tokenizer->id_limit(), 100); ++id) {
    tokenizer->token_bytes(id);
    if (const auto token = tokenizer->id_to_token(id))
      require(tokenizer->token_to_id(*token).has_value(), "a token has an id");
  }
  return 0;
}
