#include "octavo/checkpoint/window_internal.h"

namespace octavo {

Result<void> read_window(const Checkpoint& checkpoint, const CheckpointTensor& tensor,
                         const Matrices& m, std::uint64_t bits, const Window& w,
                         std::vector<std::byte>& to) {
  to.resize(w.rows * (w.cols * bits / 8));
  return for_each_run(m, bits, w, [&](std::uint64_t offset, std::uint64_t at, std::uint64_t bytes) {
    return checkpoint.read(tensor, offset, std::span(to).subspan(at, bytes));
  });
}

Window grid_window(const Window& w, const BlockSize& block) {
  const std::uint64_t row = w.row / block.rows;
  const std::uint64_t col = w.col / block.cols;
  return {w.slice, row, (w.row + w.rows - 1) / block.rows - row + 1, col,
          (w.col + w.cols - 1) / block.cols - col + 1};
}

Window grid_window(const Window& w, const ScaleLayout& layout) {
  Window grid = grid_window(w, layout.block);
  if (layout.slices == 1) grid.slice = 0;
  return grid;
}

Result<void> read_window_scales(const Checkpoint& checkpoint, const QuantizedWeight& weight,
                                const Window& w, std::vector<float>& scales) {
  const ScaleLayout& layout = weight.layout;
  const Window grid = grid_window(w, layout);
  scales.assign(grid.count(), 1.0f);
  if (!weight.scale) return {};
  const CheckpointTensor& tensor = checkpoint.tensors[*weight.scale];
  // Row by row, or at once where the window is as wide as the grid.
  const std::uint64_t run = grid.cols == layout.grid_cols ? grid.count() : grid.cols;
  for (std::uint64_t at = 0; at < grid.count(); at += run) {
    const std::uint64_t row = grid.slice * layout.grid_rows + grid.row + at / grid.cols;
    OCTAVO_CHECK(read_scales(checkpoint, tensor, row * layout.grid_cols + grid.col,
                             std::span(scales).subspan(at, run)));
  }
  return {};
}

}  // namespace octavo
