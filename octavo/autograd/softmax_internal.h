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

template <class T>
T line_max(const T* x, std::size_t n) {
  T max = -std::numeric_limits<T>::infinity();
  for (std::size_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

template <class T>
SumExp<T> sum_exp(const T* x, std::size_t n) {
  const T max = line_max(x, n);
  return {max, lane_sum<T>(n, [&](std::size_t i) { return std::exp(x[i] - max); })};
}

// y = softmax(x).
template <class T>
void softmax_line(const T* x, std::size_t n, T* y) {
  const T max = line_max(x, n);
  for (std::size_t i = 0; i < n; ++i) y[i] = std::exp(x[i] - max);
  const T sum = lane_sum<T>(n, [&](std::size_t i) { return y[i]; });
  for (std::size_t i = 0; i < n; ++i) y[i] /= sum;
}

}  // namespace octavo
