// block_dequantize with AVX-512.
//
// Large blocks, 16-bit destination: the 128 products of the non-negative codes with the scale,
// rounded once per block, are a table of 128 low and 128 high bytes, four registers, and two byte
// permutes look up 64 codes; the sign is xored in. Small blocks and f32: 16 lanes at a time,
// multiplied. Packed e2m1fn: the 16 products of a block are one register. 128x128 to bf16, one
// thread of a 2-core Intel Emerald Rapids VM, memory to memory: 93 % of the stream roof, e2m1fn
// 1x32 27.
#include "octavo/kernels/cast/cast_lanes_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {
namespace {

constexpr std::size_t kTableBlocks = 8;         // blocks whose tables are held at a time
constexpr std::size_t kTableMinElements = 512;  // of a block, for a table to pay

const DecodeTable& decode_table(Format format) {
  switch (format) {
    case Format::e5m2:
      return kDecodeTable_e5m2;
    case Format::e4m3fnuz:
      return kDecodeTable_e4m3fnuz;
    case Format::e5m2fnuz:
      return kDecodeTable_e5m2fnuz;
    default:
      return kDecodeTable_e4m3fn;
  }
}

bool is_fnuz(Format format) { return format == Format::e4m3fnuz || format == Format::e5m2fnuz; }

template <Format To>
struct Bits;
template <>
struct Bits<Format::f32> {
  static constexpr int kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000, kNan = 0x7FC00000;
};
template <>
struct Bits<Format::bf16> {
  static constexpr int kMagnitude = 0x7FFF, kInfinity = 0x7F80, kNan = 0x7FC0;
};
template <>
struct Bits<Format::f16> {
  static constexpr int kMagnitude = 0x7FFF, kInfinity = 0x7C00, kNan = 0x7E00;
};

// The sign bit of each f32 lane, at the place of To's sign.
template <Format To>
__m512i signs_of(__m512i f32_bits) {
  const __m512i sign = _mm512_and_si512(f32_bits, _mm512_set1_epi32(static_cast<int>(0x80000000)));
  return To == Format::f32 ? sign : _mm512_srli_epi32(sign, 16);
}

struct Rounded {
  __m512i bits;  // To's, one a lane
  __mmask16 overflow;
  __mmask16 underflow;
};

// What a block's products are made with.
struct BlockScale {
  __m512 scale;
  bool saturate;
  bool keeps_all_codes;  // no finite code over- or underflows
};

template <Format To>
BlockScale block_scale(const BlockDequantizeArgs& a, float scale) {
  return {_mm512_set1_ps(scale), a.saturate, keeps_all_codes(a.code_format, scale, To)};
}

// values * scale, rounded to To. `codes` tells which lanes count.
template <Format To>
Rounded multiply_and_round(__m512 values, const BlockScale& s, __mmask16 codes) {
  using B = Bits<To>;
  const __m512 product = _mm512_mul_ps(values, s.scale);
  __m512i bits;
  if constexpr (To == Format::f32) {
    bits = _mm512_castps_si512(product);
  } else if constexpr (To == Format::bf16) {
    bits = round_to_bf16(product);
  } else {
    bits = _mm512_cvtepu16_epi32(
        _mm512_cvtps_ph(product, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  const __mmask16 is_nan = _mm512_cmp_ps_mask(product, product, _CMP_UNORD_Q);
  const __m512i sign =
      signs_of<To>(_mm512_xor_si512(_mm512_castps_si512(values), _mm512_castps_si512(s.scale)));
  bits = _mm512_mask_or_epi32(bits, is_nan, sign, _mm512_set1_epi32(B::kNan));
  if (s.keeps_all_codes) return {bits, 0, 0};

  constexpr int kNotFinite = 0x99;  // vfpclassps: NaN of both kinds, both infinities
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(B::kMagnitude));
  const __mmask16 infinite = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(B::kInfinity));
  const __mmask16 not_finite = static_cast<__mmask16>(_mm512_fpclass_ps_mask(values, kNotFinite) |
                                                      _mm512_fpclass_ps_mask(s.scale, kNotFinite));
  const auto overflow = static_cast<__mmask16>(codes & infinite & ~not_finite);
  if (s.saturate) {
    bits = _mm512_mask_or_epi32(bits, overflow, sign, _mm512_set1_epi32(B::kInfinity - 1));
  }
  const __mmask16 zero_value = _mm512_cmpeq_epi32_mask(
      _mm512_and_si512(_mm512_castps_si512(values), _mm512_set1_epi32(0x7FFFFFFF)),
      _mm512_setzero_si512());
  const __mmask16 zero = _mm512_testn_epi32_mask(magnitude, magnitude);
  return {bits, overflow, static_cast<__mmask16>(codes & zero & ~zero_value)};
}

template <Format To>
void store_lanes(void* row, std::size_t i, __mmask16 lanes, __m512i bits) {
  if constexpr (To == Format::f32) {
    _mm512_mask_storeu_epi32(static_cast<float*>(row) + i, lanes, bits);
  } else {
    _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(row) + i, lanes,
                             _mm512_cvtepi32_epi16(bits));
  }
}

std::uint64_t count(std::uint64_t mask) { return static_cast<std::uint64_t>(_mm_popcnt_u64(mask)); }

// ---- 16 lanes at a time
// -----------------------------------------------------------------------------------------

template <Format To>
void multiply_run(const BlockDequantizeArgs& a, const std::uint8_t* codes, std::size_t n,
                  float scale, void* dst) {
  const DecodeTable& table = decode_table(a.code_format);
  const bool fnuz = is_fnuz(a.code_format);
  const BlockScale block = block_scale<To>(a, scale);
  std::uint64_t overflow = 0, underflow = 0, nan = 0;
  for (std::size_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes16(n - i);
    const __m512i code = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lanes, codes + i));
    const __m512i index = _mm512_and_si512(code, _mm512_set1_epi32(0x7F));
    const __m512i sign = _mm512_slli_epi32(_mm512_xor_si512(code, index), 24);
    __m512 values =
        _mm512_xor_ps(_mm512_i32gather_ps(index, table.value, 4), _mm512_castsi512_ps(sign));
    if (fnuz) {
      const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(0x80));
      values = _mm512_castsi512_ps(_mm512_mask_mov_epi32(
          _mm512_castps_si512(values), is_nan, _mm512_set1_epi32(static_cast<int>(0xFFC00000))));
    }
    const Rounded rounded = multiply_and_round<To>(values, block, lanes);
    store_lanes<To>(dst, i, lanes, rounded.bits);
    overflow += count(rounded.overflow);
    underflow += count(rounded.underflow);
    nan += count(_mm512_mask_cmp_ps_mask(lanes, values, values, _CMP_UNORD_Q));
  }
  a.counts->overflow += overflow;
  a.counts->underflow += underflow;
  a.counts->nan += nan;
}

