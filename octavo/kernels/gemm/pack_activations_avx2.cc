// Activations to panels with AVX2, by way of dwords as in pack_activations_avx512bf16.cc, 8 rows at
// a time. Everything is decoded to f32 first, by gathering where it is codes; cells for dot are
// merged from the upper halves of two. Within L2, one thread of a 2-core Intel Emerald Rapids VM:
// 19 to 39 GB/s of f32 cells from f32, 19 to 20 from bf16, 12 to 15 from codes (gathers).
#include "octavo/kernels/gemm/gemm_internal.h"
#include "octavo/kernels/gemm/pack_lanes_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

// What dwords hold: f32, bf16, or codes of an 8-bit format with or without the NaN 0x80.
enum class Source { f32, bf16, codes, codes_fnuz };

constexpr std::size_t elements_per_dword(Source source) {
  return source == Source::f32 ? 1 : source == Source::bf16 ? 2 : 4;
}
constexpr std::size_t code_bytes(Source source) { return 4 / elements_per_dword(source); }

template <Source S>
struct Decoder {
  const DecodeTable* table;  // of codes
  __m256i flush_below;       // bf16 magnitude as f32 bits

  // f32 of element i of each dword.
  __m256i element(__m256i dwords, int i) const {
    if constexpr (S == Source::f32) {
      return dwords;
    } else if constexpr (S == Source::bf16) {
      return fix_bf16(i == 0 ? _mm256_slli_epi32(dwords, 16)
                             : _mm256_and_si256(dwords, _mm256_set1_epi32(-0x10000)));
    } else {
      return decode_codes(_mm256_srl_epi32(dwords, _mm_cvtsi32_si128(8 * i)));
    }
  }

 private:
  __m256i fix_bf16(__m256i bits) const {
    bits = _mm256_castps_si256(canonical_nan(_mm256_castsi256_ps(bits)));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(flush_below, magnitude), bits);
  }

  // Of the low bytes.
  __m256i decode_codes(__m256i codes) const {
    const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi32(0x7F));
    const __m256i minus_zero = _mm256_set1_epi32(static_cast<int>(0x80000000));
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(codes, 24), minus_zero);
    const __m256 value = _mm256_i32gather_ps(table->value, magnitude, 4);
    const __m256i bits = _mm256_or_si256(_mm256_castps_si256(value), sign);
    if constexpr (S != Source::codes_fnuz) return bits;
    return _mm256_blendv_epi8(bits, _mm256_set1_epi32(static_cast<int>(0xFFC00000)),
                              _mm256_cmpeq_epi32(bits, minus_zero));
  }
};

// f32 cells of k and k + 1 to bf16 pairs.
__m256i pair_cells(__m256i even, __m256i odd) {
  return _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xAA);
}

// Up to 8 rows of a panel in one chunk.
struct Group {
  const char* src;     // of the first row, or of the first column where transposed
  std::size_t stride;  // bytes
  std::size_t rows;    // that there are
  std::size_t k;       // from src on, at most kChunk
  std::uint32_t* cells;
  std::size_t panel_rows;
  std::size_t lanes;  // of the panel's rows
};

void store_cells(std::uint32_t* to, std::size_t lanes, __m256i cells) {
  if (lanes >= 8) return store_256(to, cells, false);
  const __m256i wanted = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(lanes)),
                                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  _mm256_maskstore_epi32(reinterpret_cast<int*>(to), wanted, cells);
}

// The cells of one dword of 8 rows; returns where the next ones go.
template <Source S, Arithmetic A>
std::uint32_t* store_dwords(__m256i dwords, const Decoder<S>& decode, const Group& g,
                            std::uint32_t* to) {
  constexpr int kElements = static_cast<int>(elements_per_dword(S));
  constexpr int kPerCell = A == Arithmetic::fma ? 1 : 2;
  for (int i = 0; i < kElements; i += kPerCell, to += g.panel_rows) {
    const __m256i cells = decode.element(dwords, i);
    if constexpr (A == Arithmetic::fma) {
      store_cells(to, g.lanes, cells);
    } else {
      store_cells(to, g.lanes, pair_cells(cells, decode.element(dwords, i + 1)));
    }
  }
  return to;
}

template <Source S, Arithmetic A>
void pack_rows(const Group& g, const Decoder<S>& decode) {
  constexpr std::size_t kStep = 8 * elements_per_dword(S);
  std::uint32_t* to = g.cells;
  for (std::size_t k = 0; k < kChunk; k += kStep) {
    __m256i v[8];
    for (std::size_t r = 0; r < 8; ++r) {
      v[r] = r < g.rows && k < g.k
                 ? load_bytes(g.src + r * g.stride + k * code_bytes(S), (g.k - k) * code_bytes(S))
                 : _mm256_setzero_si256();
    }
    transpose8(v);
    for (const __m256i dwords : v) to = store_dwords<S, A>(dwords, decode, g, to);
  }
}

