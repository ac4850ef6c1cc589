// A hash table from pairs of 32-bit numbers to pairs of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace octavo::text {

class PairTable {
 public:
  struct Value {
    std::uint32_t first;
    std::uint32_t second;
  };

  // Room for `count` pairs.
  explicit PairTable(std::size_t count = 0) {
    while (slots_.size() < 2 * count + 2) grow();
  }

  // A pair that is there already gets the new value.
  void set(std::uint32_t a, std::uint32_t b, Value value) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[slot_of(a, b)];
    if (!slot.used) ++count_;
    slot = {a, b, value, true};
  }

  const Value* find(std::uint32_t a, std::uint32_t b) const {
    const Slot& slot = slots_[slot_of(a, b)];
    return slot.used ? &slot.value : nullptr;
  }

 private:
  struct Slot {
    std::uint32_t a;
    std::uint32_t b;
    Value value;
    bool used;
  };

  // Where the pair is, or where it would be put.
  std::size_t slot_of(std::uint32_t a, std::uint32_t b) const {
    std::uint64_t hash = (std::uint64_t{a} << 32 | b) * 0x9E3779B97F4A7C15;
    hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93;
    std::size_t at = (hash ^ hash >> 32) & (slots_.size() - 1);
    while (slots_[at].used && (slots_[at].a != a || slots_[at].b != b))
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.used) slots_[slot_of(slot.a, slot.b)] = slot;
  }

  std::vector<Slot> slots_;  // a power of two, at most half of them used
  std::size_t count_ = 0;
};

}  // namespace octavo::text
