// Activations to panels with AVX-512.
//
// Everything goes by way of dwords of 1 f32, 2 bf16 or 4 codes that follow each other in k: a
// vector of the same dword of 16 rows is decoded to one or more vectors of cells. Row-major sources
// are transposed to such vectors, 16 rows or, where there are no more, 4 at a time; transposed
// sources have 1, 2 or 4 rows interleaved. To f32 cells within L2, one thread of a 2-core Intel
// Emerald Rapids VM: 30 to 54 GB/s of cells from f32, 34 to 37 from bf16, 30 to 37 from codes.
#include "octavo/kernels/gemm/gemm_internal.h"
#include "octavo/kernels/gemm/pack_lanes_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {
namespace {

// What dwords hold: f32, bf16, or codes of an 8-bit format with or without the NaN 0x80.
enum class Source { f32, bf16, codes, codes_fnuz };

constexpr std::size_t elements_per_dword(Source source) {
  return source == Source::f32 ? 1 : source == Source::bf16 ? 2 : 4;
}
constexpr std::size_t code_bytes(Source source) { return 4 / elements_per_dword(source); }

template <Source S, Arithmetic A>
struct Decoder {
  static constexpr std::size_t kCells =
      A == Arithmetic::fma ? elements_per_dword(S) : elements_per_dword(S) / 2;
  const Bf16Table* table;  // of codes
  __m512i flush_below;     // bf16 magnitude in each word

  // bf16 words, flushed, with canonical NaN.
  __m512i fix_words(__m512i words) const {
    const __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7FFF));
    const __mmask32 is_nan = _mm512_cmpgt_epu16_mask(magnitude, _mm512_set1_epi16(0x7F80));
    const __m512i sign = _mm512_andnot_si512(_mm512_set1_epi16(0x7FFF), words);
    words = _mm512_mask_mov_epi16(words, is_nan, _mm512_or_si512(sign, _mm512_set1_epi16(0x7FC0)));
    return flush_words(words, flush_below);
  }

  // Low and high bytes of the bf16 of 64 codes.
  void bytes(__m512i codes, __m512i& low, __m512i& high) const {
    low = _mm512_permutex2var_epi8(_mm512_load_si512(table->low), codes,
                                   _mm512_load_si512(table->low + 64));
    high = _mm512_permutex2var_epi8(_mm512_load_si512(table->high), codes,
                                    _mm512_load_si512(table->high + 64));
    high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-0x80), 0xF8);  // a | (b & c)
    if constexpr (S == Source::codes_fnuz) {
      const __mmask64 is_nan = _mm512_cmpeq_epi8_mask(codes, _mm512_set1_epi8(-0x80));
      low = _mm512_mask_mov_epi8(low, is_nan, _mm512_set1_epi8(-0x40));  // 0xFFC0
      high = _mm512_mask_mov_epi8(high, is_nan, _mm512_set1_epi8(-1));
    }
  }

  // Cells of dwords, lane by lane; those of later k in later vectors.
  void operator()(__m512i dwords, __m512i cells[kCells]) const {
    if constexpr (S == Source::f32) {
      cells[0] = dwords;
    } else if constexpr (S == Source::bf16) {
      pair_cells(fix_words(dwords), cells);
    } else {
      const __m512i pairs_apart = _mm512_broadcast_i32x4(
          _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
      __m512i low, high;
      bytes(_mm512_shuffle_epi8(dwords, pairs_apart), low, high);
      pair_cells(_mm512_unpacklo_epi8(low, high), cells);
      pair_cells(_mm512_unpackhi_epi8(low, high), cells + kCells / 2);
    }
  }

 private:
  static void pair_cells(__m512i pairs, __m512i* cells) {
    if constexpr (A == Arithmetic::dot) {
      cells[0] = pairs;
    } else {
      cells[0] = _mm512_slli_epi32(pairs, 16);
      cells[1] = _mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000));
    }
  }
};

// 16 dwords of a row, or its last `elements` elements; bytes beyond are zero.
template <Source S>
__m512i load_dwords(const char* from, std::size_t elements) {
  if constexpr (S == Source::f32) {
    return _mm512_maskz_loadu_epi32(first_lanes16(elements), from);
  } else if constexpr (S == Source::bf16) {
    return _mm512_maskz_loadu_epi16(first_lanes32(elements), from);
  } else {
    return _mm512_maskz_loadu_epi8(first_lanes64(elements), from);
  }
}

// Up to 16 rows of a panel in one chunk.
struct Group {
  const char* src;     // of the first row, or of the first column where transposed
  std::size_t stride;  // bytes
  std::size_t rows;    // that there are
  std::size_t k;       // from src on, at most kChunk
  std::uint32_t* cells;
  std::size_t panel_rows;
  __mmask16 lanes;  // of the panel's rows
};

