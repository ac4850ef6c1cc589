// Weights to and from P2 with AVX-512.
//
// Row-major sources: a strip's 32 rows, 64 bytes at a time, are columns of dwords to be transposed.
// bf16 pairs and f32 are dwords as they are: 16 x 16 of them make 16 lines of the result. 8-bit
// codes go in pairs (words): the even words of two rows are merged to dwords, and the odd words, so
// that a transposition of 16 such pairs of rows, taken in the order of a tile, gives whole tiles.
// 128 shuffles for 2 KiB.
//
// Transposed sources: two rows are interleaved. In blocks of 16 rows: a column of more than that,
// at a stride that is a large power of two, does not fit the sets of the caches. Shares of the
// stream roof, codes and bf16 from memory to memory on a 2-core Intel Emerald Rapids VM: 98 to 127
// % with 16 rows and 95 to 123 % with 32, over rows of 4096 to 14336 elements; 56 to 63 % with 128,
// over rows whose stride is a power of two. Above 100 %: the roof is one sequential stream.
#include "octavo/kernels/gemm/gemm_internal.h"
#include "octavo/kernels/gemm/pack_lanes_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {
namespace {

constexpr std::size_t kLine = 64;       // bytes
constexpr std::size_t kAhead = 256;     // bytes of a row that a streaming pack prefetches ahead
constexpr std::size_t kBlockRows = 16;  // of a transposed source
constexpr unsigned kOddWords = 0xAAAAAAAA;

constexpr std::size_t code_bytes(Format format) {
  return format == Format::f32 ? 4 : format == Format::bf16 ? 2 : 1;
}

// Lines of a strip: tiles of 8-bit codes, half tiles of bf16, quarters of f32. Two neighbours of
// bf16 or f32 are n = 0 .. 15 and 16 .. 31.
void store_line(char* strip, std::size_t line, __m512i bits, bool stream) {
  auto* to = reinterpret_cast<__m512i*>(strip + line * kLine);
  if (stream) {
    _mm512_stream_si512(to, bits);
  } else {
    _mm512_store_si512(to, bits);
  }
}
__m512i load_line(const char* strip, std::size_t line) {
  return _mm512_load_si512(strip + line * kLine);
}

// A multiply of 16 dwords of a row, or its last `elements` ones; bytes beyond are zero.
template <Format F>
__m512i load_elements(const char* from, std::size_t elements) {
  if constexpr (F == Format::f32) {
    return _mm512_maskz_loadu_epi32(first_lanes16(elements), from);
  } else if constexpr (F == Format::bf16) {
    const __m512i limit = _mm512_set1_epi16(static_cast<short>((127 - 40) << 7));
    return flush_words(_mm512_maskz_loadu_epi16(first_lanes32(elements), from), limit);
  } else {
    return _mm512_maskz_loadu_epi8(first_lanes64(elements), from);
  }
}
template <Format F>
void store_elements(char* to, std::size_t elements, __m512i bits) {
  if constexpr (F == Format::f32) {
    _mm512_mask_storeu_epi32(to, first_lanes16(elements), bits);
  } else if constexpr (F == Format::bf16) {
    _mm512_mask_storeu_epi16(to, first_lanes32(elements), bits);
  } else {
    _mm512_mask_storeu_epi8(to, first_lanes64(elements), bits);
  }
}

// The first of the two rows whose codes are dword p of a line.
constexpr std::size_t pair_row(std::size_t p) { return p / 4 * 4 + p % 2 * 2 + p % 4 / 2 * 16; }

// Up to 32 rows of one strip and up to 64 bytes of each; the rest counts as zeros.
struct Piece {
  const char* first;
  std::size_t stride;  // bytes
  std::size_t rows;
  std::size_t elements;