// ---- a table of products per block
// ------------------------------------------------------------------------------

struct ProductTable {
  __m512i low[2], high[2];         // bytes of the results of codes 0 to 63 and 64 to 127
  std::uint8_t nan_low, nan_high;  // of fnuz code 0x80
  // Products grow with the code: 1 .. underflow_codes become zero, first_overflow .. finite_codes -
  // 1 overflow.
  std::uint8_t underflow_codes;
  std::uint8_t first_overflow;
  bool rounds_all;  // neither of the two happens
};

alignas(64) constexpr std::uint8_t kEvenBytes[64] = {
    0,  2,  4,   6,   8,   10,  12,  14,  16,  18,  20,  22,  24,  26,  28,  30,
    32, 34, 36,  38,  40,  42,  44,  46,  48,  50,  52,  54,  56,  58,  60,  62,
    64, 66, 68,  70,  72,  74,  76,  78,  80,  82,  84,  86,  88,  90,  92,  94,
    96, 98, 100, 102, 104, 106, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126};

template <Format To>
ProductTable product_table(const DecodeTable& codes, const BlockScale& scale) {
  alignas(64) std::uint16_t products[128];
  std::uint64_t overflows = 0, underflows = 0;
  for (int i = 0; i < 128; i += 16) {
    const Rounded rounded = multiply_and_round<To>(_mm512_loadu_ps(codes.value + i), scale, 0xFFFF);
    _mm256_store_si256(reinterpret_cast<__m256i*>(products + i),
                       _mm512_cvtepi32_epi16(rounded.bits));
    overflows += count(rounded.overflow);
    underflows += count(rounded.underflow);
  }
  ProductTable table;
  const __m512i even = _mm512_load_si512(kEvenBytes);
  const __m512i odd = _mm512_add_epi8(even, _mm512_set1_epi8(1));
  for (int half = 0; half < 2; ++half) {
    const __m512i first = _mm512_load_si512(products + 64 * half);
    const __m512i second = _mm512_load_si512(products + 64 * half + 32);
    table.low[half] = _mm512_permutex2var_epi8(first, even, second);
    table.high[half] = _mm512_permutex2var_epi8(first, odd, second);
  }
  const bool negative_scale = _mm512_movepi32_mask(_mm512_castps_si512(scale.scale)) != 0;
  const int nan = Bits<To>::kNan | (negative_scale ? 0 : 0x8000);  // the code counts as negative
  table.nan_low = static_cast<std::uint8_t>(nan & 0xFF);
  table.nan_high = static_cast<std::uint8_t>(nan >> 8);
  table.underflow_codes = static_cast<std::uint8_t>(underflows);
  table.first_overflow =
      static_cast<std::uint8_t>(static_cast<std::uint64_t>(codes.finite_codes) - overflows);
  table.rounds_all = overflows + underflows == 0;
  return table;
}

