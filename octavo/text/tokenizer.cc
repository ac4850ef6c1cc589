#include "octavo/text/tokenizer.h"

#include <fmt/format.h>
#include <simdjson.h>

#include "octavo/base/file.h"
#include "octavo/text/encoder_internal.h"
#include "octavo/text/read_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxFileBytes = 512 << 20;
constexpr std::string_view kFileName = "tokenizer.json";

Result<TokenizerData> read_padded(const simdjson::padded_string& text, std::string_view file) {
  simdjson::dom::parser parser;
  JsonNode document{{}, std::string(file)};
  constexpr bool kCopy = false;  // the padding is there
  if (const auto error = parser.parse(text.data(), text.size(), kCopy).get(document.value))
    return document.bad(fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  if (!document.value.is_object()) return document.bad("not a JSON object");
  OCTAVO_TRY(const std::string_view version, document.text_or("version", "1.0"));
  if (version != "1.0")
    return document.unsupported(fmt::format("version {} is not known, only 1.0", version));
  TokenizerData data;
  OCTAVO_TRY(data.bpe, read_bpe(document));
  OCTAVO_CHECK(read_normalizer(document, data));
  OCTAVO_CHECK(read_pre_tokenizer(document, data));
  OCTAVO_CHECK(read_post_processor(document, data));
  OCTAVO_CHECK(read_decoder(document, data));
  OCTAVO_CHECK(read_added_tokens(document, data));
  return data;
}

// What to do where a directory has no tokenizer.json.
std::string missing_message(const fs::path& directory) {
  const auto has = [&](const char* name) {
    std::error_code error;
    return fs::exists(directory / name, error);
  };
  for (const char* other : {"tokenizer.model", "spiece.model", "vocab.json", "vocab.txt"}) {
    if (!has(other)) continue;
    return fmt::format(
        "{}: no {}, and {} is not supported; Transformers writes the former: "
        "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
        directory.string(), kFileName, other);
  }
  return fmt::format("{}: no {} in it", directory.string(), kFileName);
}

}  // namespace

Result<TokenizerData> read_tokenizer_json(std::string_view json, std::string_view file) {
  return read_padded(simdjson::padded_string(json), file);
}

Tokenizer::Tokenizer(TokenizerData data)
    : data_(std::make_shared<const TokenizerData>(std::move(data))) {}

Result<Tokenizer> Tokenizer::parse(std::string_view json, std::string_view name) {
  OCTAVO_TRY(TokenizerData data, read_tokenizer_json(json, name));
  return Tokenizer(std::move(data));
}

Result<Tokenizer> Tokenizer::load(const fs::path& path) {
  std::error_code error;
  fs::path file_path = path;
  if (fs::is_directory(path, error)) {
    file_path = path / kFileName;
    if (!fs::exists(file_path, error)) return fail(ErrorCode::io, missing_message(path));
  } else if (path.extension() == ".model") {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: SentencePiece files are not supported, only {}", path.string(),
                            kFileName));
  }
  OCTAVO_TRY(const File file, File::open(file_path));
  const std::string name = file_path.string();
  if (file.size() > kMaxFileBytes) {
    return fail(ErrorCode::bad_file, fmt::format("{}: {} bytes; a tokenizer of at most {} is read",
                                                 name, file.size(), kMaxFileBytes));
  }
  simdjson::padded_string text(file.size());
  const std::span<char> bytes(text.data(), text.size());
  OCTAVO_CHECK(file.read_at(0, std::as_writable_bytes(bytes)));
  OCTAVO_TRY(TokenizerData data, read_padded(text, name));
  return Tokenizer(std::move(data));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  std::string repaired;
  if (invalid_utf8_at(text)) {
    repaired = valid_utf8(text);
    text = repaired;
  }
  return Encoder(*data_, text, options).run();
}

std::string Tokenizer::mark_literal(std::string_view written) const {
  // No mark but those that are put here: one at its end would make text of the template's token
  // behind it. Repaired first, so that no bytes around a mark are one without it.
  std::string text = valid_utf8(written);
  for (std::size_t at = 0; (at = text.find(kLiteralMark, at)) != text.npos;)
    text.erase(at, kLiteralMark.size());
  const std::string_view whole = text;
  std::string marked;
  for (std::size_t at = 0; at < text.size();) {
    TokenTrie::Match match = data_->plain.longest(whole.substr(at));
    if (match.token == TokenTrie::kNone) match = data_->normalized.longest(whole.substr(at));
    if (match.token != TokenTrie::kNone && data_->added[match.token].special)
      marked += kLiteralMark;
    const std::size_t bytes = std::max<std::size_t>(match.bytes, 1);
    marked += whole.substr(at, bytes);
    at += bytes;
  }
  return marked;
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  TokenId id = data_->added_ids.find(token);
  if (id == kNoToken) id = data_->bpe.vocabulary.find(token);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

std::optional<std::string_view> Tokenizer::id_to_token(TokenId id) const {
  if (const AddedToken* const added = data_->added_token(id)) return added->content;
  return data_->bpe.vocabulary.token(id);
}

bool Tokenizer::is_special(TokenId id) const {
  const AddedToken* const added = data_->added_token(id);
  return added != nullptr && added->special;
}

std::size_t Tokenizer::vocab_size() const {
  std::size_t size = data_->bpe.vocabulary.size();
  for (const AddedToken& token : data_->added)
    if (data_->added_token(token.id) == &token &&
        data_->bpe.vocabulary.find(token.content) == kNoToken)
      ++size;
  return size;
}

std::size_t Tokenizer::id_limit() const {
  return std::max(data_->bpe.vocabulary.id_limit(), data_->added_by_id.size());
}

}  // namespace octavo::text
