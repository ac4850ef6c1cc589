#include "octavo/ops/kv_cache.h"

#include <fmt/format.h>

#include <cstring>

#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/layout.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/quantize_activations_internal.h"

namespace octavo::ops {
namespace {

using kernels::packed_weight_offset;

double kv_cache_bytes_as_double(const KvCacheShape& shape) {
  return 2.0 * static_cast<double>(shape.layers) * static_cast<double>(shape.kv_heads) *
         static_cast<double>(shape.head_dim) * static_cast<double>(shape.capacity) *
         static_cast<double>(bytes_per_element(shape.format));
}

std::size_t whole_pages(std::size_t tokens) { return ceil_div(tokens, kKvPage) * kKvPage; }

// One head of one token in the cache's format; returns the scale of its codes.
float convert(Format format, const float* src, std::size_t count, std::uint8_t* dst) {
  const kernels::CastKernels& cast = kernels::cast_kernels();
  if (format != Format::e4m3fn) {
    cast.cast({Format::f32, src, format, dst, count, Overflow::special});
    return 1.0f;
  }
  float scale = 0;
  quantize_row(cast, src, count, count, dst, &scale);
  return scale;
}

// Whether all codes are numbers. In these formats what is not finite lies above the largest one.
bool all_finite(Format format, const std::uint8_t* codes, std::size_t count) {
  const FormatTraits& f = traits(format);
  bool finite = true;
  kernels::for_element_bytes(bytes_per_element(format), [&](auto bytes) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t code = 0;
      std::memcpy(&code, codes + i * bytes, bytes);
      finite &= (code & f.magnitude_bits()) <= f.largest_code;
    }
  });
  return finite;
}

template <std::size_t element>
void store_head(std::uint8_t* keys, std::uint8_t* page, const std::uint8_t* key,
                const std::uint8_t* value, std::size_t token, std::size_t head_dim) {
  const std::size_t pairs = ceil_div(head_dim, 2);
  for (std::size_t c = 0; c < head_dim; ++c) {
    std::memcpy(keys + packed_weight_offset<element>(token, c, pairs) * element, key + c * element,
                element);
    std::memcpy(page + packed_weight_offset<element>(c, token % kKvPage, kKvPage / 2) * element,
                value + c * element, element);
  }
  // An odd head_dim is filled up to pairs: the last odd k of each token is 0.
  if (head_dim % 2 != 0) {
    std::memset(keys + packed_weight_offset<element>(token, head_dim, pairs) * element, 0, element);
  }
}

}  // namespace

std::size_t kv_cache_bytes(const KvCacheShape& shape) {
  const std::size_t tokens = whole_pages(shape.capacity), heads = shape.layers * shape.kv_heads;
  const std::size_t scales = shape.format == Format::e4m3fn ? 2 * sizeof(float) : 0;
  return heads *
         (kernels::packed_weight_bytes(shape.format, tokens, shape.head_dim) +
          tokens / kKvPage * kernels::packed_weight_bytes(shape.format, shape.head_dim, kKvPage) +
          tokens * scales);
}

KvCache::KvCache(const KvCacheShape& shape) : shape_(shape), tokens_(whole_pages(shape.capacity)) {
  const bool known =
      shape.format == Format::bf16 || shape.format == Format::f32 || shape.format == Format::e4m3fn;
  // No sum or product below overflows.
  constexpr std::size_t kMostHeads = std::size_t{1} << 20, kMostTokens = std::size_t{1} << 28;
  const bool small = shape.layers <= kMostHeads && shape.kv_heads <= kMostHeads &&
                     shape.head_dim <= kMostHeads && shape.capacity <= kMostTokens &&
                     kv_cache_bytes_as_double(shape) < 0x1p56;
  if (!known || !small || shape.layers == 0 || shape.kv_heads == 0 || shape.head_dim == 0 ||
      shape.capacity == 0) {
    throw ContractError(fmt::format(
        "KvCache: given {} layers, {} heads of {}, {} tokens in {}, expected at least one of each, "
        "in bf16, f32 or e4m3fn, and no more than memory can hold",
        shape.layers, shape.kv_heads, shape.head_dim, shape.capacity, format_name(shape.format)));
  }
  const std::size_t heads = shape.layers * shape.kv_heads;
  key_head_bytes_ = kernels::packed_weight_bytes(shape.format, tokens_, shape.head_dim);
  value_page_bytes_ = kernels::packed_weight_bytes(shape.format, shape.head_dim, kKvPage);
  keys_ = AlignedBytes(heads * key_head_bytes_);
  values_ = AlignedBytes(heads * tokens_ / kKvPage * value_page_bytes_);
  has_non_finite_.resize(heads * tokens_ / kKvPage);
  if (shape.format == Format::e4m3fn) {
    key_scales_.resize(heads * tokens_);
    value_scales_.resize(heads * tokens_);
  }
}