// An infinite code with scale zero gives NaN, and codes above all underflow, so ranges of
// magnitudes tell all.
void count_out_of_range(const ProductTable& table, __m512i magnitudes, int finite_codes,
                        DequantizeCounts& counts) {
  const __mmask64 nonzero = _mm512_test_epi8_mask(magnitudes, magnitudes);
  const __mmask64 small = _mm512_cmple_epu8_mask(
      magnitudes, _mm512_set1_epi8(static_cast<char>(table.underflow_codes)));
  const __mmask64 large =
      _mm512_cmpge_epu8_mask(magnitudes, _mm512_set1_epi8(static_cast<char>(table.first_overflow)));
  const __mmask64 finite =
      _mm512_cmplt_epu8_mask(magnitudes, _mm512_set1_epi8(static_cast<char>(finite_codes)));
  counts.underflow += count(nonzero & small);
  counts.overflow += count(nonzero & large & finite);
}

struct Words64 {
  __m512i first, second;
  std::uint64_t nan_codes;
};

// The results of 64 codes. Quadwords are spread first, so that the unpacks, which work within
// 128-bit lanes, give natural order.
template <bool kFnuz>
Words64 look_up(const ProductTable& table, __m512i codes, __m512i nan_code) {
  const __m512i sign = _mm512_set1_epi8(-0x80);
  const __m512i spread = _mm512_permutexvar_epi64(_mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0), codes);
  __m512i low = _mm512_permutex2var_epi8(table.low[0], spread, table.low[1]);
  __m512i high = _mm512_permutex2var_epi8(table.high[0], spread, table.high[1]);
  high = _mm512_ternarylogic_epi32(high, spread, sign, 0x78);  // first ^ (second & third)
  __mmask64 is_nan;
  if constexpr (kFnuz) {
    is_nan = _mm512_cmpeq_epi8_mask(spread, sign);
    low = _mm512_mask_mov_epi8(low, is_nan, _mm512_set1_epi8(static_cast<char>(table.nan_low)));
    high = _mm512_mask_mov_epi8(high, is_nan, _mm512_set1_epi8(static_cast<char>(table.nan_high)));
  } else {
    is_nan = _mm512_cmpge_epu8_mask(_mm512_andnot_si512(sign, codes), nan_code);
  }
  return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high), count(is_nan)};
}

