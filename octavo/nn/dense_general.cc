#include "octavo/nn/dense_general.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "octavo/autograd/shape.h"
#include "octavo/base/error.h"
#include "octavo/nn/compute_type.h"

namespace octavo::nn {
namespace {

// Ascending, counted from 0.
ops::Axes contracted_axes(const DenseGeneral& layer, const Shape& x) {
  ops::Axes axes;
  const int rank = static_cast<int>(x.size());
  for (const int axis : layer.axis) {
    const bool is_there = axis >= -rank && axis < rank;
    const auto index = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
    if (!is_there || std::ranges::find(axes, index) != axes.end() ||
        index < layer.batch_dims.size()) {
      throw ContractError(
          fmt::format("DenseGeneral: given axis {} of x {} with {} batch axes, expected each once, "
                      "behind those",
                      axis, to_string(x), layer.batch_dims.size()));
    }
    axes.push_back(index);
  }
  std::ranges::sort(axes);
  return axes;
}

void check_batch(const DenseGeneral& layer, const Shape& x) {
  std::vector<std::size_t> sorted = layer.batch_dims;
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] == i && i < x.size()) continue;
    throw ContractError(
        fmt::format("DenseGeneral: given batch_dims ({}) of x {}, expected the "
                    "leading axes 0, 1, ... without a gap",
                    fmt::join(layer.batch_dims, ", "), to_string(x)));
  }
}

Shape joined(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::uint64_t count_of(const Shape& shape) {
  if (const auto count = element_count(shape)) return *count;
  throw ContractError(fmt::format("DenseGeneral: given sizes {}, expected 2^63 elements at most",
                                  to_string(shape)));
}

// The initializer's values for another shape of as many elements.
Initializer reshaped(const Initializer& initializer, Shape flat) {
  return [initializer, flat = std::move(flat)](const Rng& rng, const Shape& shape, DType dtype) {
    return initializer(rng, flat, dtype).reshape(shape);
  };
}

}  // namespace

Variable DenseGeneral::operator()(const Scope& scope, const Variable& x) const {
  if (features.empty()) throw ContractError("DenseGeneral: given no features, expected sizes");
  check_batch(*this, x.shape());
  const ops::Axes contracting = contracted_axes(*this, x.shape());
  ops::Axes batch(batch_dims.size()), kernel_axes(contracting.size());
  std::iota(batch.begin(), batch.end(), std::size_t{0});
  std::iota(kernel_axes.begin(), kernel_axes.end(), batch.size());
  const Shape out(features.begin(), features.end());
  const Shape batch_shape(x.shape().begin(),
                          x.shape().begin() + static_cast<std::ptrdiff_t>(batch.size()));
  Shape in;
  for (const std::size_t index : contracting) in.push_back(x.shape()[index]);

  const Initializer matrix =
      reshaped(kernel_init, {count_of(joined(batch_shape, in)), count_of(out)});
  const Variable kernel =
      scope.param("kernel", matrix, joined(joined(batch_shape, in), out), param_dtype);
  std::optional<Variable> bias;
  if (use_bias) {
    bias = scope.param("bias", reshaped(bias_init, {count_of(joined(batch_shape, out))}),
                       joined(batch_shape, out), param_dtype);
  }
  const DType type = compute_type("DenseGeneral", dtype, {x.dtype(), kernel.dtype()});
  const Variable y = dot_general_cls(scope, cast(x, type), cast(kernel, type),
                                     {contracting, kernel_axes, batch, batch});
  if (!bias) return y;
  const std::size_t free = x.rank() - batch.size() - contracting.size();
  return y + reshape(cast(*bias, type), joined(joined(batch_shape, Shape(free, 1)), out));
}

}  // namespace octavo::nn
