// Tokens and their ids, both ways.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/tokenizer.h"

namespace octavo::text {

inline constexpr TokenId kNoToken = std::numeric_limits<TokenId>::max();

// Larger ids are refused: tables are as long as the largest.
inline constexpr TokenId kMaxTokenId = (1 << 22) - 1;

class Vocabulary {
 public:
  void reserve(std::size_t tokens, std::size_t bytes);
  // A token that is there already gets the new id; an id that is there already, the new token.
  void add(std::string_view token, TokenId id);  // id <= kMaxTokenId

  TokenId find(std::string_view token) const;  // kNoToken where there is none
  std::optional<std::string_view> token(TokenId id) const;
  std::size_t size() const { return entries_.size(); }    // different tokens
  std::size_t id_limit() const { return by_id_.size(); }  // above all ids

 private:
  struct Entry {
    std::size_t offset;  // in bytes_
    std::uint32_t length;
    TokenId id;
  };
  static constexpr std::uint32_t kFree = std::numeric_limits<std::uint32_t>::max();

  std::string_view text(const Entry& entry) const {
    return std::string_view(bytes_).substr(entry.offset, entry.length);
  }
  std::size_t slot_of(std::string_view token) const;
  void grow();

  std::string bytes_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // of entries_; a power of two, at most half of them used
  std::vector<std::uint32_t> by_id_;  // of entries_
};

}  // namespace octavo::text