template <bool kFnuz>
void look_up_run(const BlockDequantizeArgs& a, const ProductTable& table, const std::uint8_t* codes,
                 std::size_t n, std::uint16_t* dst) {
  const DecodeTable& decoded = decode_table(a.code_format);
  const __m512i nan_code = _mm512_set1_epi8(static_cast<char>(decoded.nan_code));
  const bool past_caches = a.stream && is_aligned(dst, 64);
  std::uint64_t nan = 0;
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    const __m512i code = _mm512_loadu_si512(codes + i);
    const Words64 words = look_up<kFnuz>(table, code, nan_code);
    nan += words.nan_codes;
    if (past_caches) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(dst + i), words.first);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(dst + i + 32), words.second);
    } else {
      _mm512_storeu_si512(dst + i, words.first);
      _mm512_storeu_si512(dst + i + 32, words.second);
    }
  }
  if (i < n) {
    const Words64 words =
        look_up<kFnuz>(table, _mm512_maskz_loadu_epi8(first_lanes64(n - i), codes + i), nan_code);
    nan += words.nan_codes;  // absent lanes are code 0
    _mm512_mask_storeu_epi16(dst + i, first_lanes32(n - i), words.first);
    if (n - i > 32) _mm512_mask_storeu_epi16(dst + i + 32, first_lanes32(n - i - 32), words.second);
  }
  a.counts->nan += nan;
  if (table.rounds_all) return;
  for (i = 0; i < n; i += 64) {
    const __m512i code = _mm512_maskz_loadu_epi8(first_lanes64(n - i), codes + i);
    count_out_of_range(table, _mm512_and_si512(code, _mm512_set1_epi8(0x7F)), decoded.finite_codes,
                       *a.counts);
  }
}

template <Format To>
void dequantize_by_tables(const BlockDequantizeArgs& a) {
  ProductTable tables[kTableBlocks];
  const std::size_t group_cols = kTableBlocks * a.block_cols;
  for (std::size_t first = 0; first < a.cols; first += group_cols) {
    const std::size_t cols = a.cols - first < group_cols ? a.cols - first : group_cols;
    for (std::size_t c = 0, b = 0; c < cols; c += a.block_cols, ++b) {
      const BlockScale scale = block_scale<To>(a, a.scale[first / a.block_cols + b]);
      tables[b] = product_table<To>(decode_table(a.code_format), scale);
    }
    for (std::size_t r = 0; r < a.rows; ++r) {
      const std::uint8_t* codes = a.codes + r * a.codes_stride + first;
      auto* dst = static_cast<std::uint16_t*>(a.dst) + r * a.dst_stride + first;
      if (a.stream) {
        prefetch_bytes(a.codes, (r + kRowsAhead) * a.codes_stride + first, cols);
      }
      for (std::size_t c = 0, b = 0; c < cols; c += a.block_cols, ++b) {
        const std::size_t n = cols - c < a.block_cols ? cols - c : a.block_cols;
        if (is_fnuz(a.code_format)) {
          look_up_run<true>(a, tables[b], codes + c, n, dst + c);
        } else {
          look_up_run<false>(a, tables[b], codes + c, n, dst + c);
        }
      }
    }
  }
}

template <Format To>
void dequantize_by_products(const BlockDequantizeArgs& a) {
  constexpr std::size_t kSize = To == Format::f32 ? 4 : 2;
  for (std::size_t r = 0; r < a.rows; ++r) {
    const std::uint8_t* codes = a.codes + r * a.codes_stride;
    char* dst = static_cast<char*>(a.dst) + r * a.dst_stride * kSize;
    if (a.stream) {
      prefetch_bytes(a.codes, (r + kRowsAhead) * a.codes_stride, a.cols);
    }
    for (std::size_t c = 0, b = 0; c < a.cols; c += a.block_cols, ++b) {
      const std::size_t n = a.cols - c < a.block_cols ? a.cols - c : a.block_cols;
      multiply_run<To>(a, codes + c, n, a.scale[b], dst + c * kSize);
    }
  }
}

// ---- packed e2m1fn
// ----------------------------------------------------------------------------------------------

