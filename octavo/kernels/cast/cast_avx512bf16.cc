// cast with AVX-512: the pairs that carry weights and activations; all others are the reference's.
#include "octavo/kernels/cast/cast_lanes_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {
namespace {

bool is_float(Format format) {
  return format == Format::f32 || format == Format::bf16 || format == Format::f16;
}

void f32_to_bf16(const CastArgs& a) {
  const auto* src = static_cast<const float*>(a.src);
  auto* dst = static_cast<std::uint16_t*>(a.dst);
  for (std::size_t i = 0; i < a.count; i += 16) {
    const __mmask16 lanes = first_lanes16(a.count - i);
    const __m512 x = _mm512_maskz_loadu_ps(lanes, src + i);
    const __m512i sign =
        _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(x), 16), _mm512_set1_epi32(0x8000));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i bits =
        _mm512_mask_or_epi32(round_to_bf16(x), is_nan, sign, _mm512_set1_epi32(0x7FC0));
    _mm256_mask_storeu_epi16(dst + i, lanes, _mm512_cvtepi32_epi16(bits));
  }
}

void bf16_to_f32(const CastArgs& a) {
  auto* dst = static_cast<float*>(a.dst);
  for (std::size_t i = 0; i < a.count; i += 16) {
    const __mmask16 lanes = first_lanes16(a.count - i);
    const __m512 x = load_f32<Format::bf16>(a.src, i, lanes);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i sign =
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0x80000000)));
    const __m512i bits =
        _mm512_mask_or_epi32(_mm512_castps_si512(x), is_nan, sign, _mm512_set1_epi32(0x7FC00000));
    _mm512_mask_storeu_epi32(dst + i, lanes, bits);
  }
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
  const bool plain_codes = a.src_format == Format::e4m3fn || a.src_format == Format::e4m3fnuz ||
                           a.src_format == Format::e5m2fnuz ||
                           (a.src_format == Format::e5m2 && special);
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

}  // namespace octavo::kernels::avx512bf16