// 8 elements, or the first `count` ones and zeros.
template <Source S>
__m256i load8(const char* from, std::size_t count) {
  if (count < 8) return load_bytes(from, count * code_bytes(S));
  const auto* bits = reinterpret_cast<const __m128i*>(from);
  if constexpr (S == Source::f32) return load_bytes(from, 32);
  if constexpr (S == Source::bf16) return _mm256_zextsi128_si256(_mm_loadu_si128(bits));
  return _mm256_zextsi128_si256(_mm_loadl_epi64(bits));
}

// One row: cells follow each other in k as elements do.
template <Source S, Arithmetic A>
void pack_one_row(const Group& g, const Decoder<S>& decode) {
  auto* to = reinterpret_cast<char*>(g.cells);
  for (std::size_t k = 0; k < kChunk; k += 8) {
    __m256i v = _mm256_setzero_si256();
    if (k < g.k) {
      v = load8<S>(g.src + k * code_bytes(S), g.k - k);
      const __m128i low = _mm256_castsi256_si128(v);
      if constexpr (S == Source::bf16) v = _mm256_cvtepu16_epi32(low);
      if constexpr (code_bytes(S) == 1) v = _mm256_cvtepu8_epi32(low);
      v = decode.element(v, 0);
    }
    if constexpr (A == Arithmetic::fma) {
      store_256(to, v, false);
      to += 32;
    } else {
      const __m256i words = pack_words(_mm256_srli_epi32(v, 16), _mm256_setzero_si256());
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(words));
      to += 16;
    }
  }
}

// The dwords of 8 columns that start in row k of a transposed source.
template <Source S>
__m256i gather_dwords(const Group& g, std::size_t k) {
  const auto row = [&g, k](std::size_t i) {
    return load8<S>(g.src + (k + i) * g.stride, k + i < g.k ? g.rows : 0);
  };
  const auto low = [&row](std::size_t i) { return _mm256_castsi256_si128(row(i)); };
  if constexpr (S == Source::f32) {
    return row(0);
  } else if constexpr (S == Source::bf16) {
    const __m128i even = low(0), odd = low(1);
    return _mm256_set_m128i(_mm_unpackhi_epi16(even, odd), _mm_unpacklo_epi16(even, odd));
  } else {
    const __m128i first = _mm_unpacklo_epi8(low(0), low(1));
    const __m128i second = _mm_unpacklo_epi8(low(2), low(3));
    return _mm256_set_m128i(_mm_unpackhi_epi16(first, second), _mm_unpacklo_epi16(first, second));
  }
}

template <Source S, Arithmetic A>
void pack_columns(const Group& g, const Decoder<S>& decode) {
  std::uint32_t* to = g.cells;
  for (std::size_t k = 0; k < kChunk; k += elements_per_dword(S)) {
    to = store_dwords<S, A>(gather_dwords<S>(g, k), decode, g, to);
  }
}

std::size_t smaller(std::size_t a, std::size_t b) { return a < b ? a : b; }

template <Source S, Arithmetic A>
void pack(const PackActivationsArgs& a, const DecodeTable* table) {
  const std::size_t panel_rows = kernels::panel_rows(a.m);
  const std::size_t panels = (a.m + panel_rows - 1) / panel_rows;
  const std::size_t panel_cells = (A == Arithmetic::fma ? kChunk : kChunk / 2) * panel_rows;
  const Decoder<S> decode = {table, _mm256_castps_si256(_mm256_set1_ps(a.flush_below))};
  for (std::size_t chunk = a.chunk_begin; chunk < a.chunk_end; ++chunk) {
    for (std::size_t panel = a.panel_begin; panel < a.panel_end; ++panel) {
      for (std::size_t row = 0; row < panel_rows; row += 8) {
        const std::size_t m = panel * panel_rows + row, k = chunk * kChunk;
        const std::size_t src_row = m - a.src_row;
        const std::size_t at = m >= a.m       ? 0
                               : a.transposed ? k * a.src_stride + src_row
                                              : src_row * a.src_stride + k;
        const Group group = {
            static_cast<const char*>(a.src) + at * code_bytes(S),
            a.src_stride * code_bytes(S),
            m < a.m ? smaller(a.m - m, 8) : 0,
            smaller(a.k - k, kChunk),
            static_cast<std::uint32_t*>(a.packed) + (chunk * panels + panel) * panel_cells + row,
            panel_rows,
            panel_rows - row};
        if (a.transposed) {
          pack_columns<S, A>(group, decode);
        } else if (panel_rows == 1) {
          pack_one_row<S, A>(group, decode);
        } else {
          pack_rows<S, A>(group, decode);
        }
      }
    }
  }
}

template <Source S>
void pack_as(const PackActivationsArgs& a, const DecodeTable* table) {
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
      return pack_as<Source::codes>(a, &kDecodeTable_e4m3fn);
    case Format::e5m2:
      return pack_as<Source::codes>(a, &kDecodeTable_e5m2);
    case Format::e4m3fnuz:
      return pack_as<Source::codes_fnuz>(a, &kDecodeTable_e4m3fnuz);
    default:
      return pack_as<Source::codes_fnuz>(a, &kDecodeTable_e5m2fnuz);
  }
}

}  // namespace octavo::kernels::avx2
