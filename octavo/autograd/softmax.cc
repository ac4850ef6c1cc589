#include "octavo/autograd/softmax.h"

#include <fmt/format.h>

#include "octavo/autograd/broadcast_internal.h"
#include "octavo/autograd/softmax_internal.h"

namespace octavo {
namespace {

// Calls body(first element) for each line.
template <class Body>
void for_lines(const AxisSplit& split, const Body& body) {
  for_pieces(split.lines(), split.count * kExpCost, [&](std::size_t i, std::size_t end) {
    for (; i < end; ++i) body(split.line(i));
  });
}

// The gradient of y = softmax(x): y * (g - sum(g * y)).
Tensor softmax_gradient(const Tensor& y, const Tensor& g, const AxisSplit& split) {
  return compute(y.dtype(), y.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> probability(y), cotangent(g);
    for_lines(split, [&](std::size_t first) {
      const T *p = probability.data() + first, *c = cotangent.data() + first;
      const std::size_t step = split.inner;
      const T mean =
          lane_sum<T>(split.count, [&](std::size_t i) { return c[i * step] * p[i * step]; });
      for (std::size_t i = 0; i < split.count; ++i) {
        to[first + i * step] = p[i * step] * (c[i * step] - mean);
      }
    });
  });
}

Variable recorded_softmax(const char* operation, const Variable& x, Tensor value,
                          const AxisSplit& split) {
  return record(operation, value, std::span(&x, 1),
                [y = value, split](const Tensor& g) -> std::vector<Cotangent> {
                  return {softmax_gradient(y, g, split)};
                });
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

}  // namespace

Variable softmax(const Variable& x, int axis) {
  const AxisSplit split = split_at("softmax", x.shape(), axis);
  Tensor value = compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> from(x.value());
    for_lines(split, [&](std::size_t first) {
      softmax_line(from.data() + first, split.count, split.inner, to.data() + first);
    });
  });
  return recorded_softmax("softmax", x, std::move(value), split);
}

Variable masked_softmax(const Variable& x, const Tensor& mask) {
  const AxisSplit split = split_at("masked_softmax", x.shape(), -1);
  if (mask.dtype() != DType::u8 ||
      broadcast_shape("masked_softmax", mask.shape(), x.shape()) != x.shape()) {
    throw ContractError(
        fmt::format("masked_softmax: given a mask {} of {}, expected U8 that broadcasts to {}",
                    to_string(mask.shape()), dtype_name(mask.dtype()), to_string(x.shape())));
  }
  std::size_t mask_step = 0;
  const std::vector<std::size_t> begins = mask_lines(mask.shape(), x.shape(), mask_step);
  Tensor value = compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> from(x.value());
    const std::uint8_t* visible = mask.values<std::uint8_t>().data();
    for_lines(split, [&](std::size_t first) {
      masked_line(from.data() + first, visible + begins[first / split.count], mask_step,
                  split.count, to.data() + first);
    });
  });
  return recorded_softmax("masked_softmax", x, std::move(value), split);
}

Variable log_softmax(const Variable& x, int axis) {
  const AxisSplit split = split_at("log_softmax", x.shape(), axis);
  const std::size_t step = split.inner;
  Tensor value = compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> from(x.value());
    for_lines(split, [&](std::size_t first) {
      const T* line = from.data() + first;
      const auto [max, sum] = sum_exp(line, split.count, step);
      const T log_sum = std::log(sum);
      for (std::size_t i = 0; i < split.count; ++i) {
        to[first + i * step] = line[i * step] - max - log_sum;
      }
    });
  });
  // From x, not from the result: that is rounded in bf16, and exp would make its error relative.
  const auto rule = [kept = x.value(), split](const Tensor& g) -> std::vector<Cotangent> {
    return {compute(kept.dtype(), kept.shape(), [&]<class T>(std::span<T> to) {
      const Values<T> from(kept), cotangent(g);
      for_lines(split, [&](std::size_t first) {
        const T* c = cotangent.data() + first;
        T* y = to.data() + first;
        const std::size_t n = split.count, apart = split.inner;
        softmax_line(from.data() + first, n, apart, y);
        const T total = lane_sum<T>(n, [&](std::size_t i) { return c[i * apart]; });
        for (std::size_t i = 0; i < n; ++i) y[i * apart] = c[i * apart] - y[i * apart] * total;
      });
    })};
  };
  return record("log_softmax", std::move(value), std::span(&x, 1), rule);
}

}  // namespace octavo
