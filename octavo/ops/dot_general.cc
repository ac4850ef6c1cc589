#include "octavo/ops/dot_general.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "octavo/base/error.h"
#include "octavo/ops/dot_general_internal.h"

namespace octavo::ops {
namespace {

// Rows from which a weight is packed before the product, and not piece by piece within it.
constexpr std::size_t kPackRowsOfA = 16;

std::size_t product(const Shape& shape, const Axes& axes) {
  std::size_t size = 1;
  for (const std::size_t axis : axes) size *= shape[axis];
  return size;
}

void append(Axes& to, const Axes& axes) { to.insert(to.end(), axes.begin(), axes.end()); }

bool is_identity(const Axes& order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return true;
}

// Element offsets in the source for each index of the given axes, row-major.
std::vector<std::size_t> offsets_of(const Shape& shape, const Axes& axes) {
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  std::vector<std::size_t> offsets = {0};
  for (const std::size_t axis : axes) {
    std::vector<std::size_t> next;
    next.reserve(offsets.size() * shape[axis]);
    for (const std::size_t offset : offsets) {
      for (std::size_t i = 0; i < shape[axis]; ++i) next.push_back(offset + i * strides[axis]);
    }
    offsets = std::move(next);
  }
  return offsets;
}

template <class T>
void gather(const void* from, void* to, const std::vector<std::size_t>& outer,
            const std::vector<std::size_t>& inner) {
  const auto* source = static_cast<const T*>(from);
  auto* target = static_cast<T*>(to);
  for (const std::size_t row : outer) {
    for (const std::size_t column : inner) *target++ = source[row + column];
  }
}

void check_axes(const char* side, const Shape& shape, const Axes& contracting, const Axes& batch) {
  std::vector<bool> seen(shape.size());
  for (const Axes* axes : {&contracting, &batch}) {
    for (const std::size_t axis : *axes) {
      if (axis >= shape.size() || seen[axis]) {
        throw ContractError(fmt::format(
            "dot_general: given axis {} of {} {}, expected each axis once at most, below its rank",
            axis, side, to_string(shape)));
      }
      seen[axis] = true;
    }
  }
}

void check_dims(const Shape& lhs, const Shape& rhs, const DotDimensionNumbers& dims) {
  check_axes("lhs", lhs, dims.lhs_contracting, dims.lhs_batch);
  check_axes("rhs", rhs, dims.rhs_contracting, dims.rhs_batch);
  const auto check_pairs = [&](const char* kind, const Axes& of_lhs, const Axes& of_rhs) {
    bool fits = of_lhs.size() == of_rhs.size();
    for (std::size_t i = 0; fits && i < of_lhs.size(); ++i) {
      fits = lhs[of_lhs[i]] == rhs[of_rhs[i]];
    }
    if (!fits) {
      throw ContractError(fmt::format(
          "dot_general: given {} axes [{}] of lhs {} and [{}] of rhs {}, expected "
          "pairs of one size",
          kind, fmt::join(of_lhs, ", "), to_string(lhs), fmt::join(of_rhs, ", "), to_string(rhs)));
    }
  };
  check_pairs("contracting", dims.lhs_contracting, dims.rhs_contracting);
  check_pairs("batch", dims.lhs_batch, dims.rhs_batch);
}

// Of dims that were checked.
Shape result_shape(const Shape& lhs, const Shape& rhs, const DotDimensionNumbers& dims) {
  Shape shape;
  for (const std::size_t axis : dims.lhs_batch) shape.push_back(lhs[axis]);
  for (const std::size_t axis : free_axes(lhs.size(), dims.lhs_contracting, dims.lhs_batch)) {
    shape.push_back(lhs[axis]);
  }
  for (const std::size_t axis : free_axes(rhs.size(), dims.rhs_contracting, dims.rhs_batch)) {
    shape.push_back(rhs[axis]);
  }
  return shape;
}

void check_cotangent(const Tensor& g, const Shape& lhs, const Shape& rhs,
                     const DotDimensionNumbers& dims) {
  check_dims(lhs, rhs, dims);
  const Shape expected = result_shape(lhs, rhs, dims);
  if (g.shape() != expected) {
    throw ContractError(
        fmt::format("dot_general: given a cotangent {} of the product of lhs {} and rhs {}, "
                    "expected {}",
                    to_string(g.shape()), to_string(lhs), to_string(rhs), to_string(expected)));
  }
}

void check_permutation(const char* operation, const Tensor& x, const Axes& order) {
  Axes sorted = order;
  std::ranges::sort(sorted);
  if (sorted.size() != x.rank() || !is_identity(sorted)) {
    throw ContractError(fmt::format("{}: given the order [{}] of {}, expected a permutation",
                                    operation, fmt::join(order, ", "), to_string(x.shape())));
  }
}

DotOperand dot_operand(const Tensor& x, const Axes& contracting, const Axes& batch,
                       bool free_first_only) {
  const Axes free = free_axes(x.rank(), contracting, batch);
  Axes contracted_first = batch, free_first = batch;
  append(contracted_first, contracting);
  append(contracted_first, free);
  append(free_first, free);
  append(free_first, contracting);
  const bool is_free_first =
      free_first_only || !is_identity(contracted_first) || is_identity(free_first);
  const Axes& axes = is_free_first ? free_first : contracted_first;
  return {transpose(x, axes),
          axes,
          product(x.shape(), batch),
          product(x.shape(), free),
          product(x.shape(), contracting),
          is_free_first};
}

// Kernels read no f16: f32 holds its values.
Tensor readable(const Tensor& x) { return x.dtype() == DType::f16 ? x.astype(DType::f32) : x; }

DType result_type(const Tensor& lhs, const Tensor& rhs, std::optional<DType> preferred) {
  if (preferred) return *preferred;
  if (lhs.dtype() == DType::f64) return DType::f64;
  return lhs.dtype() == rhs.dtype() && !is_fp8(lhs.dtype()) ? lhs.dtype() : DType::f32;
}

// Steps from row to row and from column to column of a matrix (free, contracted).
std::pair<std::size_t, std::size_t> steps(const DotOperand& x) {
  return x.free_first ? std::pair(x.contracted, std::size_t{1}) : std::pair(std::size_t{1}, x.free);
}

Tensor dot_f64(const DotOperands& operands) {
  Tensor result = Tensor::zeros(DType::f64, operands.shape);
  const auto a = operands.lhs.tensor.values<double>();
  const auto w = operands.rhs.tensor.values<double>();
  const auto c = result.mutable_values<double>();
  const auto [m, n, k] = std::tuple(operands.lhs.free, operands.rhs.free, operands.lhs.contracted);
  const auto [a_row, a_col] = steps(operands.lhs);
  const auto [w_row, w_col] = steps(operands.rhs);
  for (std::size_t b = 0; b < operands.lhs.batch; ++b) {
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::size_t l = 0; l < k; ++l) {
          sum += a[b * m * k + i * a_row + l * a_col] * w[b * n * k + j * w_row + l * w_col];
        }
        c[(b * m + i) * n + j] = sum;
      }
    }
  }
  return result;
}

