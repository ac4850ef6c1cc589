// The fused product: weights are decoded in registers and used at once for up to kFusedRows rows;
// nothing but packed bytes is read. For few rows, where the reading of weights is the limit; more
// rows are taken in passes over a strip, which then comes from L2.
//
// Codes become bf16 by two lookups of 128 bytes and an interleave, pairs f32 by a shift and a mask.
// `fma`, 4096 x 4096 e4m3fn from memory, one thread of a 2-core Intel Emerald Rapids VM, percent of
// the read rate: 89 with 1 row, 86 with 2, 72 with 3, 64 with 4; bf16 95 with 1 row.
#pragma once

#include "octavo/kernels/gemm/gemm_lanes_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {

// 2 accumulators a row, 4 operands, 4 tables, 2 constants, 1 broadcast of 32 registers.
constexpr std::size_t kFusedRows = 10;

// What suits an arithmetic with M rows: strips side by side, tiles of a strip at once, and how far
// ahead a strip is read.
//   dot  One sequential stream and four tiles at once for one or two rows: 94 % of what memory
//        gives on Zen 5, which does two vdpbf16ps a cycle; several strips at once 92 % or less.
//   fma  Decoding takes 6.5 cycles a tile on a core with two 512-bit ports and chains take 8, so
//        that several strips are needed: one row, 72 % with one strip, 82 % with
//        two, 89 % with four; 2 KiB ahead equal to 4 and better than 8.
struct FusedShape {
  std::size_t strips;
  std::size_t tiles;
  std::size_t ahead;  // bytes
};
template <Arithmetic A, int M>
constexpr FusedShape kFusedShape = [] {
  if (A == Arithmetic::dot) return FusedShape{1, M <= 2 ? 4u : M == 3 ? 2u : 1u, 8192};
  if (M <= 2) return FusedShape{4, 2, 2048};
  return FusedShape{M <= 5 ? 2u : 1u, 1, 2048};
}();

// Rows row .. row + M - 1, which lie in one panel, of strips strip .. strip + S - 1.
template <Arithmetic A, int M, std::size_t S, class Weights>
[[gnu::noinline]] static void fused_rows(const GemmArgs& g, const Weights& weights,
                                         std::size_t strip, std::size_t row, bool prefetch) {
  constexpr FusedShape kShape = kFusedShape<A, M>;
  constexpr std::size_t kTotFloats = static_cast<std::size_t>(M) * kStrip;
  alignas(64) float tot[S * kTotFloats] = {};
  const std::size_t pairs = (g.k + 1) / 2, strip_bytes = pairs * Weights::kTileBytes;
  const char* tile = static_cast<const char*>(g.weights) + strip * strip_bytes;
  const std::size_t panels = (g.m + g.panel_rows - 1) / g.panel_rows;
  const std::size_t chunk_cells = kChunk / 2 * kCellsPerPair<A> * g.panel_rows;
  const float* panel = static_cast<const float*>(g.activations) + row / g.panel_rows * chunk_cells +
                       row % g.panel_rows;
  const std::size_t pair_cells = kCellsPerPair<A> * g.panel_rows;
  const std::size_t near = prefetch ? kShape.ahead : 0;
  // Where the end of a strip is nearer than that, its stream goes on in the strip S further on:
  // with K = 2048 and one row, 89 % of the read rate instead of 72.
  const std::size_t turn = near == 0 || strip + S >= g.strip_end ? 0 : (S - 1) * strip_bytes;
  const std::size_t near_pairs = near / Weights::kTileBytes;
  const std::size_t turn_at = pairs < near_pairs ? 0 : pairs - near_pairs;

  for (std::size_t first = 0, kb = 0; first < pairs; first += g.k_block / 2, ++kb) {
    const std::size_t left = pairs - first;
    const std::size_t count = left < g.k_block / 2 ? left : g.k_block / 2;
    const float* a =
        panel + first / (kChunk / 2) * panels * chunk_cells + first % (kChunk / 2) * pair_cells;
    __m512 acc[S][M][2];
    for (auto& strip_acc : acc) {
      for (auto& pair : strip_acc) pair[0] = pair[1] = _mm512_setzero_ps();
    }
    std::size_t ahead = near;
    const auto one_tile = [&] {
#pragma GCC unroll 4
      for (std::size_t s = 0; s < S; ++s) {
        const char* p = tile + s * strip_bytes;
        for (std::size_t i = 0; i < Weights::kTileBytes; i += 64) {
          _mm_prefetch(ahead_of(p, ahead + i), _MM_HINT_T0);
        }
        step<A, M>(acc[s], weights.template tile<A>(p), a, g.panel_rows);
      }
      tile += Weights::kTileBytes;
      a += pair_cells;
    };
    std::size_t i = 0;
    for (; i + kShape.tiles <= count; i += kShape.tiles) {
      if (first + i >= turn_at) ahead = near + turn;
#pragma GCC unroll 4
      for (std::size_t u = 0; u < kShape.tiles; ++u) one_tile();
    }
    for (; i < count; ++i) one_tile();
    for (std::size_t s = 0; s < S; ++s) {
      fold<M>(acc[s], g, strip + s, row, kb, tot + s * kTotFloats);
    }
  }
  for (std::size_t s = 0; s < S; ++s) {
    for (std::size_t m = 0; m < M; ++m) {
      store_row(g, row + m, strip + s, tot + s * kTotFloats + m * kStrip);
    }
  }
}

