// block_amax and block_quantize with AVX-512.
//
// Rounding a magnitude a < 512 to e4m3fn without a branch for subnormals: with 2^E the power of two
// at or below a, but at least 2^-6, the f32 sum a + 2^(E+20) rounds a to a multiple of 2^(E-3), to
// nearest even, and its low byte is that multiple: 8 to 16 for normal codes, 0 to 8 for subnormal
// ones. The code is 8 (E + 6) more, so what is added is 2^(E+20) + (E+6) 2^E, looked up by the low
// four bits of the exponent: E runs from -6 to 8. e5m2 is the same with 2^-14, 2^(E+21) and
// (E+14) 2^E, for E from -14 to 15.
//
// For bf16 a block needs that arithmetic only 128 times. Where codes are normal, doubling a weight
// adds 8 to its code, so the code is 8 times the exponent plus a byte looked up by the mantissa's
// seven bits (WordTable). Weights outside that range, zeros among them, send their 64 the long way.
// On a 2-core Intel Emerald Rapids VM, in cache: 0.15 ns an element by arithmetic (0.22 dividing),
// 0.10 by table.
//
// The steps follow bf16 weights in 128x128 blocks, which are read from memory once: per row, the
// same row of the next chunk is prefetched, and full lines of codes are stored past the caches.
// Memory to memory, one thread: 92 % of the stream roof.
#include "octavo/kernels/cast/cast_lanes_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {
namespace {

enum class Scaling { multiply, divide, divide_by_reciprocal };

template <Format C>
struct Codes;
template <>
struct Codes<Format::e4m3fn> {
  static constexpr float kLargest = 448, kHighest = 464;  // what rounds to at most kLargest
  static constexpr int kOverflow = 0x7F, kNan = 0x7F;
  static constexpr int kMantissaBits = 3, kSmallestExponent = -6;
};
template <>
struct Codes<Format::e5m2> {
  static constexpr float kLargest = 57344, kHighest = 0x1.dffffep15f;
  static constexpr int kOverflow = 0x7C, kNan = 0x7E;
  static constexpr int kMantissaBits = 2, kSmallestExponent = -14;
};

struct BlockScale {
  __m512 factor;
  __m512 reciprocal;  // of factor, rounded once
  __m512 limit;       // kLargest * factor
  __m512i in_range;   // bf16 magnitudes up to this one give at most kHighest, which needs no clamp
};

// Whether divide_by_reciprocal gives the bits of a division, for every source: nothing over- or
// underflows that could change a code.
bool reciprocal_is_exact(float factor) { return factor >= 0x1p-60f && factor <= 0x1p60f; }

template <Scaling S, Format C>
BlockScale block_scale(float factor) {
  constexpr float kHighest = Codes<C>::kHighest;
  const __m512 scale = _mm512_set1_ps(factor);
  const __m512 highest =
      _mm512_set1_ps(S == Scaling::multiply ? kHighest / factor : kHighest * factor);
  // The bf16 below what that rounds down to: a margin of at least 2^-8, where two roundings could
  // matter 2^-23.
  const __m512i words = _mm512_srli_epi32(_mm512_castps_si512(highest), 16);
  const auto in_range = static_cast<short>(_mm_cvtsi128_si32(_mm512_castsi512_si128(words)));
  return {scale, _mm512_set1_ps(1.0f / factor), _mm512_set1_ps(Codes<C>::kLargest * factor),
          _mm512_set1_epi16(in_range > 0 ? static_cast<short>(in_range - 1) : short{0})};
}

// magnitude op factor, with kClamp at most kLargest; NaN is kept (min_ps gives its second operand
// if there is one).
//
// divide_by_reciprocal: magnitude / factor by two Newton steps. The first leaves an error below one
// unit in the last place, and from there the second rounds like a division (Markstein), given a
// correctly rounded reciprocal. Clamping first leaves the codes alone, because limit / factor
// encodes as kLargest whichever way limit was rounded.
template <Scaling S, Format C, bool kClamp>
__m512 scaled(__m512 magnitude, const BlockScale& s) {
  if constexpr (S == Scaling::divide_by_reciprocal) {
    const __m512 a = kClamp ? _mm512_min_ps(s.limit, magnitude) : magnitude;
    const __m512 q0 = _mm512_mul_ps(a, s.reciprocal);
    const __m512 q1 = _mm512_fmadd_ps(_mm512_fnmadd_ps(q0, s.factor, a), s.reciprocal, q0);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(q1, s.factor, a), s.reciprocal, q1);
  } else {
    const __m512 y = S == Scaling::multiply ? _mm512_mul_ps(magnitude, s.factor)
                                            : _mm512_div_ps(magnitude, s.factor);
    return kClamp ? _mm512_min_ps(_mm512_set1_ps(Codes<C>::kLargest), y) : y;
  }
}

