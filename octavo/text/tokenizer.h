// Text to token ids and back, by a tokenizer.json: the same ids as the `tokenizers` package gives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"

namespace octavo::text {

using TokenId = std::uint32_t;

struct EncodeOptions {
  // What the file's post-processor puts around a text, such as a BOS. Off for text that a chat
  // template made: it has them already.
  bool add_special_tokens = true;
  // "<|im_end|>" in the text becomes that token; otherwise it is text like any other. Off for what
  // a user wrote.
  bool parse_special = true;
  // kLiteralMark in the text goes, and a special token right behind it is text like any other.
  bool literal_marks = false;
};

// U+FDD0: a code point that is in no text that is meant to be exchanged.
inline constexpr std::string_view kLiteralMark = "\xEF\xB7\x90";

struct DecodeOptions {
  bool skip_special = false;  // special tokens leave no trace in the text
};

struct TokenizerData;  // what the file says

// Cheap to copy; every copy may be used by any number of threads at the same time.
class Tokenizer {
 public:
  // A tokenizer.json, or a directory that holds one. Its truncation and padding are not applied.
  static Result<Tokenizer> load(const std::filesystem::path& path);
  static Result<Tokenizer> parse(std::string_view json, std::string_view name);

  // What is no UTF-8 in `text` becomes U+FFFD (valid_utf8). Fails where a regular expression of the
  // file needs more steps than it may take.
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;

  // With kLiteralMark before each special token and nowhere else: what a user wrote stays text
  // within a prompt that a template makes (EncodeOptions::literal_marks).
  std::string mark_literal(std::string_view written) const;

  // Always valid UTF-8. Ids that are none are left out.
  std::string decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  std::optional<TokenId> token_to_id(std::string_view token) const;
  std::optional<std::string_view> id_to_token(TokenId id) const;  // as the file spells it
  // The bytes that the token stands for inside a text; they may be a part of a code point.
  std::string token_bytes(TokenId id) const;

  bool is_special(TokenId id) const;
  std::size_t vocab_size() const;  // tokens, added ones included
  std::size_t id_limit() const;    // above all ids

 private:
  friend class DecodeStream;
  explicit Tokenizer(TokenizerData data);

  std::shared_ptr<const TokenizerData> data_;  // never null
};

// Text as tokens arrive. All parts joined are decode() of all ids. Every part is whole code points:
// what may still change with the next token is held back.
class DecodeStream {
 public:
  explicit DecodeStream(const Tokenizer& tokenizer, const DecodeOptions& options = {});
  ~DecodeStream();
  DecodeStream(DecodeStream&&) noexcept;
  DecodeStream& operator=(DecodeStream&&) noexcept;

  std::string push(TokenId id);
  std::string finish();  // what was held back; after it, the stream begins anew

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octavo::text
