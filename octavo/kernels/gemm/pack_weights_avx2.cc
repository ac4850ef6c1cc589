// Weights to and from P2 with AVX2: the steps of pack_weights_avx512bf16.cc with vectors of half
// the size. Memory to memory, one thread of a 2-core Intel Emerald Rapids VM, share of the stream
// roof: 60 to 80 % row-major, 79 to 128 % transposed (the roof is one sequential stream).
#include "octavo/kernels/gemm/gemm_internal.h"
#include "octavo/kernels/gemm/pack_lanes_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

constexpr std::size_t kPart = 32;       // bytes
constexpr std::size_t kAhead = 256;     // bytes of a row that a streaming pack prefetches ahead
constexpr std::size_t kBlockRows = 16;  // of a transposed source
constexpr int kOddWords = 0xAA;

constexpr std::size_t code_bytes(Format format) {
  return format == Format::f32 ? 4 : format == Format::bf16 ? 2 : 1;
}

// bf16 magnitudes below 2^-40 become +0.
template <Format F>
__m256i load_elements(const char* from, std::size_t bytes) {
  const __m256i bits = load_bytes(from, bytes);
  if constexpr (F != Format::bf16) return bits;
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7FFF));
  const auto highest_flushed = static_cast<short>(((127 - 40) << 7) - 1);
  return _mm256_and_si256(bits, _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(highest_flushed)));
}

void store_part(char* strip, std::size_t part, __m256i bits, bool stream) {
  store_256(strip + part * kPart, bits, stream);
}

// A piece: up to 32 rows of one strip and 32 bytes of each. Its transposition has 8 vectors for
// each of 4 groups of rows.
//   bf16, f32  group q is rows 8q .. 8q + 7, vector d its dword d
//   8 bits     group 2 odd + h is half h of tiles 2d + odd, whose dwords are pairs of rows
constexpr std::size_t kGroups = 4;

// The first of the two rows whose codes are dword p of a tile.
constexpr std::size_t pair_row(std::size_t p) { return p / 4 * 4 + p % 2 * 2 + p % 4 / 2 * 16; }

// Where vector d of a group goes, in parts of a strip, from the piece's first part on.
template <Format F>
constexpr std::size_t part_of(std::size_t group, std::size_t d) {
  if constexpr (code_bytes(F) == 1) return 2 * (2 * d + group / 2) + group % 2;
  return kGroups * d + group;
}

template <Format F>
void pack_piece(const char* first, std::size_t stride, std::size_t rows, std::size_t bytes,
                char* strip, std::size_t part, std::size_t end, bool stream) {
  const auto row = [&](std::size_t r) {
    return r < rows ? load_elements<F>(first + r * stride, bytes) : _mm256_setzero_si256();
  };
  // By two groups, because their vectors are the halves of a cache line.
  for (std::size_t group = 0; group < kGroups; group += 2) {
    __m256i v[2][8];
    for (std::size_t half = 0; half < 2; ++half) {
      for (std::size_t i = 0; i < 8; ++i) {
        if constexpr (code_bytes(F) == 1) {
          const std::size_t r = pair_row(half * 8 + i);
          const __m256i a = row(r), b = row(r + 1);
          v[half][i] = group == 0 ? _mm256_blend_epi16(a, _mm256_slli_epi32(b, 16), kOddWords)
                                  : _mm256_blend_epi16(_mm256_srli_epi32(a, 16), b, kOddWords);
        } else {
          v[half][i] = row(8 * (group + half) + i);
        }
      }
      transpose8(v[half]);
    }
    for (std::size_t d = 0; d < 8; ++d) {
      const std::size_t to = part + part_of<F>(group, d);
      if (to >= end) break;
      store_part(strip, to, v[0][d], stream);
      store_part(strip, to + 1, v[1][d], stream);
    }
  }
}

