// Products of many rows with AVX2, in order C: per block of k, half a strip of weights is decoded
// to f32 in L1, in the order in which it is used, and multiplied by tiles of up to 6 rows x 16
// columns.
//
//   panel  [k_block / 2][odd k, even k][16 columns] f32, 8 KiB at 128 k
//   tot    [group][m][32 columns] in args.scratch
//
// Strips of a group take turns block by block, so that a chunk of activations is read from L2
// `group` times before the next one.
//
// While a panel of activations is used, the next one is read from L2 to L1. One thread of a 2-core
// Intel Emerald Rapids VM, processor time, percent of the multiply-add peak without and with that:
// 77 and 77 with 64 rows, 76 and 80 with 130, 75 and 81 with 258, 63 and 79 with 510; the tiles
// alone, from L1, 88 to 91, decoding takes the rest. Tried, no gain: panels of 32 columns,
// unrolling k, looking for NaN once per block instead of in each decoded vector.
#include "octavo/kernels/gemm/gemm_lanes_avx2.h"

namespace octavo::kernels::avx2 {
namespace {

template <Decode decode>
void decode_panel(const std::uint8_t* tiles, std::size_t pairs, std::size_t h, const float* table,
                  float* panel) {
  for (std::size_t p = 0; p < pairs; ++p, panel += 32) {
    const std::uint8_t* tile = tiles + p * tile_bytes(decode);
    if (h == 1) {  // the strip's next block
      prefetch_bytes(tile, kChunk / 2 * tile_bytes(decode), tile_bytes(decode));
    }
    const HalfTile half = decode_half_tile<decode>(tile, h, table);
    for (std::size_t v = 0; v < 2; ++v) {
      _mm256_store_ps(panel + 8 * v, half.odd[v]);
      _mm256_store_ps(panel + 16 + 8 * v, half.even[v]);
    }
  }
}

// One block of k of one strip.
struct StripBlock {
  const float* panel;
  const float* scale;
  float* tot;  // [m][32]
};

template <bool natural, std::size_t rows>
void multiply(const GemmArgs& args, const Block& block, const StripBlock& strip, std::size_t panel,
              std::size_t row, std::size_t h) {
  const std::size_t stride = args.panel_rows;
  const float* a = block.activations + panel * block.panel_cells + row;
  // To the same rows of the panel that comes next; after the last one, of the first again.
  const std::size_t to_next = (panel + 1) * args.panel_rows < args.m
                                  ? block.panel_cells * sizeof(float)
                                  : -panel * block.panel_cells * sizeof(float);
  const float* w = strip.panel;
  __m256 acc[rows][2];
  for (std::size_t r = 0; r < rows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (std::size_t p = 0; p < block.pairs; ++p, w += 32, a += 2 * stride) {
    _mm_prefetch(ahead_of(a, to_next), _MM_HINT_T0);
    _mm_prefetch(ahead_of(a + stride, to_next), _MM_HINT_T0);
#pragma GCC unroll 2
    for (std::size_t odd_first = 0; odd_first < 2; ++odd_first) {
      const __m256 w0 = _mm256_load_ps(w + 16 * odd_first);
      const __m256 w1 = _mm256_load_ps(w + 16 * odd_first + 8);
      const float* cells = odd_first == 0 ? a + stride : a;
#pragma GCC unroll 6
      for (std::size_t r = 0; r < rows; ++r) {
        const __m256 cell = _mm256_broadcast_ss(cells + r);
        acc[r][0] = _mm256_fmadd_ps(cell, w0, acc[r][0]);
        acc[r][1] = _mm256_fmadd_ps(cell, w1, acc[r][1]);
      }
    }
  }
  const __m256 s0 = weight_scale<natural>(args.weight_scale, strip.scale, 2 * h);
  const __m256 s1 = weight_scale<natural>(args.weight_scale, strip.scale, 2 * h + 1);
  const std::size_t m = panel * args.panel_rows + row;
  const float* row_scale = block.row_scales + m * args.activation_scale.index_stride;
  float* tot = strip.tot + m * kStrip + 16 * h;
#pragma GCC unroll 6
  for (std::size_t r = 0; r < rows; ++r) {
    const __m256 of_row = _mm256_broadcast_ss(row_scale + r * args.activation_scale.index_stride);
    float* t = tot + r * kStrip;
    const __m256 t0 = _mm256_fmadd_ps(acc[r][0], _mm256_mul_ps(s0, of_row), _mm256_load_ps(t));
    const __m256 t1 = _mm256_fmadd_ps(acc[r][1], _mm256_mul_ps(s1, of_row), _mm256_load_ps(t + 8));
    _mm256_store_ps(t, t0);
    _mm256_store_ps(t + 8, t1);
  }
}

template <bool natural>
void multiply_panel(const GemmArgs& args, const Block& block, const StripBlock& strip,
                    std::size_t panel, const Passes& passes, std::size_t h) {
  using Multiply = void (*)(const GemmArgs&, const Block&, const StripBlock&, std::size_t,
                            std::size_t, std::size_t);
  constexpr Multiply kByRows[kTileRows] = {multiply<natural, 1>, multiply<natural, 2>,
                                           multiply<natural, 3>, multiply<natural, 4>,
                                           multiply<natural, 5>, multiply<natural, 6>};
  for (std::size_t i = 0, row = 0; i < passes.count; row += passes.height_of(i++)) {
    kByRows[passes.height_of(i) - 1](args, block, strip, panel, row, h);
  }
}

template <Decode decode>
void gemm(const GemmArgs& args, const float* table) {
  constexpr bool kNatural = is_natural(decode);
  alignas(64) float panel[kChunk * 16];
  const std::size_t all_pairs = (args.k + 1) / 2;
  const Panels panels = panels_of(args);
  for (std::size_t first = args.strip_begin; first < args.strip_end; first += args.group) {
    const std::size_t left = args.strip_end - first;
    const std::size_t strips = left < args.group ? left : args.group;
    for (std::size_t i = 0; i < strips * args.m * kStrip; i += 8) {
      _mm256_store_ps(args.scratch + i, _mm256_setzero_ps());
    }
    for (std::size_t kb = 0; kb * args.k_block < args.k; ++kb) {
      const Block block = block_at(args, panels.count, kb);
      for (std::size_t s = 0; s < strips; ++s) {
        const std::size_t tile = (first + s) * all_pairs + block.pair;
        const auto* tiles =
            static_cast<const std::uint8_t*>(args.weights) + tile * tile_bytes(decode);
        const StripBlock strip = {panel, scale_at(args.weight_scale, first + s, kb),
                                  args.scratch + s * args.m * kStrip};
        for (std::size_t h = 0; h < 2; ++h) {
          decode_panel<decode>(tiles, block.pairs, h, table, panel);
          for (std::size_t p = 0; p < panels.count; ++p) {
            multiply_panel<kNatural>(args, block, strip, p, panels.passes(p), h);
          }
        }
      }
    }
    for (std::size_t m = 0; m < args.m; ++m) {
      for (std::size_t s = 0; s < strips; ++s) {
        store_row<kNatural>(args, m, first + s, args.scratch + (s * args.m + m) * kStrip);
      }
    }
  }
}

}  // namespace

void gemm_tiled_fma(const GemmArgs& args) {
  check(args, Arithmetic::fma);
  alignas(64) float table[256];
  switch (args.weight_format) {
    case Format::e4m3fn:
      return gemm<Decode::e4m3fn>(args, nullptr);
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
