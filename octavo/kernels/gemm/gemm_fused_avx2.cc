// Products of few rows with AVX2, in order C: weights are decoded in registers, once for each pass
// of up to 6 rows, and multiplied at once. Passes of up to 3 rows take a strip's 32 columns
// together, higher ones take two halves of 16, one block of k after the other from L1.
//
// e4m3fn by half precision comes out as 2^-8 of its value. That is undone on the sum of a block,
// exactly, as long as no sum can be rounded differently for it (activations_in_range); and its NaN
// codes, which come out as 480, are looked for apart: a column that holds one is all NaN.
//
// 4096 x 4096 weights from memory, one thread of a 2-core Intel Emerald Rapids VM (15 GB/s read by
// one thread, 94 GFLOP/s of ymm multiply-adds), percent of the read rate:
//   e4m3fn    68 with 1 row, 61 with 2, 50 with 3, 42 with 4, 32 with 6
//   e5m2      73, 65, -, 41     bf16  83 with 1 row, 59 with 4     f32  90 and 74
//   fnuz      32 with 1 row, 26 with 4 (vgatherdps from a table)
#include "octavo/kernels/gemm/gemm_lanes_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

// How far ahead weights are prefetched.
constexpr std::size_t kAheadBytes = 8192;

template <Decode decode>
void prefetch_ahead(const std::uint8_t* tile) {
  for (std::size_t i = 0; i < tile_bytes(decode); i += 64) {
    _mm_prefetch(ahead_of(tile, kAheadBytes + i), _MM_HINT_T0);
  }
}

struct Strip {
  std::size_t index;
  const std::uint8_t* tiles;
  // For each byte of a tile (a column and a parity of k), the largest magnitude of all codes.
  alignas(64) std::uint8_t largest[64];
};

// Rows of a panel, from `row` on.
struct Pass {
  std::size_t panel, row;
};

// Tiles of one block into acc[row][vector]; vectors from 2h on.
template <Decode decode, std::size_t rows, std::size_t vectors>
void multiply(const std::uint8_t* tile, std::size_t pairs, const float* a, std::size_t stride,
              const float* table, std::size_t h, __m256 (&acc)[rows][vectors]) {
  for (std::size_t p = 0; p < pairs; ++p, tile += tile_bytes(decode), a += 2 * stride) {
    prefetch_ahead<decode>(tile);
#pragma GCC unroll 2
    for (std::size_t i = 0; i < vectors / 2; ++i) {
      const HalfTile half = decode_half_tile<decode>(tile, h + i, table);
#pragma GCC unroll 6
      for (std::size_t r = 0; r < rows; ++r) {
        const __m256 odd = _mm256_broadcast_ss(a + stride + r);
        acc[r][2 * i] = _mm256_fmadd_ps(odd, half.odd[0], acc[r][2 * i]);
        acc[r][2 * i + 1] = _mm256_fmadd_ps(odd, half.odd[1], acc[r][2 * i + 1]);
      }
#pragma GCC unroll 6
      for (std::size_t r = 0; r < rows; ++r) {
        const __m256 even = _mm256_broadcast_ss(a + r);
        acc[r][2 * i] = _mm256_fmadd_ps(even, half.even[0], acc[r][2 * i]);
        acc[r][2 * i + 1] = _mm256_fmadd_ps(even, half.even[1], acc[r][2 * i + 1]);
      }
    }
  }
}

void note_largest(const std::uint8_t* tiles, std::size_t pairs, std::uint8_t* largest) {
  const __m256i magnitude = _mm256_set1_epi8(0x7F);
  auto* noted = reinterpret_cast<__m256i*>(largest);
  __m256i low = noted[0], high = noted[1];
  for (std::size_t p = 0; p < pairs; ++p) {
    low = _mm256_max_epu8(low, _mm256_and_si256(load_256(tiles + 64 * p), magnitude));
    high = _mm256_max_epu8(high, _mm256_and_si256(load_256(tiles + 64 * p + 32), magnitude));
  }
  noted[0] = low, noted[1] = high;
}

// Ones in the columns of vector v that hold the NaN code 0x7F.
__m256 nan_columns(const std::uint8_t* largest, std::size_t v) {
  const __m128i codes = _mm_load_si128(reinterpret_cast<const __m128i*>(largest + 16 * v));
  const __m256i found = _mm256_cvtepu16_epi32(_mm_cmpeq_epi8(codes, _mm_set1_epi8(0x7F)));
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(found, _mm256_setzero_si256()));
}

