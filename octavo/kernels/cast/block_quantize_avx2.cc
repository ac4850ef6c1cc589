// block_amax and block_quantize with AVX2. The rounding is explained in
// block_quantize_avx512bf16.cc. 128x128 from bf16, one thread of a 2-core Intel Emerald Rapids VM,
// memory to memory: 45 % of the stream roof.
#include "octavo/kernels/cast/cast_lanes_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

constexpr int kExponentBits = 0x7F800000;

template <Format C>
struct Rounder;
template <>
struct Rounder<Format::e4m3fn> {
  static constexpr float kLargest = 448, kHighest = 464;  // what rounds to at most kLargest
  static constexpr char kOverflow = 0x7F, kNan = 0x7F;
  static constexpr int kSmallestNormal = 0x3C800000;  // 2^-6
  static constexpr int kShift = 20;                   // 23 less the mantissa's bits
};
template <>
struct Rounder<Format::e5m2> {
  static constexpr float kLargest = 57344, kHighest = 0x1.dffffep15f;
  static constexpr char kOverflow = 0x7C, kNan = 0x7E;
  static constexpr int kSmallestNormal = 0x38800000;  // 2^-14
  static constexpr int kShift = 21;
};

// What is missing in encode's results.
template <Format C>
constexpr char kLess = static_cast<char>(-(Rounder<C>::kSmallestNormal >> Rounder<C>::kShift));

// Low byte of each lane: the code of a magnitude at most kLargest, less kLess modulo 256; the other
// bytes zero.
template <Format C>
__m256i encode(__m256 a) {
  using R = Rounder<C>;
  const __m256i exponent =
      _mm256_max_epi32(_mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(kExponentBits)),
                       _mm256_set1_epi32(R::kSmallestNormal));
  const __m256 step = _mm256_set1_ps(static_cast<float>(1 << R::kShift));
  const __m256 t = _mm256_fmadd_ps(_mm256_castsi256_ps(exponent), step, a);
  const __m256i code =
      _mm256_add_epi32(_mm256_castps_si256(t), _mm256_srli_epi32(exponent, R::kShift));
  return _mm256_and_si256(code, _mm256_set1_epi32(0xFF));
}

struct Scale {
  __m256 factor;
  ScaleOp op;
  Overflow overflow;
};

// Bytes of 32 lanes, in the order of pack_order.
__m256i pack_codes(const __m256i lanes[4]) {
  return _mm256_packus_epi16(_mm256_packus_epi32(lanes[0], lanes[1]),
                             _mm256_packus_epi32(lanes[2], lanes[3]));
}
__m256i pack_signs(const __m256i lanes[4]) {
  return _mm256_packs_epi16(_mm256_packs_epi32(lanes[0], lanes[1]),
                            _mm256_packs_epi32(lanes[2], lanes[3]));
}

// Magnitude bits of 8 elements from element i on, in f32's format for bf16.
template <Format F>
__m256i magnitude_bits(const void* src, std::size_t i) {
  if constexpr (F == Format::f16) {
    const auto* words = static_cast<const std::uint16_t*>(src) + i;
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words));
    return _mm256_and_si256(_mm256_cvtepu16_epi32(bits), _mm256_set1_epi32(0x7FFF));
  } else {
    return _mm256_and_si256(_mm256_castps_si256(load_f32<F>(src, i)),
                            _mm256_set1_epi32(0x7FFFFFFF));
  }
}

// 32 codes. What exceeds kHighest after scaling and clamping overflows. With kAmax raises
// `largest`, lane by lane, to magnitude_bits.
template <Format F, Format C, bool kAmax>
[[gnu::always_inline]] inline __m256i encode32(const void* src, const Scale& scale,
                                               __m256i& largest) {
  using R = Rounder<C>;
  const __m256 no_sign = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  __m256i codes[4], signs[4], overflows[4], nans[4];
  for (std::size_t k = 0; k < 4; ++k) {
    const __m256 w = load_f32<F>(src, 8 * k);
    const __m256 magnitude = _mm256_and_ps(w, no_sign);
    if constexpr (kAmax) largest = _mm256_max_epu32(largest, magnitude_bits<F>(src, 8 * k));
    __m256 a = scale.op == ScaleOp::multiply ? _mm256_mul_ps(magnitude, scale.factor)
                                             : _mm256_div_ps(magnitude, scale.factor);
    // min_ps gives its second operand if there is a NaN.
    if (scale.overflow == Overflow::saturate) a = _mm256_min_ps(_mm256_set1_ps(R::kLargest), a);
    codes[k] = encode<C>(a);
    signs[k] = _mm256_castps_si256(w);
    overflows[k] = _mm256_castps_si256(_mm256_cmp_ps(a, _mm256_set1_ps(R::kHighest), _CMP_NLE_UQ));
    if constexpr (R::kNan != R::kOverflow) nans[k] = nan_lanes(a);
  }
  __m256i bytes = _mm256_add_epi8(pack_codes(codes), _mm256_set1_epi8(kLess<C>));
  bytes = _mm256_blendv_epi8(bytes, _mm256_set1_epi8(R::kOverflow), pack_signs(overflows));
  if constexpr (R::kNan != R::kOverflow) {
    bytes = _mm256_blendv_epi8(bytes, _mm256_set1_epi8(R::kNan), pack_signs(nans));
  }
  bytes = _mm256_or_si256(bytes, _mm256_and_si256(pack_signs(signs), _mm256_set1_epi8(-0x80)));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

std::uint32_t largest_lane(__m256i dwords) {
  alignas(32) std::uint32_t lanes[8];
  store_256(lanes, dwords, false);
  std::uint32_t largest = 0;
  for (const std::uint32_t lane : lanes) {
    if (lane > largest) largest = lane;
  }
  return largest;
}

// n consecutive elements of one block; the last ones by way of a buffer. Returns their amax if
// wanted.
template <Format F, Format C, bool kAmax>
std::uint32_t quantize_run(const void* src, std::size_t n, const Scale& scale, std::uint8_t* codes,
                           bool stream) {
  constexpr std::size_t kSize = F == Format::f32 ? 4 : 2;
  const char* bytes = static_cast<const char*>(src);
  const bool past_caches = stream && is_aligned(codes, 32);
  __m256i largest = _mm256_setzero_si256();
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32)
    store_256(codes + i, encode32<F, C, kAmax>(bytes + i * kSize, scale, largest), past_caches);
  if (i != n) {
    alignas(32) char in[32 * kSize] = {};
    alignas(32) std::uint8_t out[32];
    copy_bytes(in, bytes + i * kSize, (n - i) * kSize);
    store_256(out, encode32<F, C, kAmax>(in, scale, largest), false);
    copy_bytes(codes + i, out, n - i);
  }
  return largest_lane(largest) >> (F == Format::bf16 ? 16 : 0);
}

