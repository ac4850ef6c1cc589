#include "octavo/autograd/softmax.h"

#include <fmt/format.h>

#include <numeric>

#include "octavo/autograd/broadcast_internal.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/softmax_internal.h"

namespace octavo {
namespace {

// Calls body(first element, count) for each line along the last axis.
template <class Body>
void for_lines(const Shape& shape, const Body& body) {
  const std::size_t n = shape.back(), lines = n == 0 ? 0 : *element_count(shape) / n;
  for_pieces(lines, n * kExpCost, [&](std::size_t line, std::size_t end) {
    for (; line < end; ++line) body(line * n, n);
  });
}

// f along the last axis, of x whose `axis` is moved there.
template <class F>
Variable along(const char* operation, const Variable& x, int axis, const F& f) {
  const std::size_t at = axis_at(operation, x.shape(), axis);
  if (at + 1 == x.rank()) return f(x);
  ops::Axes order(x.rank());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::swap(order[at], order.back());
  return transpose(f(transpose(x, order)), order);
}

// The gradient of y = softmax(x): y * (g - sum(g * y)).
Tensor softmax_gradient(const Tensor& y, const Tensor& g) {
  return compute(y.dtype(), y.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> probability(y), cotangent(g);
    for_lines(y.shape(), [&](std::size_t first, std::size_t n) {
      const T *p = probability.data() + first, *c = cotangent.data() + first;
      T* x = to.data() + first;
      const T mean = lane_sum<T>(n, [&](std::size_t i) { return c[i] * p[i]; });
      for (std::size_t i = 0; i < n; ++i) x[i] = p[i] * (c[i] - mean);
    });
  });
}

Variable recorded_softmax(const char* operation, const Variable& x, const Tensor& value) {
  return record(
      operation, value, std::span(&x, 1),
      [value](const Tensor& g) -> std::vector<Cotangent> { return {softmax_gradient(value, g)}; });
}

// `mask_step`: 1, or 0 where one value holds for the line.
template <class T>
void masked_line(const T* x, const std::uint8_t* mask, std::size_t mask_step, std::size_t n, T* y) {
  T max = -std::numeric_limits<T>::infinity();
  bool is_any = false;
  for (std::size_t i = 0; i < n; ++i) {
    if (mask[i * mask_step] == 0) continue;
    is_any = true;
    max = x[i] > max ? x[i] : max;
  }
  for (std::size_t i = 0; i < n; ++i) y[i] = mask[i * mask_step] == 0 ? T(0) : std::exp(x[i] - max);
  if (!is_any) return;
  const T sum = lane_sum<T>(n, [&](std::size_t i) { return y[i]; });
  for (std::size_t i = 0; i < n; ++i) y[i] = mask[i * mask_step] == 0 ? T(0) : y[i] / sum;
}

// For each line of x along its last axis, where its mask begins.
std::vector<std::size_t> mask_lines(const Shape& mask, const Shape& x, std::size_t& step) {
  Shape lines = x;
  lines.back() = 1;
  const bool is_full = !mask.empty() && mask.back() == x.back() && x.back() != 1;
  step = is_full ? 1 : 0;
  Shape of_mask = mask;
  if (!of_mask.empty()) of_mask.back() = 1;
  std::vector<std::size_t> begins(*element_count(lines));
  for_runs(of_mask, lines, [&](std::size_t begin, std::size_t count, BroadcastRun run) {
    for (std::size_t i = 0; i < count; ++i) {
      begins[begin + i] = (run.begin + i * run.step) * (is_full ? mask.back() : 1);
    }
  });
  return begins;
}

Variable softmax_of_last(const Variable& x) {
  return recorded_softmax("softmax", x,
                          compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
                            const Values<T> from(x.value());
                            for_lines(x.shape(), [&](std::size_t first, std::size_t n) {
                              softmax_line(from.data() + first, n, to.data() + first);
                            });
                          }));
}

Variable log_softmax_of_last(const Variable& x) {
  Tensor value = compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> from(x.value());
    for_lines(x.shape(), [&](std::size_t first, std::size_t n) {
      const T* line = from.data() + first;
      const auto [max, sum] = sum_exp(line, n);
      const T log_sum = std::log(sum);
      for (std::size_t i = 0; i < n; ++i) to[first + i] = line[i] - max - log_sum;
    });
  });
  // From x, not from the result: that is rounded in bf16, and exp would make its error relative.
  const auto rule = [kept = x.value()](const Tensor& g) -> std::vector<Cotangent> {
    return {compute(kept.dtype(), kept.shape(), [&]<class T>(std::span<T> to) {
      const Values<T> from(kept), cotangent(g);
      for_lines(kept.shape(), [&](std::size_t first, std::size_t n) {
        const T* c = cotangent.data() + first;
        T* y = to.data() + first;
        softmax_line(from.data() + first, n, y);
        const T total = lane_sum<T>(n, [&](std::size_t i) { return c[i]; });
        for (std::size_t i = 0; i < n; ++i) y[i] = c[i] - y[i] * total;
      });
    })};
  };
  return record("log_softmax", std::move(value), std::span(&x, 1), rule);
}

}  // namespace

Variable softmax(const Variable& x, int axis) { return along("softmax", x, axis, softmax_of_last); }

Variable log_softmax(const Variable& x, int axis) {
  return along("log_softmax", x, axis, log_softmax_of_last);
}

Variable masked_softmax(const Variable& x, const Tensor& mask) {
  axis_at("masked_softmax", x.shape(), -1);
  if (mask.dtype() != DType::u8 ||
      broadcast_shape("masked_softmax", mask.shape(), x.shape()) != x.shape()) {
    throw ContractError(
        fmt::format("masked_softmax: given a mask {} of {}, expected U8 that broadcasts to {}",
                    to_string(mask.shape()), dtype_name(mask.dtype()), to_string(x.shape())));
  }
  std::size_t mask_step = 0;
  const std::vector<std::size_t> begins = mask_lines(mask.shape(), x.shape(), mask_step);
  return recorded_softmax("masked_softmax", x,
                          compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
                            const Values<T> from(x.value());
                            const std::uint8_t* visible = mask.values<std::uint8_t>().data();
                            for_lines(x.shape(), [&](std::size_t first, std::size_t n) {
                              masked_line(from.data() + first, visible + begins[first / n],
                                          mask_step, n, to.data() + first);
                            });
                          }));
}

}  // namespace octavo
