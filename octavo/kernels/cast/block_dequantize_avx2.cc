// block_dequantize with AVX2: e4m3fn and e5m2 by way of the half-precision conversion, packed
// e2m1fn by a table of 16 products per block. The fnuz formats, and blocks whose scale makes a
// finite code over- or underflow, are the reference's. 128x128 to bf16, one thread of a 2-core
// Intel Emerald Rapids VM, memory to memory: 20 % of the stream roof, e2m1fn 22.
#include "octavo/kernels/cast/cast_lanes_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

// 8 values from 8 bytes. vcvtph2ps takes subnormals at full speed, whatever the rounding mode and
// flags.
template <Format From>
__m256 decode8(__m128i codes) {
  if constexpr (From == Format::e5m2) {
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(codes), 8));
  } else {
    // Shifted into half-precision fields, e4m3fn is 2^-8 of its value, and NaN is 480.
    const __m128i fields = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7),
                                         _mm_set1_epi16(static_cast<short>(0xBF80)));
    const __m256 values = _mm256_mul_ps(_mm256_cvtph_ps(fields), _mm256_set1_ps(256.0f));
    const __m256 magnitudes = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), values);
    const __m256 is_nan = _mm256_cmp_ps(magnitudes, _mm256_set1_ps(480.0f), _CMP_EQ_OQ);
    return _mm256_or_ps(values,
                        _mm256_and_ps(is_nan, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000))));
  }
}

template <Format To>
void store16(void* dst, __m256 first, __m256 second, bool past_caches) {
  if constexpr (To == Format::f32) {
    store_256(dst, _mm256_castps_si256(canonical_nan(first)), past_caches);
    store_256(static_cast<float*>(dst) + 8, _mm256_castps_si256(canonical_nan(second)),
              past_caches);
  } else if constexpr (To == Format::bf16) {
    store_256(dst, pack_words(round_to_bf16(first), round_to_bf16(second)), past_caches);
  } else {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    store_256(dst,
              _mm256_set_m128i(_mm256_cvtps_ph(canonical_nan(second), kNearest),
                               _mm256_cvtps_ph(canonical_nan(first), kNearest)),
              past_caches);
  }
}

std::uint64_t count_nan(__m256 x) {
  return static_cast<std::uint64_t>(
      _mm_popcnt_u32(static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(nan_lanes(x))))));
}

// 16 codes of a block whose scale keeps all codes; returns how many are NaN. value * |scale| and
// then scale's sign by xor, so that NaN gets it too.
template <Format From, Format To>
std::uint64_t multiply16(const std::uint8_t* codes, __m256 scale, void* dst, bool past_caches) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m256 first = decode8<From>(bytes);
  const __m256 second = decode8<From>(_mm_srli_si128(bytes, 8));
  const __m256 sign = _mm256_and_ps(scale, _mm256_set1_ps(-0.0f));
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), scale);
  store16<To>(dst, _mm256_xor_ps(_mm256_mul_ps(first, magnitude), sign),
              _mm256_xor_ps(_mm256_mul_ps(second, magnitude), sign), past_caches);
  return count_nan(first) + count_nan(second);
}

template <Format From, Format To>
void multiply_run(const BlockDequantizeArgs& a, const std::uint8_t* codes, std::size_t n,
                  float scale, void* dst) {
  constexpr std::size_t kSize = To == Format::f32 ? 4 : 2;
  char* out = static_cast<char*>(dst);
  const __m256 scales = _mm256_set1_ps(scale);
  const bool past_caches = a.stream && is_aligned(dst, 32);
  std::uint64_t nan = 0;
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16)
    nan += multiply16<From, To>(codes + i, scales, out + i * kSize, past_caches);
  if (i < n) {
    alignas(32) std::uint8_t in[16] = {};
    alignas(32) char results[16 * kSize];
    copy_bytes(in, codes + i, n - i);
    nan += multiply16<From, To>(in, scales, results, false);
    copy_bytes(out + i * kSize, results, (n - i) * kSize);
  }
  a.counts->nan += nan;
}

// The 16 products of a block: magnitudes for f32, and the bytes of all results for 16-bit
// destinations.
template <Format To>
struct E2m1fnTable {
  __m256 magnitudes;  // |value| * scale, with the sign of scale
  __m128i low, high;
};

template <Format To>
E2m1fnTable<To> e2m1fn_table(float scale) {
  E2m1fnTable<To> table;
  const __m256 scales = _mm256_set1_ps(scale);
  table.magnitudes = _mm256_mul_ps(_mm256_loadu_ps(kE2m1fnValues), scales);
  alignas(32) std::uint16_t words[16];
  if constexpr (To != Format::f32) {
    store16<To>(words, table.magnitudes, _mm256_mul_ps(_mm256_loadu_ps(kE2m1fnValues + 8), scales),
                false);
    const __m128i* halves = reinterpret_cast<const __m128i*>(words);
    const __m128i low_bytes = _mm_set1_epi16(0xFF);
    table.low =
        _mm_packus_epi16(_mm_and_si128(halves[0], low_bytes), _mm_and_si128(halves[1], low_bytes));
    table.high = _mm_packus_epi16(_mm_srli_epi16(halves[0], 8), _mm_srli_epi16(halves[1], 8));
  }
  return table;
}