alignas(64) constexpr float kRounders[16] = {
    // E = 1 to 8, an entry that nothing reaches, E = -6 to 0; the biased exponent is 127 + E.
    0x1p21f + 14,
    0x1p22f + 32,
    0x1p23f + 72,
    0x1p24f + 160,
    0x1p25f + 352,
    0x1p26f + 768,
    0x1p27f + 1664,
    0x1p28f + 3584,
    0,
    0x1p14f,
    0x1p15f + 1.0f / 32,
    0x1p16f + 2.0f / 16,
    0x1p17f + 3.0f / 8,
    0x1p18f + 4.0f / 4,
    0x1p19f + 5.0f / 2,
    0x1p20f + 6};

// The same for e5m2 by the low five bits: E = 1 to 15, two entries that nothing reaches, -14 to 0.
struct RoundersE5m2 {
  alignas(64) float value[32];
};
constexpr RoundersE5m2 rounders_e5m2() {
  RoundersE5m2 rounders = {};
  float power = 0x1p-14f;
  for (int e = -14; e <= 15; ++e, power *= 2) {
    rounders.value[(127 + e) % 32] = (0x1p21f + static_cast<float>(e + 14)) * power;
  }
  return rounders;
}
constexpr RoundersE5m2 kRoundersE5m2 = rounders_e5m2();

template <Format C>
struct Encoder {
  static constexpr bool kE5m2 = C == Format::e5m2;
  __m512 rounders = _mm512_load_ps(kE5m2 ? kRoundersE5m2.value : kRounders);
  __m512 more = kE5m2 ? _mm512_load_ps(kRoundersE5m2.value + 16) : rounders;

  // Low byte of each lane: the code of a magnitude up to kHighest. Others give anything.
  __m512i operator()(__m512 a) const {
    const __m512 normal = _mm512_max_ps(a, _mm512_set1_ps(kE5m2 ? 0x1p-14f : 0x1p-6f));
    const __m512i exponent = _mm512_srli_epi32(_mm512_castps_si512(normal), 23);
    const __m512 rounder = kE5m2 ? _mm512_permutex2var_ps(rounders, exponent, more)
                                 : _mm512_permutexvar_ps(exponent, rounders);
    return _mm512_castps_si512(_mm512_add_ps(a, rounder));
  }
};

// 16 codes of magnitudes and the f32 bits that have their signs. What exceeds kHighest overflows.
template <Format C>
__m128i encode16(const Encoder<C>& encoder, __m512 magnitude, __m512i signs) {
  using K = Codes<C>;
  const __mmask16 overflows =
      _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(K::kHighest), _CMP_NLE_UQ);
  __m512i codes =
      _mm512_mask_mov_epi32(encoder(magnitude), overflows, _mm512_set1_epi32(K::kOverflow));
  if constexpr (K::kNan != K::kOverflow) {
    const __mmask16 is_nan = _mm512_cmp_ps_mask(magnitude, magnitude, _CMP_UNORD_Q);
    codes = _mm512_mask_mov_epi32(codes, is_nan, _mm512_set1_epi32(K::kNan));
  }
  codes =
      _mm512_ternarylogic_epi32(codes, _mm512_srli_epi32(signs, 24), _mm512_set1_epi32(0x80), 0xD8);
  return _mm512_cvtepi32_epi8(codes);
}

