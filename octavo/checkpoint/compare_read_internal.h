// Tensors as real numbers, a window at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/compare_values_internal.h"
#include "octavo/checkpoint/pairing.h"
#include "octavo/checkpoint/window_internal.h"

namespace octavo {

// One of the two tensors that are compared.
struct ComparedTensor {
  const Checkpoint* checkpoint;
  const CheckpointTensor* stored;
  const QuantizedWeight* codes;  // or null: elements as they are stored
  Shape shape;                   // logical; of complex numbers with a last dimension of 2
};

// What f32 does not hold exactly: F64 and integers of 32 bits or more.
bool needs_long_double(const ComparedTensor& tensor);

// Elements in a window; even, for packed codes. 2 x (8 bytes as stored, 16 as long double, 4 of a
// scale) stay below 8 MB, and what SmolLM2 needs, below 2 MB, in a core's L2.
inline constexpr std::uint64_t kMaxWindowElements = std::uint64_t{1} << 17;

// Buffers of one side, reused from window to window.
struct ValueScratch {
  std::vector<std::byte> raw;
  std::vector<float> narrow;
  std::vector<long double> wide;
  std::vector<float> scales;
};

// `matrices`: how windows count, {1, 1, elements} for a tensor without scales against another.
// Fills narrow, or wide where that is asked for, with the window's elements in order, and `scales`
// with those of the blocks that it touches.
Result<void> read_values(const ComparedTensor& tensor, const Matrices& matrices,
                         const Window& window, bool wide, ValueScratch& scratch);

// Where the columns of one row change their scale, and what rounding does there.
class RowGrids {
 public:
  RowGrids(const ComparedTensor& tensor, const Window& window, const ValueScratch& scratch);
  // Column (of the matrix) of the first element behind `col` that has another scale.
  std::uint64_t end(std::uint64_t col) const;
  RoundingGrid at(std::uint64_t row, std::uint64_t col) const;

 private:
  const ComparedTensor& tensor_;
  const Window& window_;
  const ValueScratch& scratch_;
  RoundingGrid plain_;
};

}  // namespace octavo
