// The tiled product: 128 k of a strip are decoded to a panel in L1 (16 KiB in f32, 8 KiB in bf16)
// and used by tiles of up to 12 rows x 32 columns. For many rows, where arithmetic is the limit.
//
// `fma`, 4096 x 4096 e4m3fn from memory, one thread of a 2-core Intel Emerald Rapids VM, percent of
// the multiply-add peak: 68 with 12 and 16 rows, 76 with 32, 81 with 64, 84 with 120, 88 with 512.
#pragma once

#include "octavo/kernels/gemm/gemm_lanes_avx512bf16.h"

namespace octavo::kernels::avx512bf16 {

// 24 accumulators hide the latency of 4 with two units; divides kPanelRows.
constexpr std::size_t kTileRows = 12;

template <Arithmetic A>
static inline void store_operand(float* panel, const Operand<A>& w) {
  if constexpr (A == Arithmetic::dot) {
    _mm512_store_si512(panel, w.pair[0]);
    _mm512_store_si512(panel + 16, w.pair[1]);
  } else {
    _mm512_store_ps(panel, w.odd[0]);
    _mm512_store_ps(panel + 16, w.odd[1]);
    _mm512_store_ps(panel + 32, w.even[0]);
    _mm512_store_ps(panel + 48, w.even[1]);
  }
}

template <Arithmetic A>
static inline Operand<A> load_operand(const float* panel) {
  Operand<A> w;
  if constexpr (A == Arithmetic::dot) {
    w.pair[0] = _mm512_load_si512(panel);
    w.pair[1] = _mm512_load_si512(panel + 16);
  } else {
    w.odd[0] = _mm512_load_ps(panel);
    w.odd[1] = _mm512_load_ps(panel + 16);
    w.even[0] = _mm512_load_ps(panel + 32);
    w.even[1] = _mm512_load_ps(panel + 48);
  }
  return w;
}

template <Arithmetic A>
constexpr std::size_t kPanelFloats = 32 * kCellsPerPair<A>;  // of one pair

// What one chunk of one strip gives to its rows.
struct Chunk {
  const float* panel;  // decoded weights
  const float* cells;  // activations of the chunk, first panel of rows
  std::size_t pairs;   // up to 64
  std::size_t strip;
  std::size_t first_block;  // kb of the chunk's first block
  const char* ahead;        // packed weights that are decoded next: the first tile of rows reads
  std::size_t tile_bytes;   // them ahead, a tile of these with each pair
  float* tot;               // (m, 32)
  bool is_first, is_last;   // of K
};

// Not inlined: inside a larger function g++ 12 spills its accumulators (M = 512 with bf16 weights
// at 60 % of the peak instead of 87).
template <Arithmetic A, int M>
[[gnu::noinline]] static void tile_rows(const GemmArgs& g, const Chunk& c, std::size_t row) {
  const std::size_t chunk_cells = kChunk / 2 * kCellsPerPair<A> * g.panel_rows;
  const float* a = c.cells + row / g.panel_rows * chunk_cells + row % g.panel_rows;
  const float* panel = c.panel;
  const char* ahead = c.ahead;
  const std::size_t ahead_step = row == 0 ? c.tile_bytes : 0;
  for (std::size_t first = 0, kb = c.first_block; first < c.pairs; first += g.k_block / 2, ++kb) {
    const std::size_t left = c.pairs - first;
    const std::size_t count = left < g.k_block / 2 ? left : g.k_block / 2;
    __m512 acc[M][2];
    for (auto& pair : acc) pair[0] = pair[1] = _mm512_setzero_ps();
    for (std::size_t i = 0; i < count; ++i) {
      _mm_prefetch(ahead, _MM_HINT_T0);
      for (std::size_t line = 64; line < ahead_step; line += 64) {
        _mm_prefetch(ahead_of(ahead, line), _MM_HINT_T0);
      }
      ahead = ahead_of(ahead, ahead_step);
      for (std::size_t cell = 0; cell < kCellsPerPair<A>; ++cell) {
        const std::size_t next_panel = (chunk_cells + cell * g.panel_rows) * sizeof(float);
        _mm_prefetch(ahead_of(a, next_panel), _MM_HINT_T0);
      }
      step<A, M>(acc, load_operand<A>(panel), a, g.panel_rows);
      panel += kPanelFloats<A>;
      a += kCellsPerPair<A> * g.panel_rows;
    }
    fold<M>(acc, g, c.strip, row, kb, c.tot + row * kStrip);
  }
}

template <Arithmetic A>
static inline void tile(const GemmArgs& g, const Chunk& c, std::size_t row, std::size_t rows) {
  switch (rows) {
    case 1:
      return tile_rows<A, 1>(g, c, row);
    case 2:
      return tile_rows<A, 2>(g, c, row);
    case 3:
      return tile_rows<A, 3>(g, c, row);
    case 4:
      return tile_rows<A, 4>(g, c, row);
    case 5:
      return tile_rows<A, 5>(g, c, row);
    case 6:
      return tile_rows<A, 6>(g, c, row);
    case 7:
      return tile_rows<A, 7>(g, c, row);
    case 8:
      return tile_rows<A, 8>(g, c, row);
    case 9:
      return tile_rows<A, 9>(g, c, row);
    case 10:
      return tile_rows<A, 10>(g, c, row);
    case 11:
      return tile_rows<A, 11>(g, c, row);
    default:
      return tile_rows<A, 12>(g, c, row);
  }
}

// Totals of rows begin .. end - 1: zeros, or read ahead while their tile is multiplied.
static inline void begin_totals(const Chunk& c, std::size_t begin, std::size_t end) {
  for (float* p = c.tot + begin * kStrip; p < c.tot + end * kStrip; p += 16) {
    if (c.is_first) {
      _mm512_store_ps(p, _mm512_setzero_ps());
    } else {
      _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
    }
  }
}

// All rows: balanced tiles within each panel of rows. Results are written tile by tile: that goes
// on beside the multiply-adds of the next tile, where a burst for all strips would wait for memory.
template <Arithmetic A>
static inline void all_rows(const GemmArgs& g, const Chunk& c) {
  for (std::size_t first = 0; first < g.m; first += g.panel_rows) {
    const std::size_t rows = g.m - first < g.panel_rows ? g.m - first : g.panel_rows;
    const std::size_t tiles = (rows + kTileRows - 1) / kTileRows;
    for (std::size_t t = 0; t < tiles; ++t) {
      const std::size_t begin = first + rows * t / tiles;
      const std::size_t end = first + rows * (t + 1) / tiles;
      begin_totals(c, begin, end);
      tile<A>(g, c, begin, end - begin);
      if (!c.is_last) continue;
      for (std::size_t m = begin; m < end; ++m) store_row(g, m, c.strip, c.tot + m * kStrip);
    }
  }
}

template <Arithmetic A, class Weights>
static inline void decode_panel(const Weights& weights, const char* tiles, std::size_t pairs,
                                float* panel) {
  for (std::size_t i = 0; i < pairs; ++i) {
    store_operand<A>(panel + i * kPanelFloats<A>,
                     weights.template tile<A>(tiles + i * Weights::kTileBytes));
  }
}

template <Arithmetic A, class Weights>
static inline void tiled_group(const GemmArgs& g, const Weights& weights, std::size_t begin,
                               std::size_t end) {
  float* panel = g.scratch;
  float* totals = g.scratch + kChunk * kStrip;
  const std::size_t pairs = (g.k + 1) / 2, strip_floats = g.m * kStrip;
  const std::size_t strip_bytes = pairs * Weights::kTileBytes;
  const std::size_t chunk_cells =
      kChunk / 2 * kCellsPerPair<A> * g.panel_rows * ((g.m + g.panel_rows - 1) / g.panel_rows);
  for (std::size_t first = 0, chunk = 0; first < pairs; first += kChunk / 2, ++chunk) {
    const std::size_t left = pairs - first;
    for (std::size_t strip = begin; strip < end; ++strip) {
      const char* tiles =
          static_cast<const char*>(g.weights) + strip * strip_bytes + first * Weights::kTileBytes;
      const std::size_t to_next =
          strip + 1 < end ? strip_bytes
                          : kChunk / 2 * Weights::kTileBytes - (end - 1 - begin) * strip_bytes;
      Chunk c{panel,
              static_cast<const float*>(g.activations) + chunk * chunk_cells,
              left < kChunk / 2 ? left : kChunk / 2,
              strip,
              chunk * (kChunk / g.k_block),
              ahead_of(tiles, to_next),
              Weights::kTileBytes,
              totals + (strip - begin) * strip_floats,
              first == 0,
              left <= kChunk / 2};
      decode_panel<A>(weights, tiles, c.pairs, panel);
      all_rows<A>(g, c);
    }
  }
}

// Groups of g.group strips go through K together, so that a chunk of activations is read once for
// the group: activations and totals of the group stay in L2.
template <Arithmetic A, class Weights>
static inline void tiled(const GemmArgs& g, const Weights& weights) {
  for (std::size_t begin = g.strip_begin; begin < g.strip_end; begin += g.group) {
    const std::size_t end = g.strip_end - begin < g.group ? g.strip_end : begin + g.group;
    tiled_group<A>(g, weights, begin, end);
  }
}

}  // namespace octavo::kernels::avx512bf16