  template <Format F, bool kWhole>
  __m512i row(std::size_t r) const {
    if constexpr (kWhole) return load_elements<F>(first + r * stride, kLine);
    return r < rows ? load_elements<F>(first + r * stride, elements) : _mm512_setzero_si512();
  }
};

// Lines from `line` to `end` of a strip, at most 32. kWhole: the piece has all its rows and
// elements.
template <bool kWhole>
void pack_piece_8(const Piece& piece, char* strip, std::size_t line, std::size_t end, bool stream) {
  for (std::size_t odd = 0; odd < 2; ++odd) {
    __m512i v[16];
    for (std::size_t p = 0; p < 16; ++p) {
      const __m512i a = piece.row<Format::e4m3fn, kWhole>(pair_row(p));
      const __m512i b = piece.row<Format::e4m3fn, kWhole>(pair_row(p) + 1);
      v[p] = odd == 0 ? _mm512_mask_blend_epi16(kOddWords, a, _mm512_slli_epi32(b, 16))
                      : _mm512_mask_blend_epi16(kOddWords, _mm512_srli_epi32(a, 16), b);
    }
    transpose16(v);
    for (std::size_t d = 0; d < 16 && line + 2 * d + odd < end; ++d) {
      store_line(strip, line + 2 * d + odd, v[d], stream);
    }
  }
}

template <Format F, bool kWhole>
void pack_piece(const Piece& piece, char* strip, std::size_t line, std::size_t end, bool stream) {
  if constexpr (code_bytes(F) == 1) return pack_piece_8<kWhole>(piece, strip, line, end, stream);
  for (std::size_t half = 0; half < 2; ++half) {
    __m512i v[16];
    for (std::size_t r = 0; r < 16; ++r) v[r] = piece.row<F, kWhole>(16 * half + r);
    transpose16(v);
    for (std::size_t d = 0; d < 16 && line + 2 * d < end; ++d) {
      store_line(strip, line + 2 * d + half, v[d], stream);
    }
  }
}

template <Format F>
std::size_t distance_of_strips(const PackWeightsArgs& a) {
  return ((a.whole_k != 0 ? a.whole_k : a.k) + 1) / 2 * packed_tile_bytes(F);
}

template <Format F>
void pack_rows(const PackWeightsArgs& a) {
  constexpr std::size_t kSize = code_bytes(F), kStep = kLine / kSize;
  const std::size_t lines = (a.k + 1) / 2 * packed_tile_bytes(F) / kLine;
  const std::size_t strip_bytes = distance_of_strips<F>(a), stride = a.src_stride * kSize;
  for (std::size_t s = a.strip_begin; s < a.strip_end; ++s) {
    const char* src = static_cast<const char*>(a.src) + s * kStrip * stride;
    char* strip = static_cast<char*>(a.packed) + s * strip_bytes;
    const std::size_t rows = a.n - s * kStrip < kStrip ? a.n - s * kStrip : kStrip;
    for (std::size_t k = 0; k < a.k; k += kStep) {
      const char* from = src + k * kSize;
      if (a.stream) {  // this strip's rows, then those of the next
        const std::size_t at = k * kSize + kAhead, row_bytes = a.k * kSize;
        const std::size_t ahead = at < row_bytes ? at : kStrip * stride + at - row_bytes;
        for (std::size_t r = 0; r < kStrip; ++r) {
          _mm_prefetch(ahead_of(src, ahead + r * stride), _MM_HINT_T0);
        }
      }
      const Piece piece = {from, stride, rows, a.k - k};
      if (rows == kStrip && a.k - k >= kStep) {
        pack_piece<F, true>(piece, strip, k / kStep * 32, lines, a.stream);
      } else {
        pack_piece<F, false>(piece, strip, k / kStep * 32, lines, a.stream);
      }
    }
  }
}

// Which qwords of (codes of n 0 .. 7, 16 .. 23, 32 .., 48 ..; of n 8 .. 15, ...) make a tile.
alignas(64) constexpr std::uint64_t kTileQwords[2][8] = {{0, 2, 1, 3, 8, 10, 9, 11},
                                                         {4, 6, 5, 7, 12, 14, 13, 15}};
alignas(64) constexpr std::uint64_t kHalfQwords[2][8] = {{0, 1, 8, 9, 2, 3, 10, 11},
                                                         {4, 5, 12, 13, 6, 7, 14, 15}};

// Two rows of 64 columns: a tile of each of two strips, the second perhaps not wanted.
void interleave_8(__m512i row0, __m512i row1, char* strips[2], std::size_t line, bool stream) {
  const __m512i low = _mm512_unpacklo_epi8(row0, row1), high = _mm512_unpackhi_epi8(row0, row1);
  for (int i = 0; i < 2; ++i) {
    if (strips[i] == nullptr) continue;
    const __m512i order = _mm512_load_si512(kTileQwords[i]);
    store_line(strips[i], line, _mm512_permutex2var_epi64(low, order, high), stream);
  }
}

// Two rows of the 32 columns of a strip: a tile.
void interleave_16(__m512i row0, __m512i row1, char* strip, std::size_t line, bool stream) {
  const __m512i low = _mm512_unpacklo_epi16(row0, row1), high = _mm512_unpackhi_epi16(row0, row1);
  for (std::size_t i = 0; i < 2; ++i) {
    const __m512i order = _mm512_load_si512(kHalfQwords[i]);
    store_line(strip, line + i, _mm512_permutex2var_epi64(low, order, high), stream);
  }
}

// `columns` columns, at most 64 bytes, of two rows; the second is null beyond the last k.
template <Format F>
void pack_two_rows(const char* row0, const char* row1, std::size_t columns, char* strips[2],
                   std::size_t pair, bool stream) {
  const auto row = [columns](const char* from, std::size_t first) {
    if (from == nullptr || first >= columns) return _mm512_setzero_si512();
    return load_elements<F>(from + first * code_bytes(F), columns - first);
  };
  if constexpr (F == Format::f32) {
    store_line(strips[0], 4 * pair, row(row0, 0), stream);
    store_line(strips[0], 4 * pair + 1, row(row0, 16), stream);
    store_line(strips[0], 4 * pair + 2, row(row1, 0), stream);
    store_line(strips[0], 4 * pair + 3, row(row1, 16), stream);
  } else if constexpr (F == Format::bf16) {
    interleave_16(row(row0, 0), row(row1, 0), strips[0], 2 * pair, stream);
  } else {
    interleave_8(row(row0, 0), row(row1, 0), strips, pair, stream);
  }
}

template <Format F>
void pack_columns(const PackWeightsArgs& a) {
  constexpr std::size_t kSize = code_bytes(F), kStrips = kSize == 1 ? 2 : 1;
  const std::size_t strip_bytes = distance_of_strips<F>(a);
  const std::size_t stride = a.src_stride * kSize;
  for (std::size_t k0 = 0; k0 < a.k; k0 += kBlockRows) {
    const std::size_t k1 = a.k - k0 < kBlockRows ? a.k : k0 + kBlockRows;
    for (std::size_t s = a.strip_begin; s < a.strip_end; s += kStrips) {
      const char* src = static_cast<const char*>(a.src) + s * kStrip * kSize;
      char* strip = static_cast<char*>(a.packed) + s * strip_bytes;
      char* strips[2] = {strip, s + 1 < a.strip_end ? strip + strip_bytes : nullptr};
      for (std::size_t k = k0; k < k1; k += 2) {
        const char* row0 = src + k * stride;
        const char* row1 = k + 1 < a.k ? row0 + stride : nullptr;
        if (a.stream) {
          _mm_prefetch(ahead_of(row0, kAhead), _MM_HINT_T0);
          _mm_prefetch(ahead_of(row0, stride + kAhead), _MM_HINT_T0);
        }
        pack_two_rows<F>(row0, row1, a.n - s * kStrip, strips, k / 2, a.stream);
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

// The reverse of pack_piece.
template <Format F>
void unpack_piece(const char* strip, std::size_t line, std::size_t end, char* first,
                  std::size_t stride, std::size_t rows, std::size_t elements) {
  __m512i v[2][16];
  for (std::size_t part = 0; part < 2; ++part) {
    for (std::size_t d = 0; d < 16; ++d) {
      const std::size_t at = line + 2 * d + part;
      v[part][d] = at < end ? load_line(strip, at) : _mm512_setzero_si512();
    }
    transpose16(v[part]);
  }
  for (std::size_t i = 0; i < 16; ++i) {
    __m512i row[2] = {v[0][i], v[1][i]};
    std::size_t r[2] = {i, 16 + i};
    if constexpr (code_bytes(F) == 1) {  // even and odd words of two rows
      row[0] = _mm512_mask_blend_epi16(kOddWords, v[0][i], _mm512_slli_epi32(v[1][i], 16));
      row[1] = _mm512_mask_blend_epi16(kOddWords, _mm512_srli_epi32(v[0][i], 16), v[1][i]);
      r[0] = pair_row(i);
      r[1] = pair_row(i) + 1;
    }
    for (int j = 0; j < 2; ++j) {
      if (r[j] < rows) store_elements<F>(first + r[j] * stride, elements, row[j]);
    }
  }
}

template <Format F>
void unpack(const UnpackWeightsArgs& a) {
  constexpr std::size_t kSize = code_bytes(F), kStep = kLine / kSize;
  const std::size_t lines = (a.k + 1) / 2 * packed_tile_bytes(F) / kLine;
  const std::size_t stride = a.dst_stride * kSize;
  for (std::size_t s = a.strip_begin; s < a.strip_end; ++s) {
    const char* strip = static_cast<const char*>(a.packed) + s * lines * kLine;
    char* dst = static_cast<char*>(a.dst) + s * kStrip * stride;
    const std::size_t rows = a.n - s * kStrip < kStrip ? a.n - s * kStrip : kStrip;
    for (std::size_t k = 0; k < a.k; k += kStep) {
      unpack_piece<F>(strip, k / kStep * 32, lines, dst + k * kSize, stride, rows, a.k - k);
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

}  // namespace octavo::kernels::avx512bf16
