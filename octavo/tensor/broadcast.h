// numpy's broadcasting: axes are matched from the last, and size 1 repeats.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "octavo/tensor/shape.h"

namespace octavo {

// The shape that both broadcast to.
// ContractError: sizes of one axis that are neither equal nor 1; it begins with `operation`.
Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b);

// Axes of a result with the strides of its two operands, 0 where one repeats. Axes that lie behind
// one another in both are one; the last has strides 0 or 1. Never empty. a and b broadcast to `to`.
struct BroadcastAxis {
  std::size_t size;
  std::array<std::size_t, 2> strides;
};
std::vector<BroadcastAxis> broadcast_axes(const Shape& a, const Shape& b, const Shape& to);

// Where a run of elements begins in an operand, and whether it advances (1) or repeats one (0).
struct BroadcastRun {
  std::size_t begin, step;
};

// Covers `to`, which a and b broadcast to, with runs of `count` elements from `begin`, in their
// order: body(begin, count, a, b).
template <class Body>
void for_runs(const Shape& a, const Shape& b, const Shape& to, const Body& body) {
  const std::vector<BroadcastAxis> axes = broadcast_axes(a, b, to);
  const auto [count, steps] = axes.back();
  std::vector<std::size_t> index(axes.size() - 1);
  std::array<std::size_t, 2> at = {0, 0};
  for (const BroadcastAxis& axis : axes) {
    if (axis.size == 0) return;
  }
  for (std::size_t begin = 0;; begin += count) {
    body(begin, count, BroadcastRun{at[0], steps[0]}, BroadcastRun{at[1], steps[1]});
    std::size_t axis = index.size();
    for (; axis > 0; --axis) {
      const BroadcastAxis& outer = axes[axis - 1];
      const bool is_last = ++index[axis - 1] == outer.size;
      if (is_last) index[axis - 1] = 0;
      for (std::size_t operand = 0; operand < 2; ++operand) {
        at[operand] += outer.strides[operand];
        if (is_last) at[operand] -= outer.size * outer.strides[operand];
      }
      if (!is_last) break;
    }
    if (axis == 0) return;
  }
}

// The same with one operand: body(begin, count, from).
template <class Body>
void for_runs(const Shape& from, const Shape& to, const Body& body) {
  for_runs(from, from, to,
           [&](std::size_t begin, std::size_t count, BroadcastRun run, BroadcastRun) {
             body(begin, count, run);
           });
}

}  // namespace octavo
