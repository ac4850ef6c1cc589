#include "octavo/text/encoder_internal.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

constexpr const char* kTooManySteps =
    "a regular expression of the tokenizer needs too many steps for this text";

// Joins the matches of a text, and what is between them, as a behaviour asks.
template <class OnPart>
class Joiner {
 public:
  Joiner(Behavior behavior, const OnPart& on_part) : behavior_(behavior), on_part_(on_part) {}

  void add(std::size_t begin, std::size_t end, bool is_match) {
    switch (behavior_) {
      case Behavior::isolated:
        return on_part_(begin, end);
      case Behavior::removed:
        if (!is_match) on_part_(begin, end);
        return;
      default:
        break;
    }
    const bool joins =
        held_ && (behavior_ == Behavior::contiguous             ? is_match == last_is_match_
                  : behavior_ == Behavior::merged_with_previous ? is_match && !last_is_match_
                                                                : last_is_match_ && !is_match);
    if (!joins) {
      finish();
      begin_ = begin;
    }
    end_ = end;
    held_ = true;
    last_is_match_ = is_match;
  }

  void finish() {
    if (held_) on_part_(begin_, end_);
    held_ = false;
  }

 private:
  Behavior behavior_;
  const OnPart& on_part_;
  bool held_ = false;
  bool last_is_match_ = false;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

// add(begin, end, is_match) for all of the text, in order.
template <class Add>
bool for_matches(const Pattern& pattern, RegexScratch& scratch, std::string_view text,
                 const Add& add) {
  std::size_t done = 0;
  const auto matched = [&](std::size_t begin, std::size_t end) {
    if (done < begin) add(done, begin, false);
    add(begin, end, true);
    done = end;
  };
  if (pattern.is_regex) {
    RegexMatches matches(pattern.regex, scratch, text);
    std::size_t begin = 0;
    std::size_t end = 0;
    while (matches.next(begin, end)) matched(begin, end);
    if (matches.failed()) return false;
  } else {
    const std::string& literal = pattern.literal;
    for (std::size_t at = text.find(literal); at != text.npos; at = text.find(literal, done))
      matched(at, at + literal.size());
  }
  if (done < text.size()) add(done, text.size(), false);
  return true;
}

template <class Is, class Add>
void for_codes(std::string_view text, const Is& is, const Add& add) {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = at + unit_bytes(text[at]);
    if (is(first_code(text.substr(at)))) {
      if (done < at) add(done, at, false);
      add(at, next, true);
      done = next;
    }
    at = next;
  }
  if (done < text.size()) add(done, text.size(), false);
}

// Runs of word characters, and of what is neither that nor space.
template <class OnPart>
void for_words(std::string_view text, const OnPart& on_part) {
  enum class Class { space, word, other };
  const auto class_of = [](char32_t code) {
    return is_word(code) ? Class::word : is_space(code) ? Class::space : Class::other;
  };
  std::size_t begin = 0;
  Class now = Class::space;
  for (std::size_t at = 0; at < text.size(); at += unit_bytes(text[at])) {
    const Class next = class_of(first_code(text.substr(at)));
    if (next == now) continue;
    if (now != Class::space) on_part(begin, at);
    begin = at;
    now = next;
  }
  if (now != Class::space) on_part(begin, text.size());
}

std::size_t cache_slots(std::size_t text_bytes) {
  constexpr std::size_t kFewest = 64;
  constexpr std::size_t kMost = 1 << 16;
  return std::clamp(std::bit_ceil(text_bytes / 8), kFewest, kMost);
}

std::string without_literal_marks(std::string_view text) {
  std::string rest;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find(kLiteralMark, at), text.size());
    rest += text.substr(at, mark - at);
    at = mark + kLiteralMark.size();
  }
  return rest;
}

}  // namespace

void TokenTrie::add(std::string_view text, std::uint32_t token) {
  if (ends.empty()) ends.push_back(kNone);
  std::uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (const PairTable::Value* const edge = edges.find(node, byte)) {
      node = edge->first;
      continue;
    }
    const auto made = static_cast<std::uint32_t>(ends.size());
    edges.set(node, byte, {made, 0});
    ends.push_back(kNone);
    node = made;
  }
  ends[node] = token;
  begins[static_cast<unsigned char>(text[0])] = true;
}

