// What a transformer does between its products, in f32: norms, residuals, gates, rotary positions
// and the pieces of softmax. The contract that every implementation meets bit for bit.
//
// No inline code here: instruction-set files include this header (scripts/check_isa_symbols).
// Arrays need no more alignment than a float; strides are in elements. Nothing is read or written
// outside the stated elements. Every NaN that is computed is the canonical one, 0x7FC00000.
//
// Reductions run over 16 virtual lanes: element i belongs to lane i % 16, each lane takes its
// elements in ascending order, then lane l joins lane l + 8, then l + 4, l + 2, l + 1. A lane
// without elements keeps its initial value.
//
// exp2(t), the one function behind every exponential. Relative error below 2^-23 (less than 2 ulp;
// 2^-23.86 is the largest found), exp2(0) == 1, results are normal:
//
//     t < -126   0
//     t >= 128   infinity
//     else       n = t rounded to an integer, to nearest even
//                r = t - n, exact, |r| <= 1/2
//                p = fma(r, fma(r, ... fma(r, kExp2[5], kExp2[4]) ..., kExp2[0]), 1)
//                p * 2^n, exact
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::kernels {

inline constexpr float kLog2e = 0x1.715476p+0f;

// Per row:  ss  = sum of x[i]^2, each lane acc = fma(x, x, acc) from +0
//           inv = 1 / sqrt(ss / cols + eps)
//           y[i] = (x[i] * inv) * weight[i]
// y may be x with the same stride. Per-head norms are rows of head_dim columns.
struct RmsNormArgs {
  const float* x;  // (rows, cols)
  std::size_t x_stride;
  const float* weight;  // (cols)
  float eps;
  std::size_t rows;
  std::size_t cols;  // at least 1
  float* y;          // (rows, cols)
  std::size_t y_stride;
};

// Rotates the first 2 * half elements of each head of one token, in place; the others stay:
//     x[i]        = fma(x[i], cos[i], -(x[i + half] * sin[i]))         0 <= i < half
//     x[i + half] = fma(x[i + half], cos[i], x[i] * sin[i])            with x[i] from before
struct RopeArgs {
  float* x;  // (heads, head_dim), contiguous
  std::size_t heads;
  std::size_t head_dim;
  std::size_t half;  // at most head_dim / 2
  const float* cos;  // (half), of this token
  const float* sin;
};

// One implementation: a line of transformer_manifest.inc.
struct TransformerKernels {
  const char* name;  // "generic", "avx2", "avx512bf16"

  void (*rms_norm)(const RmsNormArgs&);

  void (*rope)(const RopeArgs&);

  // x[i] = x[i] + y[i]
  void (*add)(float* x, const float* y, std::size_t n);

  // x[i] = x[i] * factor
  void (*scale)(float* x, float factor, std::size_t n);

  // y[i] = (g / (1 + e)) * up[i], g = max(gate[i], -128), NaN kept, e = exp(-g) in the sense of
  //     t = -g * kLog2e
  //     d = fma(-g, kLog2eRest, fma(-g, kLog2e, -t))
  //     exp2 with n of t and r = (t - n) + d
  // Relative error below 6 x 2^-24; where e overflows, gate below -128 / log2(e) = -88.7, and at
  // -infinity the first factor is -0. y may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, float* y, std::size_t n);

  // The largest of x[begin .. end), begin <= end: lane = x > lane ? x : lane from -infinity, joined
  // likewise with x the upper lane (so which of +0 and -0 is fixed). NaN if any element is NaN.
  float (*row_max)(const float* x, std::size_t begin, std::size_t end);

  // In place: x[i] = exp2((x[i] - max) * scale) for i in [begin, end), +0 elsewhere in [0, n);
  // begin <= end <= n. What x holds outside [begin, end) does not matter.
  // Returns the sum of the results, each lane from +0. `scale` holds the factor log2(e). NaN where
  // max is infinite and so is x[i], by the formula: a row of -infinity alone has no softmax.
  float (*exp_row)(float* x, std::size_t n, std::size_t begin, std::size_t end, float scale,
                   float max);

  // What exp_row(x, n, 0, n, scale, max) returns, without writing.
  float (*sum_exp)(const float* x, std::size_t n, float scale, float max);
};

}  // namespace octavo::kernels