alignas(64) constexpr std::uint8_t kOrder64[64] = {
    0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
    44, 46, 48, 50, 52, 54, 56, 58, 60, 62, 1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23,
    25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

// Codes of 64 bf16. Lanes are worked on as even and odd words and put in order by one byte permute
// at the end: byte 4j + {0, 1, 2, 3} of the unordered codes is element 2j, 32 + 2j, 2j + 1, 32 + 2j
// + 1.
template <Scaling S, Format C, bool kInRange>
__m512i encode64_words(const __m512i words[2], const BlockScale& scale, const Encoder<C>& encoder,
                       __m512i order) {
  const __m512i low_byte = _mm512_set1_epi16(0x00FF);
  const __m512i infinity = _mm512_set1_epi16(0x7F80);
  __m512i codes[2];
  for (int i = 0; i < 2; ++i) {
    const __m512i magnitudes = _mm512_and_si512(words[i], _mm512_set1_epi16(0x7FFF));
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(magnitudes, 16));
    const __m512 odd =
        _mm512_castsi512_ps(_mm512_and_si512(magnitudes, _mm512_set1_epi32(-0x10000)));
    const __m512i even_codes = encoder(scaled<S, C, !kInRange>(even, scale));
    const __m512i odd_codes = encoder(scaled<S, C, !kInRange>(odd, scale));
    codes[i] = _mm512_mask_blend_epi16(0xAAAAAAAA, even_codes, _mm512_slli_epi32(odd_codes, 16));
    if constexpr (!kInRange) {
      const __mmask32 is_nan = _mm512_cmpgt_epu16_mask(magnitudes, infinity);
      codes[i] = _mm512_mask_mov_epi16(codes[i], is_nan, _mm512_set1_epi16(Codes<C>::kNan));
    }
  }
  // 0xCA: first ? second : third. 0xD8: third ? second : first.
  const __m512i bytes =
      _mm512_ternarylogic_epi32(low_byte, codes[0], _mm512_slli_epi16(codes[1], 8), 0xCA);
  const __m512i signs =
      _mm512_ternarylogic_epi32(low_byte, _mm512_srli_epi16(words[0], 8), words[1], 0xCA);
  return _mm512_permutexvar_epi8(
      order, _mm512_ternarylogic_epi32(bytes, signs, _mm512_set1_epi8(-0x80), 0xD8));
}

// Codes of the magnitudes from `base` to `base + limit`, as bf16 words, by table.
struct WordTable {
  alignas(64) std::uint8_t corrections[128];  // code - (magnitude - base) / step, by mantissa
  std::uint16_t base;                         // an exponent with mantissa zero
  std::uint16_t limit;                        // 0: no table, everything goes the long way
};

// The distance of bf16 magnitudes whose codes follow each other, and how far to shift for it.
template <Format C>
constexpr int kStepBits = 7 - Codes<C>::kMantissaBits;

// The exponent from which codes are normal whatever the mantissa, as a bf16 field.
template <Scaling S, Format C>
int first_normal_exponent(float factor) {
  const int exponent =
      static_cast<int>(_mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(factor))) >> 23) - 127;
  constexpr int kSmallest = Codes<C>::kSmallestExponent;
  const int first = S == Scaling::multiply ? kSmallest - exponent : kSmallest + 1 + exponent;
  return first + 127 < 1 ? 1 : first + 127;
}