template <Format F>
std::size_t distance_of_strips(const PackWeightsArgs& a) {
  return ((a.whole_k != 0 ? a.whole_k : a.k) + 1) / 2 * packed_tile_bytes(F);
}

template <Format F>
void pack_rows(const PackWeightsArgs& a) {
  constexpr std::size_t kSize = code_bytes(F), kStep = kPart / kSize;
  const std::size_t parts = (a.k + 1) / 2 * packed_tile_bytes(F) / kPart;
  const std::size_t strip_bytes = distance_of_strips<F>(a), stride = a.src_stride * kSize;
  for (std::size_t s = a.strip_begin; s < a.strip_end; ++s) {
    const char* src = static_cast<const char*>(a.src) + s * kStrip * stride;
    char* strip = static_cast<char*>(a.packed) + s * strip_bytes;
    const std::size_t rows = a.n - s * kStrip < kStrip ? a.n - s * kStrip : kStrip;
    for (std::size_t k = 0; k < a.k; k += kStep) {
      const char* from = src + k * kSize;
      if (a.stream && k * kSize % 64 == 0) {
        for (std::size_t r = 0; r < kStrip; ++r) {
          _mm_prefetch(ahead_of(from, r * stride + kAhead), _MM_HINT_T0);
        }
      }
      pack_piece<F>(from, stride, rows, (a.k - k) * kSize, strip, k / kStep * 32, parts, a.stream);
    }
  }
}

// Two rows of a strip, `bytes` bytes of each, to a tile; the second is null beyond the last k.
template <Format F>
void pack_two_rows(const char* row0, const char* row1, std::size_t bytes, char* tile, bool stream) {
  const auto row = [bytes](const char* from, std::size_t i) {
    if (from == nullptr || i * kPart >= bytes) return _mm256_setzero_si256();
    return load_elements<F>(from + i * kPart, bytes - i * kPart);
  };
  if constexpr (F == Format::f32) {
    for (std::size_t i = 0; i < 4; ++i) store_part(tile, i, row(row0, i), stream);
    for (std::size_t i = 0; i < 4; ++i) store_part(tile, 4 + i, row(row1, i), stream);
  } else if constexpr (F == Format::bf16) {
    for (std::size_t i = 0; i < 2; ++i) {
      const __m256i even = row(row0, i), odd = row(row1, i);
      const __m256i low = _mm256_unpacklo_epi16(even, odd);
      const __m256i high = _mm256_unpackhi_epi16(even, odd);
      store_part(tile, 2 * i, _mm256_permute2x128_si256(low, high, 0x20), stream);
      store_part(tile, 2 * i + 1, _mm256_permute2x128_si256(low, high, 0x31), stream);
    }
  } else {
    const __m256i even = row(row0, 0), odd = row(row1, 0);
    constexpr int kTileQwords = _MM_SHUFFLE(3, 1, 2, 0);
    const __m256i low = _mm256_unpacklo_epi8(even, odd), high = _mm256_unpackhi_epi8(even, odd);
    store_part(tile, 0, _mm256_permute4x64_epi64(low, kTileQwords), stream);
    store_part(tile, 1, _mm256_permute4x64_epi64(high, kTileQwords), stream);
  }
}

template <Format F>
void pack_columns(const PackWeightsArgs& a) {
  constexpr std::size_t kSize = code_bytes(F);
  const std::size_t tile_bytes = packed_tile_bytes(F), strip_bytes = distance_of_strips<F>(a);
  const std::size_t stride = a.src_stride * kSize;
  for (std::size_t k0 = 0; k0 < a.k; k0 += kBlockRows) {
    const std::size_t k1 = a.k - k0 < kBlockRows ? a.k : k0 + kBlockRows;
    for (std::size_t s = a.strip_begin; s < a.strip_end; ++s) {
      const char* src = static_cast<const char*>(a.src) + s * kStrip * kSize;
      char* strip = static_cast<char*>(a.packed) + s * strip_bytes;
      for (std::size_t k = k0; k < k1; k += 2) {
        const char* row0 = src + k * stride;
        const char* row1 = k + 1 < a.k ? row0 + stride : nullptr;
        if (a.stream) {
          _mm_prefetch(ahead_of(row0, kAhead), _MM_HINT_T0);
          _mm_prefetch(ahead_of(row0, stride + kAhead), _MM_HINT_T0);
        }
        pack_two_rows<F>(row0, row1, (a.n - s * kStrip) * kSize, strip + k / 2 * tile_bytes,
                         a.stream);
      }
    }
  }
}

