// C = A W^T (+ bias) with scales, for weights and activations in memory: checks, packing, dispatch,
// threads. Order C of octavo/kernels/gemm/gemm.h: the same bits for a row whatever the other rows,
// the number of threads, the instruction set, and whether the weight was packed before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "octavo/base/aligned_bytes.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/gemm/plan.h"
#include "octavo/quant/block.h"

namespace octavo::ops {

// Scales of a matrix (rows, cols): real = code * scale. Element (r, c) has the scale
//     data[(r / block.rows) * stride + c / block.cols]
// of format f32 or e8m0fnu. block.cols of at least cols: one scale per row (block.rows 1) or tensor
// (block.rows at least rows). Otherwise block.cols is 32, 64 or a multiple of 128.
struct ScaleGrid {
  const void* data = nullptr;  // null: no scales, all 1
  std::size_t stride = 0;      // elements
  BlockSize block;
  Format format = Format::f32;
};

// A matrix with its scales. transposed: element (r, c) lies at data + c * stride + r, so that
// matrix.rows and cols are still those of the operand.
struct Operand {
  ConstMatrix matrix;
  ScaleGrid scale;
  bool transposed = false;
};

// Scales of a weight as kernels read them: one, or 32, for each strip of 32 n and each block.
struct PackedScales {
  std::vector<float> data;
  std::size_t width = 0;  // k that share one scale: 32, 64, a multiple of 128; 0: all
  bool per_strip = false;
  bool lanes = false;
};

// A weight in the layout of the kernels (P2), with its scales; or its scales packed and its rows
// left where they are.
struct PackedWeight {
  Format format;
  std::size_t n, k;
  AlignedBytes bytes;
  PackedScales scale;
  const void* rows = nullptr;  // (n, k) contiguous, owned by others, `bytes` being empty; or null
};

// The elements of a weight where they are, packed or not.
std::span<const std::uint8_t> element_bytes(const PackedWeight& w);

// Bytes of its elements and scales.
std::size_t weight_bytes(const PackedWeight& w);

// Whether blocks of so many columns can share a scale in a matrix of `cols`.
bool is_scale_width(std::uint64_t block_cols, std::size_t cols);

// w: (n, k), in an 8-bit floating-point format, bf16 or f32. bf16 below 2^-40 becomes +0.
// ContractError: shapes, strides, formats or blocks that the kernels do not take.
PackedWeight pack_weight(const Operand& w, const Context& context = default_context());

// The same weight, of contiguous rows that are left where they are (mapped from a file, say) and
// outlive it. Products with few rows take about twice as long; the bits are the same.
// ContractError: as pack_weight; no rows, rows that are transposed or apart.
PackedWeight unpacked_weight(const Operand& w);

// The codes back, into dst (n, k), one element each. ContractError: a weight that pack_weight did
// not make, or unpacked; dst null, misaligned, or of a stride below k.
void unpack_weight(const PackedWeight& w, void* dst, std::size_t dst_stride,
                   const Context& context = default_context());

// Where a product goes; stride in elements.
struct Output {
  Format format;  // f32 or bf16
  void* data;     // (m, n)
  std::size_t stride;
};

// What a product has beside its operands, and how it runs.
struct GemmOptions {
  std::span<const float> bias = {};  // n values, or none
  const Context* context = nullptr;  // null: default_context()
  // As planned without; for tests and benchmarks.
  std::optional<kernels::GemmShape> shape = {};
  std::optional<kernels::Arithmetic> arithmetic = {};
  std::optional<Isa> isa = {};
};

// a: (m, k), in an 8-bit floating-point format, bf16 or f32. bf16 below 2^-100 counts as +0 against
// 8-bit weights, below 2^-40 against bf16 ones.
// c overlaps no operand.
// ContractError: a contract that is broken, by operation, given and expected; OCTAVO_CPU names a
// level that this machine lacks.
//
// Each thread that takes part keeps memory for its next call, and once it has grown to the largest
// problem nothing is allocated:
//   packed activations      4 bytes x K, rounded up to 128, x rows, at most 528
//   scales that it expands  4 bytes x blocks of K x rows, at most 528 (e8m0fnu, blocks of rows)
//   scratch                 half of L2 and 16 KiB, or 84 KiB
// and for weights left where they are
//   packed weights          128 x K, rounded up to 2, of their elements
//   their scales            4 bytes x the blocks of K x N / 32, or x N with fewer than 32 rows each
void gemm(const Operand& a, const PackedWeight& w, const Output& c,
          const GemmOptions& options = {});

// The same with a weight whose scales are not packed either, once for each call.
void gemm(const Operand& a, const Operand& w, const Output& c, const GemmOptions& options = {});

}  // namespace octavo::ops