// `count` axes from `begin`.
Axes range(std::size_t begin, std::size_t count) {
  Axes axes(count);
  std::iota(axes.begin(), axes.end(), begin);
  return axes;
}

// Those of `axes`, whose partners are `partners`, as many, in the ascending order of these.
Axes by_partner(const Axes& axes, const Axes& partners) {
  Axes order = range(0, axes.size());
  std::ranges::sort(order, {}, [&](std::size_t i) { return partners[i]; });
  for (std::size_t& i : order) i = axes[i];
  return order;
}

}  // namespace

DotDimensionNumbers matmul_dims(std::size_t lhs_rank) { return {{lhs_rank - 1}, {0}}; }

Axes free_axes(std::size_t rank, const Axes& contracting, const Axes& batch) {
  Axes axes;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (std::ranges::find(contracting, axis) == contracting.end() &&
        std::ranges::find(batch, axis) == batch.end()) {
      axes.push_back(axis);
    }
  }
  return axes;
}

Tensor transpose(const Tensor& x, const Axes& order) {
  check_permutation("transpose", x, order);
  if (is_identity(order)) return x;
  Shape shape;
  for (const std::size_t axis : order) shape.push_back(x.shape()[axis]);
  Tensor result(x.dtype(), shape);
  if (result.size() == 0) return result;

  const Axes rows(order.begin(), order.end() - 1);
  const auto outer = offsets_of(x.shape(), rows), inner = offsets_of(x.shape(), {order.back()});
  void* to = result.mutable_data();
  switch (dtype_bits(x.dtype())) {
    case 8:
      gather<std::uint8_t>(x.data(), to, outer, inner);
      break;
    case 16:
      gather<std::uint16_t>(x.data(), to, outer, inner);
      break;
    case 32:
      gather<std::uint32_t>(x.data(), to, outer, inner);
      break;
    case 64:
      gather<std::uint64_t>(x.data(), to, outer, inner);
      break;
    default:
      throw ContractError(fmt::format("transpose: given {}, expected elements of whole bytes",
                                      dtype_name(x.dtype())));
  }
  return result;
}

