// Byte-pair encoding of one word.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/pair_table_internal.h"
#include "octavo/text/vocabulary_internal.h"

namespace octavo::text {

inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581, a visible space

struct Bpe {
  Vocabulary vocabulary;
  PairTable merges;  // left and right token -> rank, merged token

  bool has_unknown = false;
  TokenId unknown = kNoToken;  // kNoToken with has_unknown: the vocabulary lacks it
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a token is that token
  std::string prefix;          // of symbols that do not begin a word
  std::string suffix;          // of the symbol that ends one

  // Filled by prepare().
  std::array<TokenId, 256> byte_level;  // of a byte in the byte-level alphabet
  std::array<TokenId, 256> fallback;    // of "<0x00>" to "<0xFF>"
  bool whole_alphabet = false;          // byte_level has no gap, and a symbol is one byte
  // No token spans the place before a metaspace that follows something else: what is left of it and
  // what is right of it are words of their own.
  bool splits_before_metaspace = false;

  void prepare();
};

// The byte-level alphabet: a printable code point below U+0144 for each byte.
char32_t byte_level_code(unsigned char byte);
// kNoByte where the code point stands for none.
inline constexpr int kNoByte = -1;
int byte_level_byte(char32_t code);

struct BpeScratch {
  struct Symbol {
    TokenId id;
    std::int32_t previous;  // -1 at the ends
    std::int32_t next;
    bool removed;
  };
  struct Candidate {
    std::uint32_t rank;
    std::int32_t left;  // of symbols
    TokenId merged;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> queue;
  std::string text;
  std::uint64_t steps = 0;     // candidates that were queued so far
  bool lacks_unknown = false;  // a word needed an unknown token that the vocabulary lacks
};

// Appends the word's tokens to `ids`. `raw`: the word is bytes that stand for their byte-level
// characters. At most three candidates are queued for each byte.
void encode_word(const Bpe& bpe, std::string_view word, bool raw, BpeScratch& scratch,
                 std::vector<TokenId>& ids);

}  // namespace octavo::text
