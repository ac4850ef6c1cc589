#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include "octavo/autograd/compute_internal.h"

namespace octavo {

// What an element costs against one that is added (for_pieces).
inline constexpr std::size_t kExpCost = 8;

// sum(exp(x)) is exp(max) * sum.
template <class T>
struct SumExp {
  T max, sum;
};

// The largest of n elements `step` apart.
template <class T>
T line_max(const T* x, std::size_t n, std::size_t step) {
  T max = -std::numeric_limits<T>::infinity();
  for (std::size_t i = 0; i < n; ++i) max = x[i * step] > max ? x[i * step] : max;
  return max;
}

template <class T>
SumExp<T> sum_exp(const T* x, std::size_t n, std::size_t step) {
  const T max = line_max(x, n, step);
  return {max, lane_sum<T>(n, [&](std::size_t i) { return std::exp(x[i * step] - max); })};
}

// y = softmax(x), both with that step.
template <class T>
void softmax_line(const T* x, std::size_t n, std::size_t step, T* y) {
  const T max = line_max(x, n, step);
  for (std::size_t i = 0; i < n; ++i) y[i * step] = std::exp(x[i * step] - max);
  const T sum = lane_sum<T>(n, [&](std::size_t i) { return y[i * step]; });
  for (std::size_t i = 0; i < n; ++i) y[i * step] /= sum;
}

}  // namespace octavo
