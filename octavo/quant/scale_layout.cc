#include "octavo/quant/scale_layout.h"
#include "octavo/base/ceil_div.h"

#include <fmt/format.h>

#include <algorithm>

namespace octavo {
namespace {

constexpr std::uint64_t kMxGroup = 32;  // OCP MX: elements per scale

// The grid of each slice that the shape of the scales spells, where the leading dimensions allow
// it.
struct Grid {
  std::uint64_t rows;
  std::uint64_t cols;
};

std::optional<Grid> spelled_grid(const Shape& weight, const Shape& scale) {
  const std::size_t leading = weight.size() - 2;
  if (scale.size() < leading ||
      !std::equal(weight.begin(), weight.begin() + static_cast<std::ptrdiff_t>(leading),
                  scale.begin())) {
    return std::nullopt;
  }
  switch (scale.size() - leading) {
    case 0:
      return Grid{1, 1};  // (E): one per slice
    case 1:
      return Grid{scale[leading], 1};  // (E, R): one per row
    case 2:
      return Grid{scale[leading], scale[leading + 1]};
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string to_string(const BlockSize& block) {
  return fmt::format("{}x{}", block.rows, block.cols);
}

Result<ScaleLayout> match_scale(const Shape& weight, const Shape& scale,
                                std::optional<BlockSize> configured, bool exponents) {
  const Matrices w = as_matrices(weight);
  const BlockSize whole{std::max<std::uint64_t>(1, w.rows), std::max<std::uint64_t>(1, w.cols)};
  if (element_count(scale) == 1) return ScaleLayout{whole, 1, 1, 1};

  const BlockSize block = configured.value_or(BlockSize{});
  if (const std::optional<Grid> grid = spelled_grid(weight, scale)) {
    const auto is = [&](const BlockSize& size) {
      return grid->rows == ceil_div(w.rows, size.rows) && grid->cols == ceil_div(w.cols, size.cols);
    };
    const auto layout = [&](const BlockSize& size) {
      const BlockSize within{std::min(size.rows, whole.rows), std::min(size.cols, whole.cols)};
      return ScaleLayout{within, w.slices, grid->rows, grid->cols};
    };
    for (const BlockSize& size : {whole, block, BlockSize{1, whole.cols}}) {
      if (is(size)) return layout(size);
    }
    if (exponents && is({1, kMxGroup})) return layout({1, kMxGroup});
  }
  return fail(
      ErrorCode::bad_model,
      fmt::format("scales of shape {} do not fit a weight of shape {}: blocks of {}{} need {}",
                  to_string(scale), to_string(weight), to_string(block),
                  configured ? "" : " (no weight_block_size is given)",
                  to_string(Shape{ceil_div(w.rows, block.rows), ceil_div(w.cols, block.cols)})));
}

}  // namespace octavo