DotOperands dot_operands(const Tensor& lhs, const Tensor& rhs, const DotDimensionNumbers& dims,
                         bool lhs_free_first) {
  check_dims(lhs.shape(), rhs.shape(), dims);
  return {dot_operand(lhs, dims.lhs_contracting, dims.lhs_batch, lhs_free_first),
          dot_operand(rhs, dims.rhs_contracting, dims.rhs_batch, false),
          result_shape(lhs.shape(), rhs.shape(), dims)};
}

Operand dot_matrix(const DotOperand& operand, std::size_t batch) {
  const std::optional<Format> format = dtype_info(operand.tensor.dtype()).format;
  if (!format) {
    throw ContractError(fmt::format("dot_general: given {} operands, expected floating point",
                                    dtype_name(operand.tensor.dtype())));
  }
  const std::size_t element = static_cast<std::size_t>(dtype_bits(operand.tensor.dtype())) / 8;
  const auto* data = static_cast<const std::byte*>(operand.tensor.data()) +
                     batch * operand.free * operand.contracted * element;
  return {{*format, data, operand.free, operand.contracted,
           operand.free_first ? operand.contracted : operand.free},
          {},
          !operand.free_first};
}

Tensor dot_general(const Tensor& lhs, const Tensor& rhs, const DotDimensionNumbers& dims,
                   std::optional<DType> preferred_element_type) {
  const DotOperands operands = dot_operands(readable(lhs), readable(rhs), dims);
  const DType type = result_type(lhs, rhs, preferred_element_type);
  if (lhs.dtype() == DType::f64 || rhs.dtype() == DType::f64) {
    if (lhs.dtype() != rhs.dtype()) {
      throw ContractError(fmt::format("dot_general: given {} and {}, expected both in F64",
                                      dtype_name(lhs.dtype()), dtype_name(rhs.dtype())));
    }
    return dot_f64(operands).astype(type);
  }
  const std::size_t m = operands.lhs.free, n = operands.rhs.free;
  if (m == 0 || n == 0 || operands.lhs.batch == 0 || operands.lhs.contracted == 0) {
    return Tensor::zeros(type, operands.shape);
  }
  DotResults results(stored_type(type), operands.shape, m, n);
  for (std::size_t b = 0; b < operands.lhs.batch; ++b) {
    const Operand a = dot_matrix(operands.lhs, b), w = dot_matrix(operands.rhs, b);
    m < kPackRowsOfA ? gemm(a, w, results.matrix(b)) : gemm(a, pack_weight(w), results.matrix(b));
  }
  return results.tensor().astype(type);
}

Tensor in_order_of(const Tensor& x, const Axes& axes) {
  check_permutation("in_order_of", x, axes);
  Axes order(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) order[axes[i]] = i;
  return transpose(x, order);
}

Tensor dot_general_transpose_lhs(const Tensor& g, const Shape& lhs, const Tensor& rhs,
                                 const DotDimensionNumbers& dims,
                                 std::optional<DType> preferred_element_type) {
  check_cotangent(g, lhs, rhs.shape(), dims);
  const Axes lhs_free = free_axes(lhs.size(), dims.lhs_contracting, dims.lhs_batch);
  const Axes rhs_free = free_axes(rhs.rank(), dims.rhs_contracting, dims.rhs_batch);
  const std::size_t batch = dims.lhs_batch.size();
  const Tensor result = dot_general(
      g, rhs,
      {range(batch + lhs_free.size(), rhs_free.size()), rhs_free, range(0, batch), dims.rhs_batch},
      preferred_element_type);
  Axes axes = dims.lhs_batch;
  append(axes, lhs_free);
  append(axes, by_partner(dims.lhs_contracting, dims.rhs_contracting));
  return in_order_of(result, axes);
}

Tensor dot_general_transpose_rhs(const Tensor& g, const Tensor& lhs, const Shape& rhs,
                                 const DotDimensionNumbers& dims,
                                 std::optional<DType> preferred_element_type) {
  check_cotangent(g, lhs.shape(), rhs, dims);
  const Axes lhs_free = free_axes(lhs.rank(), dims.lhs_contracting, dims.lhs_batch);
  const std::size_t batch = dims.lhs_batch.size();
  const Tensor result = dot_general(
      lhs, g, {lhs_free, range(batch, lhs_free.size()), dims.lhs_batch, range(0, batch)},
      preferred_element_type);
  Axes axes = dims.rhs_batch;
  append(axes, by_partner(dims.rhs_contracting, dims.lhs_contracting));
  append(axes, free_axes(rhs.size(), dims.rhs_contracting, dims.rhs_batch));
  return in_order_of(result, axes);
}

}  // namespace octavo::ops