template <Scaling S, Format C>
void fill_table(float factor, const BlockScale& scale, WordTable& table) {
  const int field = first_normal_exponent<S, C>(factor);
  const int in_range = _mm_cvtsi128_si32(_mm512_castsi512_si128(scale.in_range)) & 0xFFFF;
  const int base = field << 7;
  table.limit = 0;
  if (factor < 0x1p-126f || in_range <= base + 128) return;
  table.base = static_cast<std::uint16_t>(base);
  table.limit = static_cast<std::uint16_t>(in_range - base);
  const Encoder<C> encoder;
  const __m512i order = _mm512_load_si512(kOrder64);
  alignas(64) std::uint16_t words[128];
  for (int i = 0; i < 128; ++i) words[i] = static_cast<std::uint16_t>(base + i);
  for (int i = 0; i < 128; i += 64) {
    const __m512i pair[2] = {_mm512_load_si512(words + i), _mm512_load_si512(words + i + 32)};
    _mm512_store_si512(table.corrections + i,
                       encode64_words<S, C, false>(pair, scale, encoder, order));
  }
  for (int i = 0; i < 128; ++i) {
    table.corrections[i] = static_cast<std::uint8_t>(table.corrections[i] - (i >> kStepBits<C>));
  }
}

// Codes of 64 bf16 by table; false where one of them is out of its range.
template <Format C>
bool encode64_by_table(const __m512i words[2], const WordTable& table, __m512i order,
                       __m512i& codes) {
  const __m512i no_sign = _mm512_set1_epi16(0x7FFF);
  const __m512i base = _mm512_set1_epi16(static_cast<short>(table.base));
  const __m512i above[2] = {_mm512_sub_epi16(_mm512_and_si512(words[0], no_sign), base),
                            _mm512_sub_epi16(_mm512_and_si512(words[1], no_sign), base)};
  const __m512i limit = _mm512_set1_epi16(static_cast<short>(table.limit));
  // What is below base wraps around to a large number.
  if (_mm512_cmpgt_epu16_mask(_mm512_max_epu16(above[0], above[1]), limit) != 0) return false;
  const __m512i low_byte = _mm512_set1_epi16(0x00FF);
  // Bytes are those of words[0] in even and of words[1] in odd places; 0xCA: first ? second :
  // third.
  const __m512i mantissas =
      _mm512_ternarylogic_epi32(low_byte, words[0], _mm512_slli_epi16(words[1], 8), 0xCA);
  const __m512i steps =
      _mm512_ternarylogic_epi32(low_byte, _mm512_srli_epi16(above[0], kStepBits<C>),
                                _mm512_slli_epi16(above[1], 8 - kStepBits<C>), 0xCA);
  const __m512i signs =
      _mm512_ternarylogic_epi32(low_byte, _mm512_srli_epi16(words[0], 8), words[1], 0xCA);
  const __m512i corrections = _mm512_permutex2var_epi8(
      _mm512_load_si512(table.corrections), mantissas, _mm512_load_si512(table.corrections + 64));
  const __m512i bytes = _mm512_add_epi8(steps, corrections);
  // 0xD8: third ? second : first.
  codes = _mm512_permutexvar_epi8(
      order, _mm512_ternarylogic_epi32(bytes, signs, _mm512_set1_epi8(-0x80), 0xD8));
  return true;
}

// Whether all of 64 bf16 are where a code needs no clamp, as they are where the factor comes from
// the block's own largest magnitude.
inline bool all_in_range(const __m512i words[2], const BlockScale& scale) {
  const __m512i no_sign = _mm512_set1_epi16(0x7FFF);
  const __m512i largest =
      _mm512_max_epu16(_mm512_and_si512(words[0], no_sign), _mm512_and_si512(words[1], no_sign));
  return _mm512_cmpgt_epu16_mask(largest, scale.in_range) == 0;
}

template <Scaling S, Format C>
__m512i encode64_bf16(const __m512i words[2], const BlockScale& scale, const Encoder<C>& encoder,
                      const WordTable* table, __m512i order) {
  __m512i codes;
  if (table != nullptr && encode64_by_table<C>(words, *table, order, codes)) [[likely]]
    return codes;
  if (all_in_range(words, scale)) return encode64_words<S, C, true>(words, scale, encoder, order);
  return encode64_words<S, C, false>(words, scale, encoder, order);
}

