// Windows of matrices in files, and the scales that belong to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/pairing.h"

namespace octavo {

// A window of one matrix of a tensor.
struct Window {
  std::uint64_t slice;
  std::uint64_t row;
  std::uint64_t rows;
  std::uint64_t col;
  std::uint64_t cols;
  std::uint64_t count() const { return rows * cols; }
};

// Calls transfer(byte offset in the tensor, byte offset in memory, bytes) for the runs of a window
// that are contiguous in the file. `m` is the tensor as matrices of elements of `bits`.
template <class Transfer>
Result<void> for_each_run(const Matrices& m, std::uint64_t bits, const Window& w,
                          const Transfer& transfer) {
  const std::uint64_t row_bytes = m.cols * bits / 8;
  const std::uint64_t width = w.cols * bits / 8;
  const std::uint64_t start = (w.slice * m.rows + w.row) * row_bytes + w.col * bits / 8;
  if (width == row_bytes) return transfer(start, 0, w.rows * width);
  for (std::uint64_t r = 0; r < w.rows; ++r)
    OCTAVO_CHECK(transfer(start + r * row_bytes, r * width, width));
  return {};
}

// Bytes of a window, row by row.
Result<void> read_window(const Checkpoint& checkpoint, const CheckpointTensor& tensor,
                         const Matrices& m, std::uint64_t bits, const Window& w,
                         std::vector<std::byte>& to);

// The blocks that a window touches, as a window of the scale grid.
Window grid_window(const Window& w, const BlockSize& block);
Window grid_window(const Window& w, const ScaleLayout& layout);  // slices that share scales are one

// The scales of these blocks, row by row; 1 where the weight has none.
Result<void> read_window_scales(const Checkpoint& checkpoint, const QuantizedWeight& weight,
                                const Window& w, std::vector<float>& scales);

}  // namespace octavo