TokenTrie::Match TokenTrie::longest(std::string_view text) const {
  Match match;
  if (ends.empty() || !begins[static_cast<unsigned char>(text[0])]) return match;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const PairTable::Value* const edge = edges.find(node, static_cast<unsigned char>(text[i]));
    if (edge == nullptr) break;
    node = edge->first;
    if (ends[node] != kNone) match = {ends[node], i + 1};
  }
  return match;
}

Encoder::Encoder(const TokenizerData& data, std::string_view text, const EncodeOptions& options)
    : data_(data),
      text_(text),
      options_(options),
      regexes_(data.pre_tokenizer.size()),
      cache_(cache_slots(text.size())) {
  ids_.reserve(text.size() / 3);
}

Result<std::vector<TokenId>> Encoder::run() {
  find_added(data_.plain, text_,
             [&](std::string_view part) { normalize(part, part.data() == text_.data()); });
  if (bpe_.lacks_unknown)
    failure_ = "the text needs the tokenizer's unknown token, which its vocabulary lacks";
  if (failure_ != nullptr) return fail(ErrorCode::bad_model, failure_);
  if (options_.add_special_tokens) {
    for (const auto& parts : data_.templates) {
      std::vector<TokenId> whole;
      for (const TemplatePart& part : parts) {
        const std::vector<TokenId>& from = part.is_text ? ids_ : part.ids;
        whole.insert(whole.end(), from.begin(), from.end());
      }
      ids_ = std::move(whole);
    }
  }
  return std::move(ids_);
}

// The longest added token wherever one begins, from the left; on_text gets what is between them.
template <class OnText>
void Encoder::find_added(const TokenTrie& trie, std::string_view text, const OnText& on_text) {
  std::size_t done = 0;
  const auto flush = [&](std::size_t end) {
    if (done < end) on_text(text.substr(done, end - done));
  };
  for (std::size_t at = 0; at < text.size() && !trie.ends.empty();) {
    const auto [token, bytes] = trie.longest(text.substr(at));
    if (token == TokenTrie::kNone) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + bytes;
    at = end;  // also where the token does not count: nothing is found within it
    const AddedToken& added = data_.added[token];
    if (added.special && !options_.parse_special) continue;
    if (added.special && options_.literal_marks && text.substr(0, begin).ends_with(kLiteralMark))
      continue;
    if (added.single_word && ((begin > 0 && is_word(last_code(text.substr(0, begin)))) ||
                              (end < text.size() && is_word(first_code(text.substr(end))))))
      continue;
    while (added.left_strip && begin > done && is_space(last_code(text.substr(0, begin)))) {
      do --begin;
      while (is_continuation(text[begin]));
    }
    while (added.right_strip && end < text.size() && is_space(first_code(text.substr(end))))
      end += unit_bytes(text[end]);
    flush(begin);
    ids_.push_back(added.id);
    done = end;
  }
  flush(text.size());
}

void Encoder::normalize(std::string_view text, bool at_start) {
  if (!data_.normalizer.empty()) {
    std::optional<std::string> normal = run_normalizer(data_.normalizer, text, at_start);
    if (!normal) {
      failure_ = kTooManySteps;
      return;
    }
    if (*normal != text) text = keep(*std::move(normal));
  }
  find_added(data_.normalized, text, [&](std::string_view part) {
    const bool starts = at_start && part.data() == text.data();
    if (options_.literal_marks && part.contains(kLiteralMark))
      part = keep(without_literal_marks(part));
    pre_tokenize(0, part, starts);
  });
}

template <class OnPart>
bool Encoder::split(const SplitStep& step, RegexScratch& scratch, std::string_view text,
                    const OnPart& on_part) {
  Joiner joiner(step.behavior, on_part);
  const auto add = [&](std::size_t begin, std::size_t end, bool is_match) {
    joiner.add(begin, end, is_match != step.invert);
  };
  switch (step.kind) {
    case SplitStep::Kind::digits:
      for_codes(text, is_numeric, add);
      break;
    case SplitStep::Kind::punctuation:
      for_codes(text, is_punctuation, add);
      break;
    case SplitStep::Kind::spaces:
      for_codes(text, is_space, add);
      break;
    case SplitStep::Kind::words:
      for_words(text, on_part);
      break;
    default:
      if (!for_matches(step.pattern, scratch, text, add)) return false;
  }
  joiner.finish();
  return true;
}

