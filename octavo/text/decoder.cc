#include <algorithm>
#include <charconv>

#include "octavo/text/steps_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

// The bytes of a token in the byte-level alphabet; one that has a character outside it stands for
// itself.
std::string byte_level_bytes(std::string_view token) {
  std::string bytes;
  for (std::size_t at = 0; at < token.size(); at += unit_bytes(token[at])) {
    const int byte = byte_level_byte(first_code(token.substr(at)));
    if (byte == kNoByte) return std::string(token);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// Of "<0x41>".
std::optional<char> fallback_byte(std::string_view token) {
  unsigned byte = 0;
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  const auto [rest, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || rest != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace

// Each step takes tokens from the one before and gives tokens to the next, in pieces: a token may
// be as long as the whole text (after Fuse), and its pieces leave as soon as they are certain.
struct DecodeStream::State {
  struct Step {
    std::string held;     // of the current token, or bytes of several
    bool first = true;    // the current token is the first one
    bool inside = false;  // a piece of the current token has gone by
    std::size_t cut = 0;  // strip: code points taken from the front of the current token
    bool cutting = true;  // strip: there may be more of them
  };

  std::shared_ptr<const TokenizerData> data;
  DecodeOptions options;
  std::vector<Step> steps;
  bool any = false;  // a token came by
  std::string out;

  void push(std::size_t at, std::string_view piece, bool ends_token);
  void finish(std::size_t at);

 private:
  void byte_level(std::size_t at, bool finishing);
  void end_bytes(std::size_t at);
  void strip(std::size_t at, std::string_view piece, bool ends_token);
  void metaspace(std::size_t at, std::string_view piece, bool ends_token);
};

void DecodeStream::State::push(std::size_t at, std::string_view piece, bool ends_token) {
  if (at == steps.size()) {
    out += piece;
    return;
  }
  const DecodeStep& how = data->decoder[at];
  Step& step = steps[at];
  switch (how.kind) {
    case DecodeStep::Kind::fuse:
      return push(at + 1, piece, false);
    case DecodeStep::Kind::strip:
      return strip(at, piece, ends_token);
    case DecodeStep::Kind::metaspace:
      return metaspace(at, piece, ends_token);
    default:
      break;
  }
  // The others need whole tokens; what a fusing step gives is one only at the end.
  std::string whole;
  if (!ends_token || step.inside) {
    whole = how.kind == DecodeStep::Kind::replace ? std::move(step.held) : std::string();
    whole += piece;
    piece = whole;
    step.inside = !ends_token;
    if (!ends_token) {
      step.held = std::move(whole);
      return;
    }
    step.held.clear();
  }
  switch (how.kind) {
    case DecodeStep::Kind::byte_level:
      step.held += byte_level_bytes(piece);
      return byte_level(at, false);
    case DecodeStep::Kind::byte_fallback:
      if (const std::optional<char> byte = fallback_byte(piece)) {
        step.held += *byte;
        return;
      }
      end_bytes(at);
      return push(at + 1, piece, true);
    default: {
      const auto text = replaced(how.pattern, how.content, piece);
      return push(at + 1, text ? std::string_view(*text) : piece, true);
    }
  }
}

// Passes on what is whole.
void DecodeStream::State::byte_level(std::size_t at, bool finishing) {
  std::string& held = steps[at].held;
  std::string_view rest = held;
  std::string whole;
  while (!rest.empty()) {
    const Utf8Unit unit = first_unit(rest);
    if (unit.cut && !finishing) break;
    append_utf8(whole, unit.code);
    rest.remove_prefix(unit.bytes);
  }
  held = std::string(rest);
  if (!whole.empty()) push(at + 1, whole, false);
}

// A run of byte tokens is over: text, or as many U+FFFD as there are bytes.
void DecodeStream::State::end_bytes(std::size_t at) {
  const std::string bytes = std::move(steps[at].held);
  steps[at].held.clear();
  if (bytes.empty()) return;
  if (!invalid_utf8_at(bytes)) return push(at + 1, bytes, true);
  for (std::size_t i = 0; i < bytes.size(); ++i) push(at + 1, kReplacementText, true);
}

void DecodeStream::State::strip(std::size_t at, std::string_view piece, bool ends_token) {
  const DecodeStep& how = data->decoder[at];
  Step& step = steps[at];
  step.inside = true;
  while (step.cutting && step.cut < how.start && !piece.empty()) {
    step.cutting = piece.starts_with(how.content);
    if (!step.cutting) break;
    piece.remove_prefix(how.content.size());
    ++step.cut;
  }
  std::string now = std::move(step.held);
  step.held.clear();
  now += piece;
  // What may be cut off the end waits.
  std::size_t kept = now.size();
  for (std::size_t i = 0;
       i < how.stop && std::string_view(now).substr(0, kept).ends_with(how.content); ++i)
    kept -= how.content.size();
  if (!ends_token) step.held = now.substr(kept);
  if (ends_token || kept > 0) push(at + 1, std::string_view(now).substr(0, kept), ends_token);
  if (ends_token) step = Step{};
}

void DecodeStream::State::metaspace(std::size_t at, std::string_view piece, bool ends_token) {
  const DecodeStep& how = data->decoder[at];
  Step& step = steps[at];
  std::string text;
  while (!piece.empty()) {
    const std::size_t bytes = unit_bytes(piece[0]);
    if (piece.substr(0, bytes) != how.content) {
      text += piece.substr(0, bytes);
    } else if (!how.drop_first || !step.first) {
      text += ' ';
    }
    piece.remove_prefix(bytes);
  }
  if (ends_token) step.first = false;
  push(at + 1, text, ends_token);
}

void DecodeStream::State::finish(std::size_t at) {
  if (at == steps.size()) return;
  switch (data->decoder[at].kind) {
    case DecodeStep::Kind::byte_level:
      if (steps[at].inside) push(at, "", true);
      byte_level(at, true);
      push(at + 1, "", true);
      break;
    case DecodeStep::Kind::fuse:
      push(at + 1, "", true);
      break;
    case DecodeStep::Kind::byte_fallback:
      end_bytes(at);
      break;
    default:
      break;
  }
  finish(at + 1);
}

DecodeStream::DecodeStream(const Tokenizer& tokenizer, const DecodeOptions& options)
    : state_(std::make_unique<State>()) {
  state_->data = tokenizer.data_;
  state_->options = options;
  state_->steps.resize(state_->data->decoder.size());
}
DecodeStream::~DecodeStream() = default;
DecodeStream::DecodeStream(DecodeStream&&) noexcept = default;
DecodeStream& DecodeStream::operator=(DecodeStream&&) noexcept = default;

std::string DecodeStream::push(TokenId id) {
  const TokenizerData& data = *state_->data;
  std::string_view token;
  if (const AddedToken* const added = data.added_token(id)) {
    if (added->special && state_->options.skip_special) return {};
    token = added->decoded;
  } else if (const auto known = data.bpe.vocabulary.token(id)) {
    token = *known;
  } else {
    return {};
  }
  state_->out.clear();
  if (!data.has_decoder && state_->any) state_->out = " ";
  state_->any = true;
  state_->push(0, token, true);
  return std::move(state_->out);
}

std::string DecodeStream::finish() {
  state_->out.clear();
  state_->finish(0);
  std::string rest = std::move(state_->out);
  state_->any = false;
  state_->steps.assign(state_->steps.size(), {});
  return rest;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  DecodeStream stream(*this, options);
  std::string text;
  for (const TokenId id : ids) text += stream.push(id);
  return text + stream.finish();
}

std::string Tokenizer::token_bytes(TokenId id) const {
  std::string text;
  if (const AddedToken* const added = data_->added_token(id)) {
    text = added->content;
    if (added->special) return text;
  } else {
    text = data_->bpe.vocabulary.token(id).value_or("");
  }
  for (const DecodeStep& step : data_->decoder) {
    switch (step.kind) {
      case DecodeStep::Kind::byte_level:
        text = byte_level_bytes(text);
        break;
      case DecodeStep::Kind::byte_fallback:
        if (const auto byte = fallback_byte(text)) return std::string(1, *byte);
        break;
      case DecodeStep::Kind::replace:
        text = replaced(step.pattern, step.content, text).value_or(text);
        break;
      case DecodeStep::Kind::metaspace:
        text = replaced({.is_regex = false, .literal = step.content, .regex = {}}, " ", text)
                   .value_or(text);
        break;
      default:
        break;
    }
  }
  return text;
}

}  // namespace octavo::text
