// "model" and "added_tokens" of a tokenizer.json.
#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/read_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

// Longer added tokens are refused: a text is searched for them at every place.
constexpr std::size_t kMaxAddedBytes = 4096;

Result<void> read_vocabulary(const JsonNode& model, Vocabulary& vocabulary) {
  OCTAVO_TRY(const JsonNode node, model.get("vocab"));
  simdjson::dom::object object;
  if (node.value.get(object)) return node.bad("an object of tokens and their ids is expected");
  std::size_t count = 0;
  std::size_t bytes = 0;
  for (const auto& [token, id] : object) {
    ++count;
    bytes += token.size();
  }
  vocabulary.reserve(count, bytes);
  for (const auto& [token, value] : object) {
    std::uint64_t id = 0;
    if (value.get(id) || id > kMaxTokenId) {
      return node.bad(
          fmt::format("the id of \"{}\" is no whole number from 0 to {}", token, kMaxTokenId));
    }
    vocabulary.add(token, static_cast<TokenId>(id));
  }
  return {};
}

// "a b", or ["a", "b"].
bool read_pair(const simdjson::dom::element& value, std::string_view& left,
               std::string_view& right) {
  std::string_view text;
  if (!value.get(text)) {
    const std::size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) return false;
    left = text.substr(0, space);
    right = text.substr(space + 1);
    return true;
  }
  simdjson::dom::array pair;
  return !value.get(pair) && pair.size() == 2 && !pair.at(0).get(left) && !pair.at(1).get(right);
}

// Whether a merge joins something else than a metaspace, on the left, to one.
bool crosses_metaspace(std::string_view left, std::string_view right) {
  return right.starts_with(kMetaspace) && !left.ends_with(kMetaspace);
}

Result<void> read_merges(const JsonNode& model, Bpe& bpe) {
  OCTAVO_TRY(const JsonNode node, model.get("merges"));
  simdjson::dom::array list;
  if (node.value.get(list)) return node.bad("a list of pairs of tokens is expected");
  std::size_t count = 0;
  for (const simdjson::dom::element item : list) count += item.is_null() ? 0 : 1;
  bpe.merges = PairTable(count);
  bool crosses = false;
  std::uint32_t rank = 0;
  std::string joined;
  for (const simdjson::dom::element item : list) {
    std::string_view left;
    std::string_view right;
    if (!read_pair(item, left, right))
      return node.bad(fmt::format("entry {} is no pair of tokens", rank));
    const TokenId left_id = bpe.vocabulary.find(left);
    const TokenId right_id = bpe.vocabulary.find(right);
    joined = left;
    joined += right.substr(std::min(bpe.prefix.size(), right.size()));
    const TokenId merged = bpe.vocabulary.find(joined);
    if (left_id == kNoToken || right_id == kNoToken || merged == kNoToken) {
      const std::string_view missing = left_id == kNoToken    ? left
                                       : right_id == kNoToken ? right
                                                              : std::string_view(joined);
      return node.bad(
          fmt::format("entry {} needs \"{}\", which the vocabulary lacks", rank, missing));
    }
    crosses = crosses || crosses_metaspace(left, right);
    bpe.merges.set(left_id, right_id, {rank++, merged});
  }
  // The metaspace has to be a token: it ends a run of unknown ones, which would join otherwise.
  bpe.splits_before_metaspace = !crosses && bpe.prefix.empty() && bpe.suffix.empty() &&
                                !bpe.ignore_merges && bpe.vocabulary.find(kMetaspace) != kNoToken;
  return {};
}

}  // namespace

Result<Bpe> read_bpe(const JsonNode& document) {
  OCTAVO_TRY(const JsonNode model, document.get("model"));
  if (!model.value.is_object()) return model.bad("an object is expected");
  // Old files name no type.
  OCTAVO_TRY(const std::string_view type,
             model.text_or("type", model.find("merges") ? "BPE" : "model without type and merges"));
  if (type != "BPE")
    return model.unsupported(fmt::format("{} tokenizers are not supported, only BPE ones", type));
  if (const auto dropout = model.find("dropout")) {
    double rate = 0;
    if (dropout->value.get(rate) || rate != 0)
      return dropout->unsupported("dropout gives other tokens each time; set it to null");
  }
  Bpe bpe;
  OCTAVO_TRY(bpe.fuse_unknown, model.flag_or("fuse_unk", false));
  OCTAVO_TRY(bpe.byte_fallback, model.flag_or("byte_fallback", false));
  OCTAVO_TRY(bpe.ignore_merges, model.flag_or("ignore_merges", false));
  OCTAVO_TRY(bpe.prefix, model.text_or("continuing_subword_prefix", ""));
  OCTAVO_TRY(bpe.suffix, model.text_or("end_of_word_suffix", ""));
  OCTAVO_CHECK(read_vocabulary(model, bpe.vocabulary));
  if (model.find("unk_token")) {
    OCTAVO_TRY(const std::string_view unknown, model.text("unk_token"));
    bpe.has_unknown = true;
    bpe.unknown = bpe.vocabulary.find(unknown);
  }
  OCTAVO_CHECK(read_merges(model, bpe));
  bpe.prepare();
  return bpe;
}

// The ids that the file gives to added tokens do not count, as in the reference: a token of the
// vocabulary has its id there, the others follow.
Result<void> read_added_tokens(const JsonNode& document, TokenizerData& data) {
  if (!document.find("added_tokens")) return {};
  OCTAVO_TRY(const std::vector<JsonNode> items, document.items("added_tokens"));
  TokenId next_id = static_cast<TokenId>(data.bpe.vocabulary.size());
  for (const JsonNode& item : items) {
    AddedToken token;
    OCTAVO_TRY(token.content, item.text("content"));
    OCTAVO_TRY(token.single_word, item.flag_or("single_word", false));
    OCTAVO_TRY(token.left_strip, item.flag_or("lstrip", false));
    OCTAVO_TRY(token.right_strip, item.flag_or("rstrip", false));
    OCTAVO_TRY(token.special, item.flag_or("special", false));
    OCTAVO_TRY(token.normalized, item.flag_or("normalized", !token.special));
    if (token.content.empty()) continue;
    if (token.content.size() > kMaxAddedBytes) {
      return item.unsupported(fmt::format("an added token of {} bytes; at most {} are read",
                                          token.content.size(), kMaxAddedBytes));
    }
    token.id = data.added_ids.find(token.content);
    if (token.id == kNoToken) token.id = data.bpe.vocabulary.find(token.content);
    if (token.id == kNoToken) token.id = next_id++;
    if (token.id > kMaxTokenId) return item.unsupported("too many tokens");
    token.decoded = token.content;
    if (token.normalized) {
      bool at_start = true;
      const auto normal = run_normalizer(data.normalizer, token.content, at_start);
      if (!normal) return item.bad("a regular expression of the normalizer takes too many steps");
      token.decoded = *normal;
    }
    data.added_ids.add(token.content, token.id);
    if (token.id >= data.added_by_id.size())
      data.added_by_id.resize(std::size_t{token.id} + 1, TokenTrie::kNone);
    data.added_by_id[token.id] = static_cast<std::uint32_t>(data.added.size());
    data.added.push_back(std::move(token));
  }
  // A token that stands there twice counts as it stands there last.
  for (const std::uint32_t at : data.added_by_id) {
    if (at == TokenTrie::kNone) continue;
    const AddedToken& token = data.added[at];
    if (token.normalized) {
      if (!token.decoded.empty()) data.normalized.add(token.decoded, at);
    } else {
      data.plain.add(token.content, at);
    }
  }
  return {};
}

}  // namespace octavo::text
