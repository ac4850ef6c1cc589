#include "octavo/autograd/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "octavo/autograd/broadcast_internal.h"
#include "octavo/autograd/compute_internal.h"
#include "octavo/autograd/elementwise.h"

namespace octavo {
namespace {

ops::Axes all_axes(const Variable& x) {
  ops::Axes axes(x.rank());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  return axes;
}

// The shape with those axes of size 1, and without them.
struct Reduced {
  Shape kept, dropped;
};

Reduced reduced(const char* operation, const Shape& shape, const ops::Axes& axes) {
  Reduced result{shape, {}};
  std::vector<bool> is_reduced(shape.size());
  for (const std::size_t axis : axes) {
    if (axis >= shape.size() || is_reduced[axis]) {
      throw ContractError(fmt::format("{}: given axis {} of {}, expected each once, below the rank",
                                      operation, axis, to_string(shape)));
    }
    is_reduced[axis] = true;
    result.kept[axis] = 1;
  }
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (!is_reduced[axis]) result.dropped.push_back(shape[axis]);
  }
  return result;
}

Tensor broadcast(const Tensor& x, const Shape& shape) {
  return compute(x.dtype(), shape, [&]<class T>(std::span<T> to) {
    const Values<T> from(x);
    const BroadcastIndex index(x.shape(), shape);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[index(i)];
  });
}

}  // namespace

Variable reshape(const Variable& x, Shape shape) {
  return record(
      "reshape", x.value().reshape(std::move(shape)), std::span(&x, 1),
      [from = x.shape()](const Tensor& g) -> std::vector<Cotangent> { return {g.reshape(from)}; });
}

Variable transpose(const Variable& x, const ops::Axes& order) {
  Tensor value = ops::transpose(x.value(), order);
  ops::Axes inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) inverse[order[i]] = i;
  return record("transpose", std::move(value), std::span(&x, 1),
                [inverse](const Tensor& g) -> std::vector<Cotangent> {
                  return {ops::transpose(g, inverse)};
                });
}

Variable broadcast_to(const Variable& x, const Shape& shape) {
  if (broadcast_shape("broadcast_to", x.shape(), shape) != shape) {
    throw ContractError(fmt::format("broadcast_to: given {}, expected one that broadcasts to {}",
                                    to_string(x.shape()), to_string(shape)));
  }
  return record(
      "broadcast_to", broadcast(x.value(), shape), std::span(&x, 1),
      [from = x.shape()](const Tensor& g) -> std::vector<Cotangent> { return {sum_to(g, from)}; });
}

Variable sum(const Variable& x, const ops::Axes& axes) {
  const Reduced to = reduced("sum", x.shape(), axes);
  return record("sum", sum_to(x.value(), to.kept).reshape(to.dropped), std::span(&x, 1),
                [from = x.shape(), kept = to.kept](const Tensor& g) -> std::vector<Cotangent> {
                  return {broadcast(g.reshape(kept), from)};
                });
}

Variable sum(const Variable& x) { return sum(x, all_axes(x)); }

Variable mean(const Variable& x, const ops::Axes& axes) {
  const Variable total = sum(x, axes);
  const double count = static_cast<double>(x.value().size()) /
                       static_cast<double>(std::max<std::size_t>(total.value().size(), 1));
  return scale(total, 1 / count);
}

Variable mean(const Variable& x) { return mean(x, all_axes(x)); }

Variable max(const Variable& x, const ops::Axes& axes) {
  const Reduced to = reduced("max", x.shape(), axes);
  const Tensor largest = compute(x.dtype(), to.kept, [&]<class T>(std::span<T> result) {
    const Values<T> from(x.value());
    const BroadcastIndex index(to.kept, x.shape());
    std::ranges::fill(result, -std::numeric_limits<T>::infinity());
    for (std::size_t i = 0; i < from.size(); ++i) {
      T& m = result[index(i)];
      if (!(m >= from[i]) && !std::isnan(m)) m = from[i];
    }
  });
  const auto rule = [kept = x.value(), largest](const Tensor& g) -> std::vector<Cotangent> {
    return {compute(g.dtype(), kept.shape(), [&]<class T>(std::span<T> result) {
      const Values<T> from(kept), top(largest), cotangent(g);
      const BroadcastIndex index(largest.shape(), kept.shape());
      std::vector<T> winners(top.size());
      for (std::size_t i = 0; i < from.size(); ++i) winners[index(i)] += from[i] == top[index(i)];
      for (std::size_t i = 0; i < from.size(); ++i) {
        const std::size_t at = index(i);
        result[i] = from[i] == top[at] ? cotangent[at] / winners[at] : T(0);
      }
    })};
  };
  return record("max", largest.reshape(to.dropped), std::span(&x, 1), rule);
}

}  // namespace octavo
