// Products of packed activations and packed weights: C = A W^T with scales per block, in one order
// of accumulation that gives the same bits on every instruction set.
//
// No inline code here: instruction-set files include this header (scripts/check_isa_symbols).
//
// Order C. For output (m, n), K cut into blocks of k_block (the last one ragged, filled up with a
// zero to an even number):
//
//     tot = +0
//     for each block kb, ascending:
//       acc = +0
//       for each pair k, k + 1 of the block, ascending:
//         acc = fma(a[m, k], w[n, k], fma(a[m, k + 1], w[n, k + 1], acc))     odd element first
//       tot = fma(acc, w_scale * a_scale, tot)                   the product rounded to f32 first
//     C[m, n] = tot, + bias[n], rounded to c_format; every NaN is the canonical one
//
// One chain per output: nothing depends on M, on tiles, on the position of a row, on threads. It is
// what vdpbf16ps computes, and plain f32 fused multiply-adds compute the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/formats/format.h"

namespace octavo::kernels {

// Packed weights (layout P2): strips of 32 output columns n, each a run of tiles of 32 n x 2 k.
//   8-bit formats  64 bytes a tile: 16-byte lane j holds n = 4j .. 4j+3, then n = 16+4j .. 16+4j+3,
//                  (k, k + 1) side by side for each n
//   bf16           128 bytes: (k, k + 1) of n = 0 .. 31
//   f32            256 bytes: k of n = 0 .. 31, then k + 1 of n = 0 .. 31
// N is filled up with zeros to a multiple of 32 and K to a multiple of 2. bf16 weights smaller in
// magnitude than 2^-40 are packed as +0 (kFlushAgainstBf16), so that no sum of products is
// denormal.
inline constexpr std::size_t kStrip = 32;

// Packed activations: chunks of 128 k (the last one filled up with zeros), in each chunk panels of
// `panel_rows` rows (the last one filled up with zeros):
//   [ceil(K / 128)][ceil(M / panel_rows)][128][panel_rows] f32, for ArithmeticKind::fma
//   [ceil(K / 128)][ceil(M / panel_rows)][64][panel_rows] pairs of bf16, k in the low half, for dot
// panel_rows(M): M up to 48 rows, two equal panels up to 95, panels of 48 beyond.
inline constexpr std::size_t kChunk = 128;
inline constexpr std::size_t kPanelRows = 48;

// bf16 magnitudes below these become +0 when they are packed: vdpbf16ps takes denormal sums for
// zero, and without these no sum can be denormal.
inline constexpr float kFlushAgainstFp8 = 0x1p-100f;  // activations, with 8-bit weights
inline constexpr float kFlushAgainstBf16 = 0x1p-40f;  // both operands, with bf16 weights

// How products are summed. Same bits; which one is faster depends on the processor.
enum class Arithmetic : std::uint8_t {
  fma,  // f32 fused multiply-adds on decoded f32: takes any activations
  dot,  // vdpbf16ps on pairs of bf16: activations that bf16 holds exactly, weights not f32
};

// Scale of a row (of A) or of a strip (of W) in block kb:
//     data[index * index_stride + (kb / blocks) * block_stride]
// with strides 0 where it is shared. Lanes (weights only): 32 floats there, one for each n of the
// strip.
struct Scales {
  const float* data;
  std::size_t index_stride;
  std::size_t block_stride;
  std::size_t blocks;  // blocks of k_block that share one scale, at least 1
  bool lanes;
};

struct GemmArgs {
  std::size_t m, n, k;
  std::size_t k_block;      // 32, 64 or 128
  Format weight_format;     // e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, bf16, f32
  const void* weights;      // packed, aligned to 64 bytes
  Scales weight_scale;      // per strip
  const void* activations;  // packed, aligned to 4 bytes
  std::size_t panel_rows;
  Scales activation_scale;             // per row
  Format c_format;                     // f32 or bf16
  void* c;                             // (m, n)
  std::size_t c_stride;                // elements
  const float* bias;                   // (n), or null
  std::size_t strip_begin, strip_end;  // computes the columns of these strips only
  float* scratch;                      // gemm_scratch_floats(...), aligned to 64 bytes
  std::size_t group;                   // strips that a tiled kernel works on together, at least 1
};

// One implementation: a line of gemm_manifest.inc. Each takes every M and every format that its
// arithmetic allows.
using GemmFunction = void (*)(const GemmArgs&);

// Floats of scratch memory that any kernel needs for these sizes; a multiple of 16.
std::size_t gemm_scratch_floats(std::size_t m, std::size_t group);

// Bytes of packed operands.
std::size_t packed_weight_bytes(Format format, std::size_t n, std::size_t k);
std::size_t packed_tile_bytes(Format format);  // 64, 128 or 256
std::size_t packed_activation_bytes(Arithmetic arithmetic, std::size_t m, std::size_t k);
std::size_t panel_rows(std::size_t m);

}  // namespace octavo::kernels