// Magnitude bits of 16 elements from element i on, in f32's format for bf16.
template <Format F>
__m512i magnitude_bits(const void* src, std::size_t i, __mmask16 lanes) {
  if constexpr (F == Format::f16) {
    const auto* words = static_cast<const std::uint16_t*>(src) + i;
    return _mm512_cvtepu16_epi32(
        _mm256_and_si256(_mm256_maskz_loadu_epi16(lanes, words), _mm256_set1_epi16(0x7FFF)));
  } else {
    return _mm512_castps_si512(_mm512_abs_ps(load_f32<F>(src, i, lanes)));
  }
}

// n consecutive elements of one block. With kAmax raises `amax`, lane by lane, to magnitude_bits.
template <Format F, Scaling S, Format C, bool kAmax>
void quantize_run(const void* src, std::size_t n, const BlockScale& scale, const WordTable* table,
                  std::uint8_t* codes, bool stream, __m512i& amax) {
  const Encoder<C> encoder;
  std::size_t i = 0;
  __m512i largest = _mm512_setzero_si512();
  if constexpr (F == Format::bf16) {
    const auto* from = static_cast<const std::uint16_t*>(src);
    const __m512i order = _mm512_load_si512(kOrder64), no_sign = _mm512_set1_epi16(0x7FFF);
    const bool past_caches = stream && is_aligned(codes, 64);
    for (; i + 64 <= n; i += 64) {
      const __m512i words[2] = {_mm512_loadu_si512(from + i), _mm512_loadu_si512(from + i + 32)};
      if constexpr (kAmax) {
        largest = _mm512_max_epu16(largest, _mm512_and_si512(words[0], no_sign));
        largest = _mm512_max_epu16(largest, _mm512_and_si512(words[1], no_sign));
      }
      const __m512i bytes = encode64_bf16<S, C>(words, scale, encoder, table, order);
      if (past_caches) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(codes + i), bytes);
      } else {
        _mm512_storeu_si512(codes + i, bytes);
      }
    }
    const __m512i odd = _mm512_and_si512(largest, _mm512_set1_epi32(-0x10000));
    largest = _mm512_max_epu32(odd, _mm512_slli_epi32(largest, 16));
  }
  const bool past_caches = stream && is_aligned(codes, 16);
  for (; i < n; i += 16) {
    const __mmask16 lanes = first_lanes16(n - i);
    const __m512 w = load_f32<F>(src, i, lanes);
    if constexpr (kAmax) largest = _mm512_max_epu32(largest, magnitude_bits<F>(src, i, lanes));
    const __m128i bytes =
        encode16<C>(encoder, scaled<S, C, true>(_mm512_abs_ps(w), scale), _mm512_castps_si512(w));
    if (past_caches && n - i >= 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(codes + i), bytes);
    } else {
      _mm_mask_storeu_epi8(codes + i, lanes, bytes);
    }
  }
  if constexpr (kAmax) amax = _mm512_max_epu32(amax, largest);
}

// What is worked out once for a block and used in each of its rows. A call with more blocks than
// this works in column groups.
constexpr std::size_t kGroupBlocks = 16;
struct Block {
  BlockScale scale;
  WordTable table;
  __m512i amax;
};
// A table pays from a few thousand elements on.
constexpr std::size_t kTableElements = 2048;

