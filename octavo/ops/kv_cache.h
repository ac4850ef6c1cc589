// Keys and values of one sequence, in the layout that products read (P2 of
// octavo/kernels/gemm/gemm.h), so that attention is two products with nothing converted on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/formats/format.h"
#include "octavo/ops/gemm.h"

namespace octavo::ops {

// Values are packed in pages of as many tokens: the width of a block of order C.
inline constexpr std::size_t kKvPage = 128;

// Sizes and format of a cache.
struct KvCacheShape {
  std::size_t layers, kv_heads, head_dim;
  std::size_t capacity;  // tokens
  Format format;  // bf16, f32, or e4m3fn with a scale per token, head, and of keys and values
};

// Bytes that a cache of this shape takes when it is full.
std::size_t kv_cache_bytes(const KvCacheShape& shape);

// Memory is reserved as a whole and touched as tokens come. Of a layer and head:
//   keys    a packed weight (n = token, k = channel), strips of 32 tokens one after another
//   values  for each page of 128 tokens a packed weight (n = channel, k = token of the page)
class KvCache {
 public:
  // ContractError: a format that is not one of the three, a size of 0, more than memory can hold.
  explicit KvCache(const KvCacheShape& shape);

  // As it was made.
  const KvCacheShape& shape() const { return shape_; }

  // Stores `count` tokens from `position` on: rows of (kv_heads * head_dim) f32, `stride` apart.
  // ContractError: beyond the layers or the capacity.
  void append(std::size_t layer, std::size_t position, std::size_t count, const float* keys,
              const float* values, std::size_t stride);

  // The packed weights above, in the format of the cache.
  const std::uint8_t* keys(std::size_t layer, std::size_t head) const;
  const std::uint8_t* values(std::size_t layer, std::size_t head, std::size_t page) const;

  // Whether a value of the page is NaN or infinite, or was before it was stored anew.
  bool has_non_finite_values(std::size_t layer, std::size_t head, std::size_t page) const {
    return has_non_finite_[head_index(layer, head) * (tokens_ / kKvPage) + page] != 0;
  }

  // The page with +0 for all of its tokens but those in [tokens.begin, tokens.end), counted from
  // its first: to `to`, value_page_bytes().
  void copy_values(std::size_t layer, std::size_t head, std::size_t page, const Range& tokens,
                   std::uint8_t* to) const;
  std::size_t value_page_bytes() const { return value_page_bytes_; }

  // (capacity rounded up to pages) f32, real = code * scale; null where codes need none.
  const float* key_scales(std::size_t layer, std::size_t head) const;
  const float* value_scales(std::size_t layer, std::size_t head) const;

 private:
  std::size_t head_index(std::size_t layer, std::size_t head) const {
    return layer * shape_.kv_heads + head;
  }

  KvCacheShape shape_;
  std::size_t tokens_;            // capacity in whole pages
  std::size_t key_head_bytes_;    // of one layer and head
  std::size_t value_page_bytes_;  // of one page of one layer and head
  AlignedBytes keys_, values_;
  std::vector<float> key_scales_, value_scales_;
  std::vector<std::uint8_t> has_non_finite_;  // by layer, head and page
};

}  // namespace octavo::ops
