#include "octavo/base/aligned_bytes.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace octavo {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

// From four huge pages on, whole ones are asked for: one fault in place of 512 when they are first
// written, and streams that read them meet the end of a page less often. The rest of the last page
// stays in small ones, so that no more memory is taken than was asked for.
AlignedBytes::AlignedBytes(std::size_t size) : size_(size) {
  if (size == 0) return;
  if (size > PTRDIFF_MAX) throw std::bad_alloc();  // rounded up it might become 0
  const bool is_large = size >= 4 * kHugePage;
  const std::size_t alignment = is_large ? kHugePage : kLine;
  void* p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  data_.reset(static_cast<std::uint8_t*>(p));
  if (is_large) ::madvise(p, size / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice: may fail
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