// At most kGroupBlocks blocks side by side, from block `first` on.
template <Format F, Scaling S, Format C, bool kAmax>
void quantize_group(const BlockQuantizeArgs& a, std::size_t first, std::size_t cols) {
  const std::size_t first_col = first * a.block_cols;
  const float* factor = a.factor + first;
  constexpr std::size_t kSize = F == Format::f32 ? 4 : 2;
  const std::size_t blocks = (cols + a.block_cols - 1) / a.block_cols;
  const bool tables =
      F == Format::bf16 && a.block_cols >= 64 && a.rows * a.block_cols >= kTableElements;
  Block block[kGroupBlocks];
  for (std::size_t b = 0; b < blocks; ++b) {
    block[b].scale = block_scale<S, C>(factor[b]);
    block[b].table.limit = 0;
    block[b].amax = _mm512_setzero_si512();
    if (tables) fill_table<S, C>(factor[b], block[b].scale, block[b].table);
  }
  for (std::size_t r = 0; r < a.rows; ++r) {
    const std::size_t offset = (r * a.src_stride + first_col) * kSize;
    const char* row = static_cast<const char*>(a.src) + offset;
    std::uint8_t* codes = a.codes + r * a.codes_stride + first_col;
    if (a.prefetch != nullptr) {
      prefetch_bytes(a.prefetch, offset, cols * kSize);
    }
    for (std::size_t c = 0, b = 0; c < cols; c += a.block_cols, ++b) {
      const std::size_t n = cols - c < a.block_cols ? cols - c : a.block_cols;
      const WordTable* table = block[b].table.limit != 0 ? &block[b].table : nullptr;
      quantize_run<F, S, C, kAmax>(row + c * kSize, n, block[b].scale, table, codes + c, a.stream,
                                   block[b].amax);
    }
  }
  if constexpr (!kAmax) return;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::uint32_t amax =
        _mm512_reduce_max_epu32(block[b].amax) >> (F == Format::bf16 ? 16 : 0);
    if (amax > a.amax[first + b]) a.amax[first + b] = amax;
  }
}

template <Format F, Scaling S, Format C>
void quantize_rows(const BlockQuantizeArgs& a) {
  const std::size_t blocks = (a.cols + a.block_cols - 1) / a.block_cols;
  for (std::size_t b = 0; b < blocks; b += kGroupBlocks) {
    const std::size_t group =
        blocks - b <= kGroupBlocks ? a.cols - b * a.block_cols : kGroupBlocks * a.block_cols;
    if (a.amax != nullptr) {
      quantize_group<F, S, C, true>(a, b, group);
    } else {
      quantize_group<F, S, C, false>(a, b, group);
    }
  }
  if (a.stream) _mm_sfence();
}

template <Format F, Format C>
void quantize_to(const BlockQuantizeArgs& a) {
  if (a.op == ScaleOp::multiply) return quantize_rows<F, Scaling::multiply, C>(a);
  const std::size_t blocks = (a.cols + a.block_cols - 1) / a.block_cols;
  bool exact = true;
  for (std::size_t b = 0; b < blocks; ++b) exact = exact && reciprocal_is_exact(a.factor[b]);
  if (exact) return quantize_rows<F, Scaling::divide_by_reciprocal, C>(a);
  return quantize_rows<F, Scaling::divide, C>(a);
}

template <Format F>
void quantize_from(const BlockQuantizeArgs& a) {
  if (a.code_format == Format::e5m2) return quantize_to<F, Format::e5m2>(a);
  quantize_to<F, Format::e4m3fn>(a);
}

// The largest magnitude of a block, as bits: unsigned integer order is magnitude order.
std::uint32_t block_amax_16(const std::uint16_t* src, std::size_t stride, std::size_t rows,
                            std::size_t n) {
  const __m512i no_sign = _mm512_set1_epi16(0x7FFF);
  __m512i max[4] = {};
  for (std::size_t r = 0; r < rows; ++r, src += stride) {
    std::size_t i = 0;
    for (; i + 128 <= n; i += 128) {
      for (std::size_t k = 0; k < 4; ++k) {
        max[k] = _mm512_max_epu16(max[k],
                                  _mm512_and_si512(_mm512_loadu_si512(src + i + 32 * k), no_sign));
      }
    }
    for (; i < n; i += 32) {
      const __m512i words = _mm512_maskz_loadu_epi16(first_lanes32(n - i), src + i);
      max[0] = _mm512_max_epu16(max[0], _mm512_and_si512(words, no_sign));
    }
  }
  const __m512i all =
      _mm512_max_epu16(_mm512_max_epu16(max[0], max[1]), _mm512_max_epu16(max[2], max[3]));
  const __m512i pairs = _mm512_max_epu16(all, _mm512_srli_epi32(all, 16));
  return _mm512_reduce_max_epu32(_mm512_and_si512(pairs, _mm512_set1_epi32(0xFFFF)));
}

