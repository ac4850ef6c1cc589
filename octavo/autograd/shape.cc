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
    for_runs(x.shape(), shape, [&](std::size_t begin, std::size_t count, BroadcastRun run) {
      T* run_to = to.data() + begin;
      const T* values = from.data() + run.begin;
      run.step == 0 ? std::fill_n(run_to, count, *values) : std::copy_n(values, count, run_to);
    });
  });
}

Tensor divided(const Tensor& x, std::size_t count) {
  return compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> from(x);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] / static_cast<T>(count);
  });
}

// Of `top`, whose shape broadcasts to x's: how many elements of x each equals.
template <class T>
std::vector<T> winners(const Tensor& x, const Tensor& top) {
  const Values<T> from(x), largest(top);
  std::vector<T> counts(top.size());
  for_runs(top.shape(), x.shape(), [&](std::size_t begin, std::size_t count, BroadcastRun run) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = run.begin + i * run.step;
      counts[at] += from[begin + i] == largest[at];
    }
  });
  return counts;
}

}  // namespace

Variable reshape(const Variable& x, Shape shape) {
  return record(
      "reshape", x.value().reshape(std::move(shape)), std::span(&x, 1),
      [from = x.shape()](const Tensor& g) -> std::vector<Cotangent> { return {g.reshape(from)}; });
}

Variable transpose(const Variable& x, const ops::Axes& order) {
  return record(
      "transpose", ops::transpose(x.value(), order), std::span(&x, 1),
      [order](const Tensor& g) -> std::vector<Cotangent> { return {ops::in_order_of(g, order)}; });
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
  std::size_t count = 1;
  for (const std::size_t axis : axes) count *= x.shape()[axis];
  return record("mean", divided(total.value(), count), std::span(&total, 1),
                [count](const Tensor& g) -> std::vector<Cotangent> { return {divided(g, count)}; });
}

Variable mean(const Variable& x) { return mean(x, all_axes(x)); }

Variable max(const Variable& x, const ops::Axes& axes) {
  const Reduced to = reduced("max", x.shape(), axes);
  const Tensor largest = compute(x.dtype(), to.kept, [&]<class T>(std::span<T> result) {
    const Values<T> from(x.value());
    std::ranges::fill(result, -std::numeric_limits<T>::infinity());
    for_runs(to.kept, x.shape(), [&](std::size_t begin, std::size_t count, BroadcastRun run) {
      for (std::size_t i = 0; i < count; ++i) {
        T& m = result[run.begin + i * run.step];
        m = larger(m, from[begin + i]);
      }
    });
  });
  const auto rule = [kept = x.value(), largest](const Tensor& g) -> std::vector<Cotangent> {
    return {compute(g.dtype(), kept.shape(), [&]<class T>(std::span<T> result) {
      const Values<T> from(kept), top(largest), cotangent(g);
      const std::vector<T> count_of = winners<T>(kept, largest);
      for_runs(largest.shape(), kept.shape(),
               [&](std::size_t begin, std::size_t count, BroadcastRun run) {
                 for (std::size_t i = 0; i < count; ++i) {
                   const std::size_t at = run.begin + i * run.step;
                   result[begin + i] =
                       from[begin + i] == top[at] ? cotangent[at] / count_of[at] : T(0);
                 }
               });
    })};
  };
  return record("max", largest.reshape(to.dropped), std::span(&x, 1), rule);
}

}  // namespace octavo