// n elements, n even; 32 at a time from 16 bytes.
template <Format To>
void e2m1fn_run(const BlockDequantizeArgs& a, const Rounded& products, const std::uint8_t* codes,
                std::size_t n, void* dst) {
  const __m512i low_nibbles = _mm512_set1_epi32(0x000F000F);
  const __m512i words = _mm512_castsi256_si512(_mm512_cvtepi32_epi16(products.bits));
  const bool past_caches = a.stream && is_aligned(dst, 64);
  for (std::size_t i = 0; i < n; i += 32) {
    const __mmask16 bytes = first_lanes16((n - i) / 2);
    const __m512i code = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(bytes, codes + i / 2));
    if constexpr (To == Format::f32) {
      const __m512i even =
          _mm512_permutexvar_epi32(code, products.bits);  // the low four bits choose
      const __m512i odd = _mm512_permutexvar_epi32(_mm512_srli_epi32(code, 4), products.bits);
      const __m512i order =
          _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
      const __m512i second_order = _mm512_add_epi32(order, _mm512_set1_epi32(8));
      auto* out = static_cast<float*>(dst) + i;
      _mm512_mask_storeu_epi32(out, first_lanes16(n - i),
                               _mm512_permutex2var_epi32(even, order, odd));
      if (n - i > 16) {
        _mm512_mask_storeu_epi32(out + 16, first_lanes16(n - i - 16),
                                 _mm512_permutex2var_epi32(even, second_order, odd));
      }
    } else {
      const __m512i index =
          _mm512_and_si512(_mm512_or_si512(code, _mm512_slli_epi32(code, 12)), low_nibbles);
      const __m512i results = _mm512_permutexvar_epi16(index, words);
      auto* out = static_cast<std::uint16_t*>(dst) + i;
      if (past_caches && n - i >= 32) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(out), results);
      } else {
        _mm512_mask_storeu_epi16(out, first_lanes32(n - i), results);
      }
    }
  }
}

void count_e2m1fn(const Rounded& products, const std::uint8_t* codes, std::size_t n,
                  DequantizeCounts& counts) {
  for (std::size_t i = 0; i < n; ++i) {
    const unsigned code = codes[i / 2] >> (i % 2 * 4) & 0xFu;
    counts.overflow += products.overflow >> code & 1u;
    counts.underflow += products.underflow >> code & 1u;
  }
}

template <Format To>
void dequantize_e2m1fn(const BlockDequantizeArgs& a) {
  constexpr std::size_t kSize = To == Format::f32 ? 4 : 2;
  const __m512 values = _mm512_loadu_ps(kE2m1fnValues);
  for (std::size_t r = 0; r < a.rows; ++r) {
    const std::uint8_t* row = a.codes + r * a.codes_stride;
    char* dst = static_cast<char*>(a.dst) + r * a.dst_stride * kSize;
    if (a.stream) {
      prefetch_bytes(a.codes, (r + kRowsAhead) * a.codes_stride, a.cols / 2);
    }
    for (std::size_t c = 0, b = 0; c < a.cols; c += a.block_cols, ++b) {
      const std::size_t n = a.cols - c < a.block_cols ? a.cols - c : a.block_cols;
      const Rounded products =
          multiply_and_round<To>(values, block_scale<To>(a, a.scale[b]), 0xFFFF);
      e2m1fn_run<To>(a, products, row + c / 2, n, dst + c * kSize);
      if ((products.overflow | products.underflow) != 0)
        count_e2m1fn(products, row + c / 2, n, *a.counts);
    }
  }
}

template <Format To>
void dequantize_to(const BlockDequantizeArgs& a) {
  if (a.code_format == Format::e2m1fn) {
    dequantize_e2m1fn<To>(a);
  } else if constexpr (To == Format::f32) {
    dequantize_by_products<To>(a);
  } else {
    if (a.rows * (a.block_cols < a.cols ? a.block_cols : a.cols) >= kTableMinElements) {
      dequantize_by_tables<To>(a);
    } else {
      dequantize_by_products<To>(a);
    }
  }
  if (a.stream) _mm_sfence();
}

}  // namespace

void block_dequantize(const BlockDequantizeArgs& a) {
  switch (a.dst_format) {
    case Format::f32:
      return dequantize_to<Format::f32>(a);
    case Format::bf16:
      return dequantize_to<Format::bf16>(a);
    default:
      return dequantize_to<Format::f16>(a);
  }
}

}  // namespace octavo::kernels::avx512bf16