void KvCache::append(std::size_t layer, std::size_t position, std::size_t count, const float* keys,
                     const float* values, std::size_t stride) {
  if (layer >= shape_.layers || position > shape_.capacity || count > shape_.capacity - position) {
    throw ContractError(
        fmt::format("KvCache::append: given layer {}, tokens {} to {}, expected layers below {}, "
                    "tokens up to {}",
                    layer, position, position + count, shape_.layers, shape_.capacity));
  }
  const DefaultFloatMode mode;
  const std::size_t dim = shape_.head_dim, element = bytes_per_element(shape_.format);
  thread_local std::vector<std::uint8_t> codes;
  codes.resize(2 * dim * element);
  std::uint8_t* key = codes.data();
  std::uint8_t* value = key + dim * element;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t token = position + i;
    for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
      const std::size_t at = head_index(layer, head);
      const float key_scale = convert(shape_.format, keys + i * stride + head * dim, dim, key);
      const float value_scale =
          convert(shape_.format, values + i * stride + head * dim, dim, value);
      std::uint8_t* k = keys_.data() + at * key_head_bytes_;
      const std::size_t page_index = at * (tokens_ / kKvPage) + token / kKvPage;
      std::uint8_t* page = values_.data() + page_index * value_page_bytes_;
      // Products go over whole pages: what is not stored yet is multiplied by 0 and must be finite.
      if (token % kKvPage == 0) {
        std::memset(page, 0, value_page_bytes_);
        has_non_finite_[page_index] = 0;
      }
      if (!all_finite(shape_.format, value, dim)) has_non_finite_[page_index] = 1;
      kernels::for_element_bytes(
          element, [&](auto bytes) { store_head<bytes>(k, page, key, value, token, dim); });
      if (shape_.format == Format::e4m3fn) {
        key_scales_[at * tokens_ + token] = key_scale;
        value_scales_[at * tokens_ + token] = value_scale;
      }
    }
  }
}

const std::uint8_t* KvCache::keys(std::size_t layer, std::size_t head) const {
  return keys_.data() + head_index(layer, head) * key_head_bytes_;
}

const std::uint8_t* KvCache::values(std::size_t layer, std::size_t head, std::size_t page) const {
  return values_.data() +
         (head_index(layer, head) * (tokens_ / kKvPage) + page) * value_page_bytes_;
}

void KvCache::copy_values(std::size_t layer, std::size_t head, std::size_t page,
                          const Range& tokens, std::uint8_t* to) const {
  const std::uint8_t* from = values(layer, head, page);
  std::memset(to, 0, value_page_bytes_);
  kernels::for_element_bytes(bytes_per_element(shape_.format), [&](auto bytes) {
    for (std::size_t c = 0; c < shape_.head_dim; ++c) {
      for (std::size_t token = tokens.begin; token < tokens.end; ++token) {
        const std::size_t at = packed_weight_offset<bytes>(c, token, kKvPage / 2) * bytes;
        std::memcpy(to + at, from + at, bytes);
      }
    }
  });
}

const float* KvCache::key_scales(std::size_t layer, std::size_t head) const {
  return key_scales_.empty() ? nullptr : key_scales_.data() + head_index(layer, head) * tokens_;
}

const float* KvCache::value_scales(std::size_t layer, std::size_t head) const {
  return value_scales_.empty() ? nullptr : value_scales_.data() + head_index(layer, head) * tokens_;
}

}  // namespace octavo::ops
