// cast with AVX2: the pairs that carry weights and activations; all others are the reference's.
#include "octavo/kernels/cast/cast_lanes_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

bool is_float(Format format) {
  return format == Format::f32 || format == Format::bf16 || format == Format::f16;
}

void f32_to_bf16(const CastArgs& a) {
  const auto* src = static_cast<const float*>(a.src);
  auto* dst = static_cast<std::uint16_t*>(a.dst);
  std::size_t i = 0;
  for (; i + 16 <= a.count; i += 16) {
    store_256(dst + i,
              pack_words(round_to_bf16(_mm256_loadu_ps(src + i)),
                         round_to_bf16(_mm256_loadu_ps(src + i + 8))),
              false);
  }
  generic::cast({a.src_format, src + i, a.dst_format, dst + i, a.count - i, a.overflow});
}

void bf16_to_f32(const CastArgs& a) {
  const auto* src = static_cast<const std::uint16_t*>(a.src);
  auto* dst = static_cast<float*>(a.dst);
  std::size_t i = 0;
  for (; i + 8 <= a.count; i += 8) {
    _mm256_storeu_ps(dst + i, canonical_nan(load_f32<Format::bf16>(src, i)));
  }
  generic::cast({a.src_format, src + i, a.dst_format, dst + i, a.count - i, a.overflow});
}

// All their values are exact in every destination, so this is a dequantization with scale 1.
void codes_to_float(const CastArgs& a) {
  const float one = 1.0f;
  DequantizeCounts counts = {};
  block_dequantize({a.src_format, static_cast<const std::uint8_t*>(a.src), a.count, 1, a.count,
                    a.count, &one, a.dst_format, a.dst, a.count, false, &counts, false});
}

}  // namespace

void cast(const CastArgs& a) {
  if (a.count == 0) return;
  const bool special = a.overflow == Overflow::special;
  const bool plain_codes =
      a.src_format == Format::e4m3fn || (a.src_format == Format::e5m2 && special);
  const bool to_codes = a.dst_format == Format::e4m3fn || a.dst_format == Format::e5m2;
  if (is_float(a.src_format) && to_codes) {
    cast_to_codes(a);
  } else if (a.src_format == Format::f32 && a.dst_format == Format::bf16 && special) {
    f32_to_bf16(a);
  } else if (a.src_format == Format::bf16 && a.dst_format == Format::f32 && special) {
    bf16_to_f32(a);
  } else if (plain_codes && is_float(a.dst_format)) {
    codes_to_float(a);
  } else {
    generic::cast(a);
  }
}

}  // namespace octavo::kernels::avx2
