#include "octavo/ops/fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "octavo/base/error.h"
#include "octavo/base/larger.h"
#include "octavo/formats/convert.h"
#include "octavo/ops/quantized_tensor.h"
#include "octavo/tensor/broadcast.h"

namespace octavo::fp8 {
namespace {

// x rounded to what a type holds.
double rounded_to(DType dtype, double x) {
  constexpr auto kEven = Rounding::nearest_even;
  switch (dtype) {
    case DType::f32:
      return static_cast<float>(x);
    case DType::bf16:
      return decode<Format::bf16>(encode<Format::bf16>(x, kEven, Overflow::special));
    case DType::f16:
      return decode<Format::f16>(encode<Format::f16>(x, kEven, Overflow::special));
    default:
      return x;
  }
}

std::vector<double> as_doubles(const Tensor& x) {
  const Tensor wide = x.astype(DType::f64);
  return {wide.values<double>().begin(), wide.values<double>().end()};
}

// The scale behind each element of x, in f64.
std::vector<double> spread(const char* operation, const Tensor& scale, const Shape& shape) {
  if (broadcast_shape(operation, scale.shape(), shape) != shape) {
    throw ContractError(fmt::format("{}: given a scale {} for {}, expected one that broadcasts",
                                    operation, to_string(scale.shape()), to_string(shape)));
  }
  const std::vector<double> from = as_doubles(scale);
  std::vector<double> to(element_count(shape).value_or(0));
  for_runs(scale.shape(), shape, [&](std::size_t begin, std::size_t count, BroadcastRun run) {
    for (std::size_t i = 0; i < count; ++i) to[begin + i] = from[run.begin + i * run.step];
  });
  return to;
}

template <Format F>
void encode_quotients(std::span<const double> x, std::span<const double> scale, DType type,
                      double largest, std::span<std::uint8_t> codes) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Quotients of f32 are rounded once more by the division in double; the second rounding of
    // p >= 2 * 24 + 2 bits changes nothing.
    double y = rounded_to(type, x[i] / scale[i]);
    if (!std::isnan(y)) y = std::clamp(y, -largest, largest);
    codes[i] = encode<F>(y, Rounding::nearest_even, Overflow::saturate);
  }
}

// One scale and f32 arithmetic: the kernels, on all threads.
bool has_kernel(const Tensor& x, const Tensor& scale, DType compute_dtype) {
  if (x.rank() == 0 || x.size() == 0 || scale.size() != 1 || scale.rank() > x.rank()) return false;
  if (compute_dtype != DType::f32) return false;
  const double value = scale.item();
  return (x.dtype() == DType::f32 || x.dtype() == DType::bf16) && std::isfinite(value) && value > 0;
}

}  // namespace

float get_fp8_max(DType fp8_dtype) {
  if (!is_fp8(fp8_dtype)) {
    throw ContractError(
        fmt::format("get_fp8_max: given {}, expected F8_E4M3, F8_E5M2, "
                    "F8_E4M3FNUZ or F8_E5M2FNUZ",
                    dtype_name(fp8_dtype)));
  }
  return static_cast<float>(traits(*dtype_info(fp8_dtype).format).largest);
}

Tensor quantize(const Tensor& x, DType q_dtype, const Tensor& scale, DType compute_dtype) {
  const double largest = get_fp8_max(q_dtype);
  Tensor codes(q_dtype, x.shape());
  if (has_kernel(x, scale, compute_dtype)) {
    const std::size_t cols = x.shape().back(), rows = x.size() / cols;
    ops::QuantizedTensor result;
    ops::quantize(
        {{*dtype_info(x.dtype()).format, x.data(), rows, cols, cols}, {}},
        {.format = *dtype_info(q_dtype).format, .scale = static_cast<float>(scale.item())},
        {.codes = true}, result);
    std::memcpy(codes.mutable_values<std::uint8_t>().data(), result.codes.data(), x.size());
    return codes;
  }
  std::vector<double> scales = spread("quantize", scale, x.shape());
  for (double& s : scales) s = rounded_to(compute_dtype, s);
  const auto encode_all = [&]<Format F>(std::integral_constant<Format, F>) {
    encode_quotients<F>(as_doubles(x), scales, promoted(x.dtype(), compute_dtype), largest,
                        codes.mutable_values<std::uint8_t>());
  };
  switch (q_dtype) {
    case DType::f8_e4m3:
      encode_all(std::integral_constant<Format, Format::e4m3fn>());
      break;
    case DType::f8_e5m2:
      encode_all(std::integral_constant<Format, Format::e5m2>());
      break;
    case DType::f8_e4m3fnuz:
      encode_all(std::integral_constant<Format, Format::e4m3fnuz>());
      break;
    default:
      encode_all(std::integral_constant<Format, Format::e5m2fnuz>());
      break;
  }
  return codes;
}