template <Format F, Format C>
void quantize_to(const BlockQuantizeArgs& a) {
  constexpr std::size_t kSize = F == Format::f32 ? 4 : 2;
  for (std::size_t r = 0; r < a.rows; ++r) {
    const char* row = static_cast<const char*>(a.src) + r * a.src_stride * kSize;
    std::uint8_t* codes = a.codes + r * a.codes_stride;
    if (a.prefetch != nullptr) {
      prefetch_bytes(a.prefetch, r * a.src_stride * kSize, a.cols * kSize);
    }
    for (std::size_t c = 0, b = 0; c < a.cols; c += a.block_cols, ++b) {
      const std::size_t n = a.cols - c < a.block_cols ? a.cols - c : a.block_cols;
      const Scale scale = {_mm256_set1_ps(a.factor[b]), a.op, Overflow::saturate};
      if (a.amax == nullptr) {
        quantize_run<F, C, false>(row + c * kSize, n, scale, codes + c, a.stream);
        continue;
      }
      const std::uint32_t amax =
          quantize_run<F, C, true>(row + c * kSize, n, scale, codes + c, a.stream);
      if (amax > a.amax[b]) a.amax[b] = amax;
    }
  }
  if (a.stream) _mm_sfence();
}

template <Format F>
void quantize_from(const BlockQuantizeArgs& a) {
  if (a.code_format == Format::e5m2) return quantize_to<F, Format::e5m2>(a);
  quantize_to<F, Format::e4m3fn>(a);
}

// The largest magnitude of a block, as bits: unsigned integer order is magnitude order.
std::uint32_t block_amax_16(const std::uint16_t* src, std::size_t stride, std::size_t rows,
                            std::size_t n) {
  const __m256i no_sign = _mm256_set1_epi16(0x7FFF);
  __m256i max[2] = {};
  std::uint32_t tail = 0;
  for (std::size_t r = 0; r < rows; ++r, src += stride) {
    std::size_t i = 0;
    for (; i + 32 <= n; i += 32) {
      for (std::size_t k = 0; k < 2; ++k) {
        const __m256i words =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i + 16 * k));
        max[k] = _mm256_max_epu16(max[k], _mm256_and_si256(words, no_sign));
      }
    }
    for (; i < n; ++i) {
      const std::uint32_t magnitude = src[i] & 0x7FFFu;
      if (magnitude > tail) tail = magnitude;
    }
  }
  alignas(32) std::uint16_t lanes[16];
  store_256(lanes, _mm256_max_epu16(max[0], max[1]), false);
  for (const std::uint16_t lane : lanes) {
    if (lane > tail) tail = lane;
  }
  return tail;
}

std::uint32_t block_amax_32(const std::uint32_t* src, std::size_t stride, std::size_t rows,
                            std::size_t n) {
  const __m256i no_sign = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i max = _mm256_setzero_si256();
  std::uint32_t tail = 0;
  for (std::size_t r = 0; r < rows; ++r, src += stride) {
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8) {
      const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i));
      max = _mm256_max_epu32(max, _mm256_and_si256(words, no_sign));
    }
    for (; i < n; ++i) {
      const std::uint32_t magnitude = src[i] & 0x7FFFFFFFu;
      if (magnitude > tail) tail = magnitude;
    }
  }
  const std::uint32_t largest = largest_lane(max);
  return largest > tail ? largest : tail;
}

template <Format F>
void cast_from(const CastArgs& a) {
  const Scale scale = {_mm256_set1_ps(1.0f), ScaleOp::multiply, a.overflow};
  auto* codes = static_cast<std::uint8_t*>(a.dst);
  if (a.dst_format == Format::e5m2) {
    quantize_run<F, Format::e5m2, false>(a.src, a.count, scale, codes, false);
  } else {
    quantize_run<F, Format::e4m3fn, false>(a.src, a.count, scale, codes, false);
  }
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

}  // namespace octavo::kernels::avx2