template <Format F>
void pack(const PackWeightsArgs& a) {
  if (a.transposed) {
    pack_columns<F>(a);
  } else {
    pack_rows<F>(a);
  }
  if (a.stream) _mm_sfence();
}

// The reverse of pack_piece, with room for whole rows in `first`.
template <Format F>
void unpack_piece(const char* strip, std::size_t part, std::size_t end, char* first,
                  std::size_t stride, std::size_t rows) {
  __m256i v[kGroups][8];
  for (std::size_t group = 0; group < kGroups; ++group) {
    for (std::size_t d = 0; d < 8; ++d) {
      const std::size_t from = part + part_of<F>(group, d);
      v[group][d] = from < end ? load_bytes(strip + from * kPart, kPart) : _mm256_setzero_si256();
    }
    transpose8(v[group]);
  }
  const auto store_row = [&](std::size_t r, __m256i bits) {
    if (r < rows) store_256(first + r * stride, bits, false);
  };
  for (std::size_t i = 0; i < 32; ++i) {
    if constexpr (code_bytes(F) != 1) {
      store_row(i, v[i / 8][i % 8]);
    } else if (i < 16) {
      const __m256i even = v[i / 8][i % 8], odd = v[2 + i / 8][i % 8];
      const std::size_t r = pair_row(i);
      store_row(r, _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), kOddWords));
      store_row(r + 1, _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, kOddWords));
    }
  }
}

template <Format F>
void unpack(const UnpackWeightsArgs& a) {
  constexpr std::size_t kSize = code_bytes(F), kStep = kPart / kSize;
  const std::size_t parts = (a.k + 1) / 2 * packed_tile_bytes(F) / kPart;
  const std::size_t stride = a.dst_stride * kSize;
  for (std::size_t s = a.strip_begin; s < a.strip_end; ++s) {
    const char* strip = static_cast<const char*>(a.packed) + s * parts * kPart;
    char* dst = static_cast<char*>(a.dst) + s * kStrip * stride;
    const std::size_t rows = a.n - s * kStrip < kStrip ? a.n - s * kStrip : kStrip;
    for (std::size_t k = 0; k < a.k; k += kStep) {
      const std::size_t part = k / kStep * 32;
      if (a.k - k >= kStep) {
        unpack_piece<F>(strip, part, parts, dst + k * kSize, stride, rows);
      } else {
        char last[kStrip * kPart];
        unpack_piece<F>(strip, part, parts, last, kPart, rows);
        for (std::size_t r = 0; r < rows; ++r) {
          copy_bytes(dst + r * stride + k * kSize, last + r * kPart, (a.k - k) * kSize);
        }
      }
    }
  }
}

}  // namespace

void pack_weights(const PackWeightsArgs& a) {
  check(a);
  switch (a.format) {
    case Format::f32:
      return pack<Format::f32>(a);
    case Format::bf16:
      return pack<Format::bf16>(a);
    default:
      return pack<Format::e4m3fn>(a);  // as good as any 8-bit format
  }
}

void unpack_weights(const UnpackWeightsArgs& a) {
  check(a);
  switch (a.format) {
    case Format::f32:
      return unpack<Format::f32>(a);
    case Format::bf16:
      return unpack<Format::bf16>(a);
    default:
      return unpack<Format::e4m3fn>(a);
  }
}

}  // namespace octavo::kernels::avx2