// Row-major, 16 rows.
template <Source S, Arithmetic A>
void pack_rows(const Group& g, const Decoder<S, A>& decode) {
  constexpr std::size_t kCells = Decoder<S, A>::kCells, kStep = 16 * elements_per_dword(S);
  std::uint32_t* to = g.cells;
  for (std::size_t k = 0; k < kChunk; k += kStep) {
    __m512i v[16];
    for (std::size_t r = 0; r < 16; ++r) {
      v[r] = r < g.rows && k < g.k
                 ? load_dwords<S>(g.src + r * g.stride + k * code_bytes(S), g.k - k)
                 : _mm512_setzero_si512();
    }
    transpose16(v);
    for (const __m512i dwords : v) {
      __m512i cells[kCells];
      decode(dwords, cells);
      for (std::size_t i = 0; i < kCells; ++i, to += g.panel_rows) {
        _mm512_mask_storeu_epi32(to, g.lanes, cells[i]);
      }
    }
  }
}

// Row-major, at most 4 rows.
template <Source S, Arithmetic A>
void pack_few_rows(const Group& g, const Decoder<S, A>& decode) {
  constexpr std::size_t kCells = Decoder<S, A>::kCells, kStep = 16 * elements_per_dword(S);
  const unsigned lanes = g.lanes & 0xF;
  for (std::size_t k = 0, cell = 0; k < kChunk; k += kStep, cell += 16 * kCells) {
    __m512i v[4];
    for (std::size_t r = 0; r < 4; ++r) {
      v[r] = r < g.rows && k < g.k
                 ? load_dwords<S>(g.src + r * g.stride + k * code_bytes(S), g.k - k)
                 : _mm512_setzero_si512();
    }
    transpose4(v);
    for (std::size_t d = 0; d < 4; ++d) {
      __m512i cells[kCells];
      decode(v[d], cells);
      for (std::size_t i = 0; i < kCells; ++i) {
        // 16-byte lane j goes 4 * kCells * j cells on. No extraction: g++ 12 merges it with the
        // store to a masked vextracti32x4, which faults on what the mask leaves out.
        std::uint32_t* to = g.cells + (cell + d * kCells + i) * g.panel_rows;
        for (std::size_t j = 0; j < 4; ++j) {
          _mm512_mask_storeu_epi32(to + 4 * j * kCells * g.panel_rows - 4 * j,
                                   static_cast<__mmask16>(lanes << 4 * j), cells[i]);
        }
      }
    }
  }
}

// Row-major, one row: cells follow each other in k as elements do.
template <Source S, Arithmetic A>
void pack_one_row(const Group& g, const Decoder<S, A>& decode) {
  constexpr std::size_t kStep = S == Source::f32 ? 16 : 32;
  std::uint32_t* to = g.cells;
  for (std::size_t k = 0; k < kChunk; k += kStep) {
    __m512i v = _mm512_setzero_si512();
    if (k < g.k) {
      const char* from = g.src + k * code_bytes(S);
      if constexpr (code_bytes(S) == 1) {
        const __m256i codes = _mm256_maskz_loadu_epi8(first_lanes32(g.k - k), from);
        __m512i low, high;
        decode.bytes(_mm512_cvtepu8_epi16(codes), low, high);
        v = _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAA, low, _mm512_slli_epi16(high, 8));
      } else {
        v = load_dwords<S>(from, g.k - k);
        if constexpr (S == Source::bf16) v = decode.fix_words(v);
      }
    }
    if constexpr (S == Source::f32 || A == Arithmetic::dot) {
      _mm512_storeu_si512(to, v);
      to += 16;
    } else {
      const __m512i first = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(v));
      const __m512i second = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(v, 1));
      _mm512_storeu_si512(to, _mm512_slli_epi32(first, 16));
      _mm512_storeu_si512(to + 16, _mm512_slli_epi32(second, 16));
      to += 32;
    }
  }
}