template <Decode decode, std::size_t rows>
void run_pass(const GemmArgs& args, Strip& strip, const Pass& pass, const float* table) {
  constexpr std::size_t kVectors = rows <= 3 ? 4 : 2;
  constexpr bool kScaled = decode == Decode::e4m3fn_scaled;
  alignas(32) float totals[rows][kStrip] = {};
  const std::size_t panels = panel_count(args);
  const std::size_t m = pass.panel * args.panel_rows + pass.row;
  const std::size_t scale_stride = args.activation_scale.index_stride;
  for (std::size_t kb = 0; kb * args.k_block < args.k; ++kb) {
    const Block block = block_at(args, panels, kb);
    const std::uint8_t* tiles = strip.tiles + block.pair * tile_bytes(decode);
    const float* a = block.activations + pass.panel * block.panel_cells + pass.row;
    const float* of_strip = scale_at(args.weight_scale, strip.index, kb);
    for (std::size_t h = 0; h < 2; h += kVectors / 2) {
      __m256 acc[rows][kVectors];
      for (auto& row : acc) {
        for (__m256& x : row) x = _mm256_setzero_ps();
      }
      multiply<decode, rows, kVectors>(tiles, block.pairs, a, args.panel_rows, table, h, acc);
#pragma GCC unroll 6
      for (std::size_t r = 0; r < rows; ++r) {
        const __m256 of_row = _mm256_broadcast_ss(block.row_scales + (m + r) * scale_stride);
#pragma GCC unroll 4
        for (std::size_t v = 0; v < kVectors; ++v) {
          const __m256 sum = kScaled ? _mm256_mul_ps(acc[r][v], _mm256_set1_ps(256.0f)) : acc[r][v];
          const __m256 scale = _mm256_mul_ps(
              weight_scale<is_natural(decode)>(args.weight_scale, of_strip, 2 * h + v), of_row);
          float* tot = totals[r] + 16 * h + 8 * v;
          _mm256_store_ps(tot, _mm256_fmadd_ps(sum, scale, _mm256_load_ps(tot)));
        }
      }
    }
    if (kScaled && m == 0) note_largest(tiles, block.pairs, strip.largest);
  }
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t v = 0; v < 4 && kScaled; ++v) {
      float* tot = totals[r] + 8 * v;
      _mm256_store_ps(tot, _mm256_or_ps(_mm256_load_ps(tot), nan_columns(strip.largest, v)));
    }
    store_row<is_natural(decode)>(args, m + r, strip.index, totals[r]);
  }
}

template <Decode decode>
void gemm(const GemmArgs& args, const float* table) {
  using RunPass = void (*)(const GemmArgs&, Strip&, const Pass&, const float*);
  constexpr RunPass kByRows[kTileRows] = {run_pass<decode, 1>, run_pass<decode, 2>,
                                          run_pass<decode, 3>, run_pass<decode, 4>,
                                          run_pass<decode, 5>, run_pass<decode, 6>};
  const std::size_t strip_bytes = (args.k + 1) / 2 * tile_bytes(decode);
  const Panels panels = panels_of(args);
  for (std::size_t s = args.strip_begin; s < args.strip_end; ++s) {
    Strip strip = {s, static_cast<const std::uint8_t*>(args.weights) + s * strip_bytes, {}};
    for (std::size_t p = 0; p < panels.count; ++p) {
      const Passes& passes = panels.passes(p);
      for (std::size_t i = 0, row = 0; i < passes.count; row += passes.height_of(i++)) {
        kByRows[passes.height_of(i) - 1](args, strip, {p, row}, table);
      }
    }
  }
}

// Whether 2^-8 of every product of an activation and an e4m3fn number, and of every sum of 128 of
// them, rounds as the whole one does: no sum overflows, and all are multiples of the smallest
// denormal. Activations are 0 or from 2^-109 (units of 2^-132, those of weights 2^-9, 2^-149 with
// the factor) to 2^111 (128 x 448 x 2^111 < 2^127).
bool activations_in_range(const GemmArgs& args) {
  const std::size_t chunks = (args.k + kChunk - 1) / kChunk;
  const std::size_t cells = chunks * kChunk * panel_count(args) * args.panel_rows;
  const auto* bits = static_cast<const __m256i*>(args.activations);
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF), one = _mm256_set1_epi32(1);
  __m256i largest = _mm256_setzero_si256(), smallest = _mm256_set1_epi32(-1);
  for (std::size_t i = 0; i < cells / 8; ++i) {
    const __m256i x = _mm256_and_si256(_mm256_loadu_si256(bits + i), magnitude);
    largest = _mm256_max_epu32(largest, x);
    smallest = _mm256_min_epu32(smallest, _mm256_sub_epi32(x, one));  // 0 becomes the largest
  }
  const __m256i lower = _mm256_set1_epi32(((127 - 109) << 23) - 1);
  const __m256i upper = _mm256_set1_epi32((127 + 111) << 23);
  const __m256i in_range =
      _mm256_and_si256(_mm256_cmpeq_epi32(_mm256_max_epu32(smallest, lower), smallest),
                       _mm256_cmpeq_epi32(_mm256_min_epu32(largest, upper), largest));
  return _mm256_movemask_epi8(in_range) == -1;
}

}  // namespace

void gemm_fused_fma(const GemmArgs& args) {
  check(args, Arithmetic::fma);
  alignas(64) float table[256];
  switch (args.weight_format) {
    case Format::e4m3fn:
      return activations_in_range(args) ? gemm<Decode::e4m3fn_scaled>(args, nullptr)
                                        : gemm<Decode::e4m3fn>(args, nullptr);
    case Format::e5m2:
      return gemm<Decode::e5m2>(args, nullptr);
    case Format::bf16:
      return gemm<Decode::bf16>(args, nullptr);
    case Format::f32:
      return gemm<Decode::f32>(args, nullptr);
    default:
      fill_fnuz_table(args.weight_format, table);
      return gemm<Decode::table>(args, table);
  }
}

}  // namespace octavo::kernels::avx2
