#include "octavo/autograd/cross_entropy.h"

#include <fmt/format.h>

#include "octavo/autograd/softmax_internal.h"

namespace octavo {
namespace {

constexpr const char* kOperation = "softmax_cross_entropy_with_integer_labels";

void check(const Shape& logits, const Tensor& labels) {
  const bool fits = !logits.empty() && labels.dtype() == DType::i32 &&
                    labels.shape() == Shape(logits.begin(), logits.end() - 1);
  if (!fits) {
    throw ContractError(fmt::format(
        "{}: given logits {} and labels {} of {}, expected (..., classes) and (...) of I32",
        kOperation, to_string(logits), to_string(labels.shape()), dtype_name(labels.dtype())));
  }
  for (const std::int32_t label : labels.values<std::int32_t>()) {
    if (label >= 0 && static_cast<std::uint64_t>(label) < logits.back()) continue;
    throw ContractError(fmt::format("{}: given the label {}, expected one of {} classes",
                                    kOperation, label, logits.back()));
  }
}

}  // namespace

Variable softmax_cross_entropy_with_integer_labels(const Variable& logits, const Tensor& labels) {
  check(logits.shape(), labels);
  const std::size_t classes = logits.shape().back();
  Tensor loss = compute(logits.dtype(), labels.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> from(logits.value());
    const auto label = labels.values<std::int32_t>();
    for_pieces(to.size(), classes * kExpCost, [&](std::size_t i, std::size_t end) {
      for (; i < end; ++i) {
        const T* x = from.data() + i * classes;
        const auto [max, sum] = sum_exp(x, classes);
        to[i] = std::log(sum) - (x[label[i]] - max);
      }
    });
  });
  const auto rule = [kept = logits.value(), labels](const Tensor& g) -> std::vector<Cotangent> {
    return {compute(kept.dtype(), kept.shape(), [&]<class T>(std::span<T> to) {
      const Values<T> from(kept), cotangent(g);
      const auto label = labels.values<std::int32_t>();
      const std::size_t n = kept.shape().back();
      for_pieces(label.size(), n * kExpCost, [&](std::size_t row, std::size_t end) {
        for (; row < end; ++row) {
          T* p = to.data() + row * n;
          softmax_line(from.data() + row * n, n, p);
          p[label[row]] -= 1;
          for (std::size_t i = 0; i < n; ++i) p[i] *= cotangent[row];
        }
      });
    })};
  };
  return record(kOperation, std::move(loss), std::span(&logits, 1), rule);
}

}  // namespace octavo
