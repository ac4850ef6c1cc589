#include "octavo/tensor/broadcast.h"

#include <fmt/format.h>

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo {

Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::uint64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::uint64_t of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      throw ContractError(fmt::format("{}: given {} and {}, expected shapes that broadcast",
                                      operation, to_string(a), to_string(b)));
    }
    shape[shape.size() - 1 - i] = of_a == 1 ? of_b : of_a;
  }
  return shape;
}

std::vector<BroadcastAxis> broadcast_axes(const Shape& a, const Shape& b, const Shape& to) {
  std::vector<BroadcastAxis> axes;  // from the last
  std::array<std::size_t, 2> sizes = {1, 1};
  for (std::size_t i = 0; i < to.size(); ++i) {
    BroadcastAxis axis{to[to.size() - 1 - i], {0, 0}};
    for (std::size_t operand = 0; operand < 2; ++operand) {
      const Shape& from = operand == 0 ? a : b;
      const std::uint64_t size = i < from.size() ? from[from.size() - 1 - i] : 1;
      if (size != 1) axis.strides[operand] = sizes[operand];
      sizes[operand] *= size;
    }
    if (axis.size == 1) continue;
    const auto follows = [&](std::size_t operand) {
      return axis.strides[operand] == axes.back().strides[operand] * axes.back().size;
    };
    if (!axes.empty() && follows(0) && follows(1)) {
      axes.back().size *= axis.size;
    } else {
      axes.push_back(axis);
    }
  }
  if (axes.empty()) axes.push_back({1, {0, 0}});
  std::ranges::reverse(axes);
  return axes;
}

}  // namespace octavo
