#include <fmt/format.h>

#include <algorithm>

#include "octavo/autograd/broadcast_internal.h"
#include "octavo/autograd/compute_internal.h"
#include "octavo/base/error.h"

namespace octavo {

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return compute(x.dtype(), shape, [&]<class T>(std::span<T> to) {
    const Values<T> from(x);
    std::ranges::fill(to, T(0));
    for_runs(shape, x.shape(), [&](std::size_t begin, std::size_t count, BroadcastRun run) {
      const T* values = from.data() + begin;
      if (run.step == 0) {
        to[run.begin] += lane_sum<T>(count, [&](std::size_t i) { return values[i]; });
        return;
      }
      for (std::size_t i = 0; i < count; ++i) to[run.begin + i] += values[i];
    });
  });
}

std::size_t axis_at(const char* operation, const Shape& shape, int axis) {
  const int rank = static_cast<int>(shape.size());
  const int from_begin = axis < 0 ? axis + rank : axis;
  if (from_begin < 0 || from_begin >= rank) {
    throw ContractError(fmt::format("{}: given axis {} of {}, expected one of its axes", operation,
                                    axis, to_string(shape)));
  }
  return static_cast<std::size_t>(from_begin);
}

}  // namespace octavo