Tensor dequantize(const Tensor& x, DType dq_dtype, const Tensor& scale) {
  const std::vector<double> values = as_doubles(x.astype(dq_dtype));
  const std::vector<double> scales = spread("dequantize", scale.astype(dq_dtype), x.shape());
  Tensor result(DType::f64, x.shape());
  const auto to = result.mutable_values<double>();
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = values[i] * scales[i];
  return result.astype(dq_dtype);
}

Tensor qdq(const Tensor& x, DType q_dtype, const Tensor& scale, DType compute_dtype) {
  return dequantize(quantize(x, q_dtype, scale, compute_dtype), x.dtype(), scale);
}

Tensor compute_scale(const Tensor& amax, const Tensor& scale, float fp8_max, int margin,
                     Fp8Semantics semantics) {
  const bool is_one = amax.size() == 1;
  if (!is_one && amax.shape() != scale.shape()) {
    throw ContractError(
        fmt::format("compute_scale: given amax {} and scale {}, expected one amax, "
                    "or one for each scale",
                    to_string(amax.shape()), to_string(scale.shape())));
  }
  Tensor result(DType::f32, scale.shape());
  const auto to = result.mutable_values<float>();
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = delayed_scale(amax.values<float>()[is_one ? 0 : i], scale.values<float>()[i], fp8_max,
                          margin, semantics);
  }
  return result;
}

float amax(const Tensor& x) {
  if (x.size() == 0) {
    throw ContractError(fmt::format("amax: given {}, expected elements", to_string(x.shape())));
  }
  float largest = 0;
  for (const float value : x.to_floats()) largest = larger(largest, std::fabs(value));
  return largest;
}

Tensor push_amax(const Tensor& amax_history, float amax) {
  if (amax_history.rank() != 1 || amax_history.size() == 0) {
    throw ContractError(fmt::format("compute_amax_history: given a history {}, expected (N)",
                                    to_string(amax_history.shape())));
  }
  Tensor result(DType::f32, amax_history.shape());
  const auto from = amax_history.values<float>();
  const auto to = result.mutable_values<float>();
  std::ranges::rotate_copy(from, from.begin() + 1, to.begin());
  to[0] = amax;
  return result;
}

Tensor compute_amax_history(const Tensor& x, const Tensor& amax_history) {
  return push_amax(amax_history, amax(x));
}

Tensor next_scale(DType q_dtype, const Tensor& scale, const Tensor& amax_history,
                  Fp8Semantics semantics) {
  return compute_scale(Tensor::scalar(history_amax(amax_history.values<float>())), scale,
                       get_fp8_max(q_dtype), 0, semantics);
}

Fp8Meta update_fp8_meta(const Tensor& x, DType q_dtype, const Tensor& scale,
                        const Tensor& amax_history, Fp8Semantics semantics) {
  return {next_scale(q_dtype, scale, amax_history, semantics),
          compute_amax_history(x, amax_history)};
}

QdqUpdate quantize_dequantize_update(const Tensor& x, DType q_dtype, const Tensor& scale,
                                     const Tensor& amax_history, DType compute_dtype,
                                     Fp8Semantics semantics) {
  const Fp8Meta meta = update_fp8_meta(x, q_dtype, scale, amax_history, semantics);
  return {qdq(x, q_dtype, meta.scale, compute_dtype), meta};
}

}  // namespace octavo::fp8