// 16 elements from their indices, one a byte.
template <Format To>
void look_up16(const E2m1fnTable<To>& table, __m128i indices, void* dst) {
  if constexpr (To == Format::f32) {
    for (std::size_t k = 0; k < 2; ++k) {
      const __m256i index = _mm256_cvtepu8_epi32(k == 0 ? indices : _mm_srli_si128(indices, 8));
      const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(index, _mm256_set1_epi32(8)), 28);
      const __m256 magnitude =
          _mm256_permutevar8x32_ps(table.magnitudes, index);  // the low three bits choose
      _mm256_storeu_ps(static_cast<float*>(dst) + 8 * k,
                       _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign)));
    }
  } else {
    const __m128i low = _mm_shuffle_epi8(table.low, indices);
    const __m128i high = _mm_shuffle_epi8(table.high, indices);
    auto* out = static_cast<__m128i*>(dst);
    _mm_storeu_si128(out, _mm_unpacklo_epi8(low, high));
    _mm_storeu_si128(out + 1, _mm_unpackhi_epi8(low, high));
  }
}

// 32 elements from 16 bytes.
template <Format To>
void look_up32(const E2m1fnTable<To>& table, const std::uint8_t* codes, char* dst) {
  constexpr std::size_t kSize = To == Format::f32 ? 4 : 2;
  const __m128i nibble = _mm_set1_epi8(0x0F);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  const __m128i low = _mm_and_si128(bytes, nibble);
  const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble);
  look_up16<To>(table, _mm_unpacklo_epi8(low, high), dst);
  look_up16<To>(table, _mm_unpackhi_epi8(low, high), dst + 16 * kSize);
}

template <Format To>
void e2m1fn_run(const std::uint8_t* codes, std::size_t n, float scale, char* dst) {
  constexpr std::size_t kSize = To == Format::f32 ? 4 : 2;
  const E2m1fnTable<To> table = e2m1fn_table<To>(scale);
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) look_up32<To>(table, codes + i / 2, dst + i * kSize);
  if (i == n) return;
  std::uint8_t in[16] = {};
  char out[32 * kSize];
  copy_bytes(in, codes + i / 2, (n - i) / 2);
  look_up32<To>(table, in, out);
  copy_bytes(dst + i * kSize, out, (n - i) * kSize);
}

template <Format To>
void dequantize_to(const BlockDequantizeArgs& a) {
  constexpr std::size_t kSize = To == Format::f32 ? 4 : 2;
  const bool packed = a.code_format == Format::e2m1fn;
  for (std::size_t r = 0; r < a.rows; ++r) {
    const std::uint8_t* row = a.codes + r * a.codes_stride;
    char* dst = static_cast<char*>(a.dst) + r * a.dst_stride * kSize;
    if (a.stream) {
      prefetch_bytes(a.codes, (r + kRowsAhead) * a.codes_stride, packed ? a.cols / 2 : a.cols);
    }
    for (std::size_t c = 0, b = 0; c < a.cols; c += a.block_cols, ++b) {
      const std::size_t n = a.cols - c < a.block_cols ? a.cols - c : a.block_cols;
      const std::uint8_t* codes = row + (packed ? c / 2 : c);
      const float scale = a.scale[b];
      if (!keeps_all_codes(a.code_format, scale, To)) {
        generic::block_dequantize({a.code_format, codes, a.codes_stride, 1, n, n, &scale,
                                   a.dst_format, dst + c * kSize, a.dst_stride, a.saturate,
                                   a.counts, false});
      } else if (packed) {
        e2m1fn_run<To>(codes, n, scale, dst + c * kSize);
      } else if (a.code_format == Format::e5m2) {
        multiply_run<Format::e5m2, To>(a, codes, n, scale, dst + c * kSize);
      } else {
        multiply_run<Format::e4m3fn, To>(a, codes, n, scale, dst + c * kSize);
      }
    }
  }
  if (a.stream) _mm_sfence();
}

}  // namespace

void block_dequantize(const BlockDequantizeArgs& a) {
  if (a.code_format == Format::e4m3fnuz || a.code_format == Format::e5m2fnuz)
    return generic::block_dequantize(a);
  switch (a.dst_format) {
    case Format::f32:
      return dequantize_to<Format::f32>(a);
    case Format::bf16:
      return dequantize_to<Format::bf16>(a);
    default:
      return dequantize_to<Format::f16>(a);
  }
}

}  // namespace octavo::kernels::avx2
