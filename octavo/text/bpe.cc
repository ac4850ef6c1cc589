#include "octavo/text/bpe_internal.h"

#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

constexpr char32_t kFirstShifted = 0x100;

bool stands_for_itself(unsigned code) {
  return (code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xAC) ||
         (code >= 0xAE && code <= 0xFF);
}

struct ByteAlphabet {
  std::array<char32_t, 256> code{};
  std::array<int, 0x144> byte{};  // by code point

  ByteAlphabet() {
    byte.fill(kNoByte);
    char32_t shifted = kFirstShifted;
    for (unsigned b = 0; b < 256; ++b) {
      code[b] = stands_for_itself(b) ? b : shifted++;
      byte[code[b]] = static_cast<int>(b);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

// The earliest rank first; of equal ones the leftmost.
bool later(const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

void add_symbol(BpeScratch& scratch, TokenId id) {
  const auto at = static_cast<std::int32_t>(scratch.symbols.size());
  if (at > 0) scratch.symbols.back().next = at;
  scratch.symbols.push_back({id, at - 1, -1, false});
}

void find_symbols(const Bpe& bpe, std::string_view word, BpeScratch& scratch) {
  bool pending = false;  // an unknown token that the next one may join
  const auto flush = [&] {
    if (pending) add_symbol(scratch, bpe.unknown);
    pending = false;
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t bytes = unit_bytes(word[at]);
    std::string_view symbol = word.substr(at, bytes);
    const bool prefixed = at > 0 && !bpe.prefix.empty();
    at += bytes;
    const bool suffixed = at == word.size() && !bpe.suffix.empty();
    if (prefixed || suffixed) {
      scratch.text =
          fmt::format("{}{}{}", prefixed ? bpe.prefix : "", symbol, suffixed ? bpe.suffix : "");
      symbol = scratch.text;
    }
    if (const TokenId id = bpe.vocabulary.find(symbol); id != kNoToken) {
      flush();
      add_symbol(scratch, id);
      continue;
    }
    const auto fallback = [&](char byte) { return bpe.fallback[static_cast<unsigned char>(byte)]; };
    if (bpe.byte_fallback &&
        std::ranges::all_of(symbol, [&](char byte) { return fallback(byte) != kNoToken; })) {
      // An unknown token before it stays pending and comes after it: so does the reference.
      for (const char byte : symbol) add_symbol(scratch, fallback(byte));
      continue;
    }
    if (!bpe.has_unknown) continue;
    if (!bpe.fuse_unknown) flush();
    pending = true;
    if (bpe.unknown == kNoToken) scratch.lacks_unknown = true;
  }
  flush();
}

void queue_pair(const Bpe& bpe, BpeScratch& scratch, std::int32_t left) {
  const BpeScratch::Symbol& symbol = scratch.symbols[static_cast<std::size_t>(left)];
  const TokenId right = scratch.symbols[static_cast<std::size_t>(symbol.next)].id;
  const PairTable::Value* const merge = bpe.merges.find(symbol.id, right);
  if (merge == nullptr) return;
  scratch.queue.push_back({merge->first, left, merge->second});
  ++scratch.steps;
}

void merge_symbols(const Bpe& bpe, BpeScratch& scratch) {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  queue.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
    queue_pair(bpe, scratch, static_cast<std::int32_t>(i));
  std::ranges::make_heap(queue, later);
  while (!queue.empty()) {
    const BpeScratch::Candidate best = queue.front();
    std::ranges::pop_heap(queue, later);
    queue.pop_back();
    BpeScratch::Symbol& left = symbols[static_cast<std::size_t>(best.left)];
    if (left.removed || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    // Either may have become a part of something else meanwhile.
    const PairTable::Value* const merge = bpe.merges.find(left.id, right.id);
    if (merge == nullptr || merge->second != best.merged) continue;
    left.id = best.merged;
    left.next = right.next;
    right.removed = true;
    const auto queue_merged = [&](std::int32_t at) {
      const std::size_t before = queue.size();
      queue_pair(bpe, scratch, at);
      if (queue.size() > before) std::ranges::push_heap(queue, later);
    };
    if (left.next >= 0) {
      symbols[static_cast<std::size_t>(left.next)].previous = best.left;
      queue_merged(best.left);
    }
    if (left.previous >= 0) queue_merged(left.previous);
  }
}

}  // namespace

char32_t byte_level_code(unsigned char byte) { return byte_alphabet().code[byte]; }

int byte_level_byte(char32_t code) {
  return code < byte_alphabet().byte.size() ? byte_alphabet().byte[code] : kNoByte;
}

void Bpe::prepare() {
  std::string text;
  for (unsigned b = 0; b < 256; ++b) {
    text.clear();
    append_utf8(text, byte_level_code(static_cast<unsigned char>(b)));
    byte_level[b] = vocabulary.find(text);
    fallback[b] = vocabulary.find(fmt::format("<0x{:02X}>", b));
  }
  whole_alphabet = prefix.empty() && suffix.empty() &&
                   std::ranges::find(byte_level, kNoToken) == byte_level.end();
}

void encode_word(const Bpe& bpe, std::string_view word, bool raw, BpeScratch& scratch,
                 std::vector<TokenId>& ids) {
  if (bpe.ignore_merges) {
    std::string_view token = word;
    if (raw) {
      scratch.text.clear();
      for (const char byte : word)
        append_utf8(scratch.text, byte_level_code(static_cast<unsigned char>(byte)));
      token = scratch.text;
    }
    if (const TokenId id = bpe.vocabulary.find(token); id != kNoToken) {
      ids.push_back(id);
      return;
    }
  }
  scratch.symbols.clear();
  if (raw) {
    for (const char byte : word)
      add_symbol(scratch, bpe.byte_level[static_cast<unsigned char>(byte)]);
  } else {
    find_symbols(bpe, word, scratch);
  }
  merge_symbols(bpe, scratch);
  for (const BpeScratch::Symbol& symbol : scratch.symbols)
    if (!symbol.removed) ids.push_back(symbol.id);
}

}  // namespace octavo::text