void Encoder::pre_tokenize(std::size_t step, std::string_view text, bool at_start) {
  if (text.empty() || failure_ != nullptr) return;
  if (step == data_.pre_tokenizer.size()) return word(text, false);
  const SplitStep& how = data_.pre_tokenizer[step];
  if (how.kind == SplitStep::Kind::byte_level) return byte_level(step, text, at_start);
  if (how.kind == SplitStep::Kind::metaspace) return metaspace(step, text, at_start);
  const auto on_part = [&](std::size_t begin, std::size_t end) {
    pre_tokenize(step + 1, text.substr(begin, end - begin), at_start && begin == 0);
  };
  if (!split(how, regexes_[step], text, on_part)) failure_ = kTooManySteps;
}

void Encoder::byte_level(std::size_t step, std::string_view text, bool at_start) {
  const SplitStep& how = data_.pre_tokenizer[step];
  if (how.add_prefix_space && text[0] != ' ') text = keep(std::string(" ").append(text));
  const bool raw = step + 1 == data_.pre_tokenizer.size() && data_.bpe.whole_alphabet;
  const auto on_part = [&](std::size_t begin, std::size_t end) {
    if (begin == end) return;
    const std::string_view part = text.substr(begin, end - begin);
    if (raw) return word(part, true);
    std::string mapped;
    for (const char byte : part)
      append_utf8(mapped, byte_level_code(static_cast<unsigned char>(byte)));
    pre_tokenize(step + 1, keep(std::move(mapped)), at_start && begin == 0);
  };
  if (!how.use_regex) return on_part(0, text.size());
  if (!split(how, regexes_[step], text, on_part)) failure_ = kTooManySteps;
}

void Encoder::metaspace(std::size_t step, std::string_view text, bool at_start) {
  const SplitStep& how = data_.pre_tokenizer[step];
  std::string spaced;
  spaced.reserve(text.size() + how.replacement.size());
  const bool scheme_holds =
      how.scheme == PrependScheme::always || (how.scheme == PrependScheme::first && at_start);
  if (scheme_holds && text[0] != ' ' && !text.starts_with(how.replacement))
    spaced = how.replacement;
  for (const char c : text) {
    if (c == ' ') {
      spaced += how.replacement;
    } else {
      spaced += c;
    }
  }
  const std::string_view whole = keep(std::move(spaced));
  const auto on_part = [&](std::size_t begin, std::size_t end) {
    pre_tokenize(step + 1, whole.substr(begin, end - begin), at_start && begin == 0);
  };
  if (!how.split) return on_part(0, whole.size());
  split(how, regexes_[step], whole, on_part);
}

void Encoder::word(std::string_view text, bool raw) {
  if (!data_.bpe.splits_before_metaspace || raw) return cached_word(text, raw);
  // Each run of metaspaces begins a word.
  std::size_t begin = 0;
  for (std::size_t at = text.find(kMetaspace); at != text.npos;
       at = text.find(kMetaspace, at + kMetaspace.size())) {
    const bool in_run = at >= kMetaspace.size() &&
                        text.substr(at - kMetaspace.size(), kMetaspace.size()) == kMetaspace;
    if (at == begin || in_run) continue;
    cached_word(text.substr(begin, at - begin), false);
    begin = at;
  }
  cached_word(text.substr(begin), false);
}

void Encoder::cached_word(std::string_view text, bool raw) {
  CachedWord& cached = cache_[std::hash<std::string_view>()(text) & (cache_.size() - 1)];
  if (cached.begin != nullptr && std::string_view(cached.begin, cached.bytes) == text) {
    for (std::size_t i = 0; i < cached.count; ++i) ids_.push_back(ids_[cached.first + i]);
    return;
  }
  const std::size_t first = ids_.size();
  encode_word(data_.bpe, text, raw, bpe_, ids_);
  cached = {text.data(), text.size(), first, ids_.size() - first};
}

}  // namespace octavo::text
