#include "octavo/base/aligned_bytes.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace octavo {

AlignedBytes::AlignedBytes(std::size_t size) : size_(size) {
  if (size == 0) return;
  constexpr std::size_t kLine = 64;
  if (size > PTRDIFF_MAX) throw std::bad_alloc();  // rounded up it might become 0
  auto* p =
      static_cast<std::uint8_t*>(std::aligned_alloc(kLine, (size + kLine - 1) / kLine * kLine));
  if (p == nullptr) throw std::bad_alloc();
  data_.reset(p);
}

AlignedBytes::AlignedBytes(AlignedBytes&& other) noexcept
    : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}

AlignedBytes& AlignedBytes::operator=(AlignedBytes&& other) noexcept {
  data_ = std::move(other.data_);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void AlignedBytes::Free::operator()(std::uint8_t* p) const { std::free(p); }

}  // namespace octavo
