#include "octavo/nn/arena.h"

#include <algorithm>

#include "octavo/base/ceil_div.h"

namespace octavo::nn {

std::uint8_t* Arena::bytes(std::size_t count) {
  constexpr std::size_t kLine = 64, kLeast = std::size_t{1} << 16;
  const std::size_t size = ceil_div(count, kLine) * kLine;
  while (at_.block < blocks_.size() && blocks_[at_.block].size() - at_.used < size) {
    at_ = {at_.block + 1, 0};
  }
  if (at_.block == blocks_.size()) blocks_.emplace_back(std::max({size, reserved(), kLeast}));
  std::uint8_t* piece = blocks_[at_.block].data() + at_.used;
  at_.used += size;
  return piece;
}

void Arena::reset() {
  if (blocks_.size() > 1) {
    const std::size_t all = reserved();
    blocks_.clear();
    blocks_.emplace_back(all);
  }
  at_ = {0, 0};
}

std::size_t Arena::reserved() const {
  std::size_t all = 0;
  for (const AlignedBytes& block : blocks_) all += block.size();
  return all;
}

}  // namespace octavo::nn
