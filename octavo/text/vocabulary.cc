#include <functional>

#include "octavo/text/vocabulary_internal.h"

namespace octavo::text {

void Vocabulary::reserve(std::size_t tokens, std::size_t bytes) {
  bytes_.reserve(bytes);
  entries_.reserve(tokens);
  by_id_.reserve(tokens);
  while (slots_.size() < 2 * tokens + 2) grow();
}

std::size_t Vocabulary::slot_of(std::string_view token) const {
  std::size_t at = std::hash<std::string_view>()(token) & (slots_.size() - 1);
  while (slots_[at] != kFree && text(entries_[slots_[at]]) != token)
    at = (at + 1) & (slots_.size() - 1);
  return at;
}

void Vocabulary::grow() {
  slots_.assign(slots_.empty() ? 16 : 2 * slots_.size(), kFree);
  for (std::uint32_t i = 0; i < entries_.size(); ++i) slots_[slot_of(text(entries_[i]))] = i;
}

void Vocabulary::add(std::string_view token, TokenId id) {
  if (2 * (entries_.size() + 1) > slots_.size()) grow();
  std::uint32_t& slot = slots_[slot_of(token)];
  if (slot == kFree) {
    slot = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({bytes_.size(), static_cast<std::uint32_t>(token.size()), id});
    bytes_ += token;
  } else {
    entries_[slot].id = id;
  }
  if (id >= by_id_.size()) by_id_.resize(std::size_t{id} + 1, kFree);
  by_id_[id] = slot;
}

TokenId Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return kNoToken;
  const std::uint32_t slot = slots_[slot_of(token)];
  return slot == kFree ? kNoToken : entries_[slot].id;
}

std::optional<std::string_view> Vocabulary::token(TokenId id) const {
  if (id >= by_id_.size() || by_id_[id] == kFree) return std::nullopt;
  return text(entries_[by_id_[id]]);
}

}  // namespace octavo::text