alignas(64) constexpr std::uint16_t kInterleave2[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
alignas(64) constexpr std::uint8_t kInterleave4[64] = {
    0,  16, 32, 48, 1,  17, 33, 49, 2,  18, 34, 50, 3,  19, 35, 51, 4,  20, 36, 52, 5,  21,
    37, 53, 6,  22, 38, 54, 7,  23, 39, 55, 8,  24, 40, 56, 9,  25, 41, 57, 10, 26, 42, 58,
    11, 27, 43, 59, 12, 28, 44, 60, 13, 29, 45, 61, 14, 30, 46, 62, 15, 31, 47, 63};

// The dwords of 16 columns that start in row k of a transposed source.
template <Source S>
__m512i gather_dwords(const Group& g, std::size_t k) {
  const auto lanes = first_lanes16(g.rows);
  const auto at = [&g, k](std::size_t i) { return g.src + (k + i) * g.stride; };
  if constexpr (S == Source::f32) {
    return k < g.k ? _mm512_maskz_loadu_epi32(lanes, at(0)) : _mm512_setzero_si512();
  } else if constexpr (S == Source::bf16) {
    const auto row = [&](std::size_t i) {
      return k + i < g.k ? _mm256_maskz_loadu_epi16(lanes, at(i)) : _mm256_setzero_si256();
    };
    const __m512i rows = _mm512_inserti64x4(_mm512_castsi256_si512(row(0)), row(1), 1);
    return _mm512_permutexvar_epi16(_mm512_load_si512(kInterleave2), rows);
  } else {
    const auto row = [&](std::size_t i) {
      return k + i < g.k ? _mm_maskz_loadu_epi8(lanes, at(i)) : _mm_setzero_si128();
    };
    __m512i rows = _mm512_castsi128_si512(row(0));
    rows = _mm512_inserti32x4(rows, row(1), 1);
    rows = _mm512_inserti32x4(rows, row(2), 2);
    rows = _mm512_inserti32x4(rows, row(3), 3);
    return _mm512_permutexvar_epi8(_mm512_load_si512(kInterleave4), rows);
  }
}

template <Source S, Arithmetic A>
void pack_columns(const Group& g, const Decoder<S, A>& decode) {
  constexpr std::size_t kCells = Decoder<S, A>::kCells;
  std::uint32_t* to = g.cells;
  for (std::size_t k = 0; k < kChunk; k += elements_per_dword(S)) {
    __m512i cells[kCells];
    decode(gather_dwords<S>(g, k), cells);
    for (std::size_t i = 0; i < kCells; ++i, to += g.panel_rows) {
      _mm512_mask_storeu_epi32(to, g.lanes, cells[i]);
    }
  }
}

std::size_t smaller(std::size_t a, std::size_t b) { return a < b ? a : b; }

template <Source S, Arithmetic A>
void pack(const PackActivationsArgs& a, const Bf16Table* table) {
  const std::size_t panel_rows = kernels::panel_rows(a.m);
  const std::size_t panels = (a.m + panel_rows - 1) / panel_rows;
  const std::size_t panel_cells = (A == Arithmetic::fma ? kChunk : kChunk / 2) * panel_rows;
  const int flush_bits = _mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(a.flush_below)));
  const Decoder<S, A> decode = {table, _mm512_set1_epi16(static_cast<short>(flush_bits >> 16))};
  for (std::size_t chunk = a.chunk_begin; chunk < a.chunk_end; ++chunk) {
    for (std::size_t panel = a.panel_begin; panel < a.panel_end; ++panel) {
      for (std::size_t row = 0; row < panel_rows; row += 16) {
        const std::size_t m = panel * panel_rows + row, k = chunk * kChunk;
        const std::size_t src_row = m - a.src_row;
        const std::size_t at = m >= a.m       ? 0
                               : a.transposed ? k * a.src_stride + src_row
                                              : src_row * a.src_stride + k;
        const Group group = {
            static_cast<const char*>(a.src) + at * code_bytes(S),
            a.src_stride * code_bytes(S),
            m < a.m ? smaller(a.m - m, 16) : 0,
            smaller(a.k - k, kChunk),
            static_cast<std::uint32_t*>(a.packed) + (chunk * panels + panel) * panel_cells + row,
            panel_rows,
            first_lanes16(panel_rows - row)};
        if (a.transposed) {
          pack_columns(group, decode);
        } else if (panel_rows == 1) {
          pack_one_row(group, decode);
        } else if (panel_rows <= 4) {
          pack_few_rows(group, decode);
        } else {
          pack_rows(group, decode);
        }
      }
    }
  }
}

template <Source S>
void pack_as(const PackActivationsArgs& a, const Bf16Table* table) {
  if (a.arithmetic == Arithmetic::fma) return pack<S, Arithmetic::fma>(a, table);
  if constexpr (S != Source::f32) pack<S, Arithmetic::dot>(a, table);
}

}  // namespace

void pack_activations(const PackActivationsArgs& a) {
  check(a);
  switch (a.src_format) {
    case Format::f32:
      return pack_as<Source::f32>(a, nullptr);
    case Format::bf16:
      return pack_as<Source::bf16>(a, nullptr);
    case Format::e4m3fn:
      return pack_as<Source::codes>(a, &kBf16Table_e4m3fn);
    case Format::e5m2:
      return pack_as<Source::codes>(a, &kBf16Table_e5m2);
    case Format::e4m3fnuz:
      return pack_as<Source::codes_fnuz>(a, &kBf16Table_e4m3fnuz);
    default:
      return pack_as<Source::codes_fnuz>(a, &kBf16Table_e5m2fnuz);
  }
}

}  // namespace octavo::kernels::avx512bf16