std::uint32_t block_amax_32(const std::uint32_t* src, std::size_t stride, std::size_t rows,
                            std::size_t n) {
  const __m512i no_sign = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i max[2] = {};
  for (std::size_t r = 0; r < rows; ++r, src += stride) {
    std::size_t i = 0;
    for (; i + 32 <= n; i += 32) {
      max[0] = _mm512_max_epu32(max[0], _mm512_and_si512(_mm512_loadu_si512(src + i), no_sign));
      max[1] =
          _mm512_max_epu32(max[1], _mm512_and_si512(_mm512_loadu_si512(src + i + 16), no_sign));
    }
    for (; i < n; i += 16) {
      const __m512i words = _mm512_maskz_loadu_epi32(first_lanes16(n - i), src + i);
      max[0] = _mm512_max_epu32(max[0], _mm512_and_si512(words, no_sign));
    }
  }
  return _mm512_reduce_max_epu32(_mm512_max_epu32(max[0], max[1]));
}

}  // namespace

void block_amax(const BlockAmaxArgs& a) {
  for (std::size_t c = 0, b = 0; c < a.cols; c += a.block_cols, ++b) {
    const std::size_t n = a.cols - c < a.block_cols ? a.cols - c : a.block_cols;
    const std::uint32_t amax =
        a.src_format == Format::f32
            ? block_amax_32(static_cast<const std::uint32_t*>(a.src) + c, a.src_stride, a.rows, n)
            : block_amax_16(static_cast<const std::uint16_t*>(a.src) + c, a.src_stride, a.rows, n);
    if (amax > a.amax[b]) a.amax[b] = amax;
  }
}

void block_quantize(const BlockQuantizeArgs& a) {
  switch (a.src_format) {
    case Format::f32:
      return quantize_from<Format::f32>(a);
    case Format::bf16:
      return quantize_from<Format::bf16>(a);
    default:
      return quantize_from<Format::f16>(a);
  }
}

namespace {

template <Format F, Format C>
void cast_not_saturating(const CastArgs& a) {
  const Encoder<C> encoder;
  auto* codes = static_cast<std::uint8_t*>(a.dst);
  for (std::size_t i = 0; i < a.count; i += 16) {
    const __mmask16 lanes = first_lanes16(a.count - i);
    const __m512 w = load_f32<F>(a.src, i, lanes);
    _mm_mask_storeu_epi8(codes + i, lanes,
                         encode16<C>(encoder, _mm512_abs_ps(w), _mm512_castps_si512(w)));
  }
}

template <Format F, Format C>
void cast_as(const CastArgs& a) {
  if (a.overflow == Overflow::special) return cast_not_saturating<F, C>(a);
  __m512i amax = _mm512_setzero_si512();
  quantize_run<F, Scaling::multiply, C, false>(a.src, a.count,
                                               block_scale<Scaling::multiply, C>(1.0f), nullptr,
                                               static_cast<std::uint8_t*>(a.dst), false, amax);
}

template <Format F>
void cast_from(const CastArgs& a) {
  if (a.dst_format == Format::e5m2) return cast_as<F, Format::e5m2>(a);
  cast_as<F, Format::e4m3fn>(a);
}

}  // namespace

void cast_to_codes(const CastArgs& a) {
  switch (a.src_format) {
    case Format::f32:
      return cast_from<Format::f32>(a);
    case Format::bf16:
      return cast_from<Format::bf16>(a);
    default:
      return cast_from<Format::f16>(a);
  }
}

}  // namespace octavo::kernels::avx512bf16