// The rows of one pass over strips strip .. strip + strips - 1, and how many strips it took: as
// many as suit the arithmetic, or all that are left.
template <Arithmetic A, int M, std::size_t S, class Weights>
static inline std::size_t fused_strips(const GemmArgs& g, const Weights& w, std::size_t strip,
                                       std::size_t strips, std::size_t row, bool prefetch) {
  if constexpr (S > 1) {
    if (strips < S) return fused_strips<A, M, S - 1>(g, w, strip, strips, row, prefetch);
  }
  fused_rows<A, M, S>(g, w, strip, row, prefetch);
  return S;
}

template <Arithmetic A, int M, class Weights>
static inline std::size_t fused_strips(const GemmArgs& g, const Weights& w, std::size_t strip,
                                       std::size_t strips, std::size_t row, bool prefetch) {
  return fused_strips<A, M, kFusedShape<A, M>.strips>(g, w, strip, strips, row, prefetch);
}

template <Arithmetic A, class Weights>
static inline std::size_t fused_pass(const GemmArgs& g, const Weights& w, std::size_t strip,
                                     std::size_t strips, std::size_t row, std::size_t rows,
                                     bool prefetch) {
  switch (rows) {
    case 1:
      return fused_strips<A, 1>(g, w, strip, strips, row, prefetch);
    case 2:
      return fused_strips<A, 2>(g, w, strip, strips, row, prefetch);
    case 3:
      return fused_strips<A, 3>(g, w, strip, strips, row, prefetch);
    case 4:
      return fused_strips<A, 4>(g, w, strip, strips, row, prefetch);
    case 5:
      return fused_strips<A, 5>(g, w, strip, strips, row, prefetch);
    case 6:
      return fused_strips<A, 6>(g, w, strip, strips, row, prefetch);
    case 7:
      return fused_strips<A, 7>(g, w, strip, strips, row, prefetch);
    case 8:
      return fused_strips<A, 8>(g, w, strip, strips, row, prefetch);
    case 9:
      return fused_strips<A, 9>(g, w, strip, strips, row, prefetch);
    default:
      return fused_strips<A, 10>(g, w, strip, strips, row, prefetch);
  }
}

// Balanced passes within each panel: 17 rows as 9 + 8, never 10 + 7. Several passes go strip by
// strip, so that the later ones find it in L2.
template <Arithmetic A, class Weights>
static inline void fused(const GemmArgs& g, const Weights& w) {
  const bool one_pass = g.m <= kFusedRows;
  std::size_t taken = 1;
  for (std::size_t strip = g.strip_begin; strip < g.strip_end; strip += taken) {
    const std::size_t strips = one_pass ? g.strip_end - strip : 1;
    for (std::size_t first = 0; first < g.m; first += g.panel_rows) {
      const std::size_t rows = g.m - first < g.panel_rows ? g.m - first : g.panel_rows;
      const std::size_t passes = (rows + kFusedRows - 1) / kFusedRows;
      for (std::size_t pass = 0; pass < passes; ++pass) {
        const std::size_t begin = first + rows * pass / passes;
        const std::size_t end = first + rows * (pass + 1) / passes;
        taken = fused_pass<A>(g, w, strip, strips, begin, end - begin, begin == 0);
      }
    }
  }
}

}  // namespace octavo::kernels::avx512bf16
