#include "octavo/autograd/norm.h"

#include <fmt/format.h>

#include <cmath>

#include "octavo/autograd/compute_internal.h"
#include "octavo/autograd/elementwise.h"

namespace octavo {
namespace {

// What an element costs against one that is added (for_pieces).
constexpr std::size_t kNormCost = 4;

// What rules keep: tensors as they were given.
struct NormInputs {
  Tensor x;
  std::optional<Tensor> scale, bias;
  double epsilon;
  bool is_centered;

  std::size_t count() const { return x.shape().back(); }
  std::size_t rows() const { return x.size() / count(); }
  DType type() const {
    const bool is_f64 = x.dtype() == DType::f64 || (scale && scale->dtype() == DType::f64) ||
                        (bias && bias->dtype() == DType::f64);
    return is_f64 ? DType::f64 : DType::f32;
  }
};

// Of one row: (x - mean) * inverse is normalized.
template <class T>
struct Statistics {
  T mean, inverse;
};

template <class T>
Statistics<T> statistics_of(const T* x, std::size_t n, double epsilon, bool is_centered) {
  const T count = static_cast<T>(n);
  const T mean = is_centered ? lane_sum<T>(n, [&](std::size_t i) { return x[i]; }) / count : T(0);
  const T variance = lane_sum<T>(n,
                                 [&](std::size_t i) {
                                   const T d = x[i] - mean;
                                   return d * d;
                                 }) /
                     count;
  return {mean, 1 / std::sqrt(variance + static_cast<T>(epsilon))};
}

Tensor normalized(const NormInputs& in, DType type) {
  return compute(in.type(), in.x.shape(),
                 [&]<class T>(std::span<T> to) {
                   const std::size_t n = in.count();
                   const Values<T> from(in.x);
                   const std::optional<Values<T>> scale(in.scale), bias(in.bias);
                   for_pieces(in.rows(), n * kNormCost, [&](std::size_t row, std::size_t end) {
                     for (; row < end; ++row) {
                       const T* x = from.data() + row * n;
                       T* y = to.data() + row * n;
                       const auto [mean, inverse] = statistics_of(x, n, in.epsilon, in.is_centered);
                       for (std::size_t i = 0; i < n; ++i) {
                         y[i] = (x[i] - mean) * (scale ? inverse * (*scale)[i] : inverse);
                       }
                       for (std::size_t i = 0; bias && i < n; ++i) y[i] += (*bias)[i];
                     }
                   });
                 })
      .astype(type);
}

// With u = (x - mean) * inverse and d = g * scale:
//     inverse * (d - mean(d) - u * mean(d * u)), for rms_norm without mean(d)
Tensor gradient_of_x(const NormInputs& in, const Tensor& g) {
  return compute(in.type(), in.x.shape(),
                 [&]<class T>(std::span<T> to) {
                   const std::size_t n = in.count();
                   const Values<T> from(in.x), cotangent(g);
                   const std::optional<Values<T>> scale(in.scale);
                   for_pieces(in.rows(), n * kNormCost, [&](std::size_t row, std::size_t end) {
                     for (; row < end; ++row) {
                       const T *x = from.data() + row * n, *c = cotangent.data() + row * n;
                       T* d = to.data() + row * n;
                       const auto [mean, inverse] = statistics_of(x, n, in.epsilon, in.is_centered);
                       for (std::size_t i = 0; i < n; ++i) d[i] = scale ? c[i] * (*scale)[i] : c[i];
                       const auto u = [&, m = mean, v = inverse](std::size_t i) {
                         return (x[i] - m) * v;
                       };
                       const T count = static_cast<T>(n);
                       const T along =
                           lane_sum<T>(n, [&](std::size_t i) { return d[i] * u(i); }) / count;
                       const T level =
                           in.is_centered
                               ? lane_sum<T>(n, [&](std::size_t i) { return d[i]; }) / count
                               : T(0);
                       for (std::size_t i = 0; i < n; ++i)
                         d[i] = inverse * (d[i] - level - u(i) * along);
                     }
                   });
                 })
      .astype(in.x.dtype());
}

// Sums over rows, in their order: of g * u for the scale, of g for the bias.
Tensor gradient_of_scale(const NormInputs& in, const Tensor& g) {
  return compute(in.type(), in.scale->shape(),
                 [&]<class T>(std::span<T> to) {
                   const std::size_t n = in.count();
                   const Values<T> from(in.x), cotangent(g);
                   std::ranges::fill(to, T(0));
                   for (std::size_t row = 0; row < in.rows(); ++row) {
                     const T *x = from.data() + row * n, *c = cotangent.data() + row * n;
                     const auto [mean, inverse] = statistics_of(x, n, in.epsilon, in.is_centered);
                     for (std::size_t i = 0; i < n; ++i) to[i] += c[i] * ((x[i] - mean) * inverse);
                   }
                 })
      .astype(in.scale->dtype());
}

Tensor gradient_of_bias(const NormInputs& in, const Tensor& g) {
  return compute(in.type(), in.bias->shape(),
                 [&]<class T>(std::span<T> to) {
                   const Values<T> cotangent(g);
                   std::ranges::fill(to, T(0));
                   for (std::size_t i = 0; i < cotangent.size(); i += to.size()) {
                     for (std::size_t j = 0; j < to.size(); ++j) to[j] += cotangent[i + j];
                   }
                 })
      .astype(in.bias->dtype());
}

void check_parameter(const char* operation, const char* name, const Variable& x,
                     const std::optional<Variable>& parameter) {
  if (!parameter) return;
  check_differentiable(operation, parameter->dtype());
  if (parameter->shape() == Shape{x.shape().back()}) return;
  throw ContractError(fmt::format("{}: given a {} {} for x {}, expected [{}]", operation, name,
                                  to_string(parameter->shape()), to_string(x.shape()),
                                  x.shape().back()));
}

Variable norm(const char* operation, const Variable& x, const std::optional<Variable>& scale,
              const std::optional<Variable>& bias, const NormOptions& options, bool is_centered) {
  if (x.rank() == 0 || x.shape().back() == 0) {
    throw ContractError(fmt::format("{}: given x {}, expected (..., n) with n at least 1",
                                    operation, to_string(x.shape())));
  }
  check_differentiable(operation, x.dtype());
  check_parameter(operation, "scale", x, scale);
  check_parameter(operation, "bias", x, bias);
  NormInputs in{x.value(), {}, {}, options.epsilon, is_centered};
  std::vector<Variable> inputs = {x};
  DType type = x.dtype();
  if (scale) {
    in.scale = scale->value();
    inputs.push_back(*scale);
    type = promoted(type, scale->dtype());
  }
  if (bias) {
    in.bias = bias->value();
    inputs.push_back(*bias);
    type = promoted(type, bias->dtype());
  }
  if (options.dtype) check_differentiable(operation, *options.dtype);
  return record(operation, normalized(in, options.dtype.value_or(type)), inputs,
                [in](const Tensor& g) {
                  std::vector<Cotangent> gradients = {gradient_of_x(in, g)};
                  if (in.scale) gradients.emplace_back(gradient_of_scale(in, g));
                  if (in.bias) gradients.emplace_back(gradient_of_bias(in, g));
                  return gradients;
                });
}

}  // namespace

Variable rms_norm(const Variable& x, const std::optional<Variable>& scale,
                  const NormOptions& options) {
  return norm("rms_norm", x, scale, {}, options, false);
}

Variable layer_norm(const Variable& x, const std::optional<Variable>& scale,
                    const std::optional<Variable>& bias, const NormOptions& options) {
  return norm("layer_norm", x, scale, bias, options, true);
}

}  // namespace octavo
