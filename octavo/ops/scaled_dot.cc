#include "octavo/ops/scaled_dot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/base/larger.h"
#include "octavo/ops/dot_general_internal.h"

namespace octavo::ops {
namespace {

// What quantize reads: f32 and bf16 as they are, all else as f32.
Tensor quantizable(const Tensor& x) {
  return x.dtype() == DType::f32 || x.dtype() == DType::bf16 ? x : x.astype(DType::f32);
}

// Matrix `batch` of x as it is stored.
Operand stored_matrix(const DotOperand& x, std::size_t batch) {
  Operand matrix = dot_matrix(x, batch);
  if (matrix.transposed) {
    std::swap(matrix.matrix.rows, matrix.matrix.cols);
    matrix.transposed = false;
  }
  return matrix;
}

bool is_by_block(const TensorRecipe& recipe) { return recipe.scaling == Scaling::blocks; }

// The same largest magnitude for all matrices of an operand: current scaling has one scale.
TensorRecipe with_known_scale(const TensorRecipe& recipe, const Tensor& x, std::size_t batch) {
  if (recipe.scaling != Scaling::current || batch == 1) return recipe;
  QuantizedTensor whole;
  const std::size_t cols = x.shape().back();
  quantize({{*dtype_info(x.dtype()).format, x.data(), x.size() / cols, cols, cols}, {}}, recipe, {},
           whole);
  // Something is not finite: each matrix has its own scale, and those with it are NaN.
  if (!std::isfinite(whole.scales.data[0])) return recipe;
  TensorRecipe known = recipe;
  known.scaling = Scaling::delayed;
  known.scale = whole.scales.data[0];
  return known;
}

Shape sizes_of(const Shape& shape, const Axes& axes) {
  Shape sizes;
  for (const std::size_t axis : axes) sizes.push_back(shape[axis]);
  return sizes;
}

void check_elements(const Tensor& lhs, const Tensor& rhs) {
  if (lhs.size() == 0 || rhs.size() == 0) {
    throw ContractError(fmt::format("scaled_dot: given {} and {}, expected elements in both",
                                    octavo::to_string(lhs.shape()),
                                    octavo::to_string(rhs.shape())));
  }
}

}  // namespace

ScaledDot scaled_dot(const Tensor& lhs, const Tensor& rhs, const DotDimensionNumbers& dims,
                     const ScaledDotRecipes& recipes, DType type, bool keep) {
  check_elements(lhs, rhs);
  const DotOperands operands = dot_operands(quantizable(lhs), quantizable(rhs), dims, true);
  const std::size_t batch = operands.lhs.batch;
  const bool is_nk = operands.rhs.free_first;
  auto kept = std::make_shared<ScaledDotKept>();
  kept->lhs_codes.resize(batch);
  kept->rhs_codes.resize(batch);
  const TensorRecipe lhs_recipe = with_known_scale(recipes.lhs, operands.lhs.tensor, batch);
  const TensorRecipe rhs_recipe = with_known_scale(recipes.rhs, operands.rhs.tensor, batch);
  DotResults value(stored_type(type), operands.shape, operands.lhs.free, operands.rhs.free);
  float lhs_amax = 0, rhs_amax = 0;
  for (std::size_t b = 0; b < batch; ++b) {
    QuantizedTensor &x = kept->lhs_codes[b], &w = kept->rhs_codes[b];
    quantize(stored_matrix(operands.lhs, b), lhs_recipe, {.codes = true}, x);
    quantize(stored_matrix(operands.rhs, b), rhs_recipe,
             {.weight = is_nk || keep, .weight_transposed = !is_nk || keep}, w);
    std::optional<PackedWeight>& weight = is_nk ? w.weight : w.weight_transposed;
    gemm(x.operand(), *weight, value.matrix(b));
    weight.reset();  // the other one is for the gradients
    lhs_amax = larger(lhs_amax, x.amax);
    rhs_amax = larger(rhs_amax, w.amax);
  }
  ScaledDot result{value.tensor().astype(type), lhs_amax, rhs_amax, nullptr};
  if (!keep) return result;
  kept->lhs = operands.lhs;
  kept->rhs = operands.rhs;
  kept->lhs.tensor = kept->rhs.tensor = Tensor();
  kept->lhs_shape = lhs.shape();
  kept->rhs_shape = rhs.shape();
  kept->shape = operands.shape;
  kept->lhs_type = lhs.dtype();
  kept->rhs_type = rhs.dtype();
  result.kept = std::move(kept);
  return result;
}

namespace {

// The gradient of rhs for one matrix, as it is stored: g^T x (n, k), or x^T g (k, n).
void rhs_gradient(const QuantizedTensor& x, const QuantizedTensor& g, bool is_nk,
                  const ScaledDotRecipes& recipes, const Output& to) {
  if (!is_by_block(recipes.grad)) {
    is_nk ? gemm(g.operand_transposed(), pack_weight(x.operand_transposed()), to)
          : gemm(x.operand_transposed(), *g.weight_transposed, to);
    return;
  }
  QuantizedTensor x_by_row, g_by_row;
  const TensorForms as_activation{.codes_transposed = true}, as_weight{.weight_transposed = true};
  quantize(x.operand(), recipes.lhs, is_nk ? as_weight : as_activation, x_by_row);
  quantize(g.operand(), recipes.grad, is_nk ? as_activation : as_weight, g_by_row);
  is_nk ? gemm(g_by_row.operand_transposed(), *x_by_row.weight_transposed, to)
        : gemm(x_by_row.operand_transposed(), *g_by_row.weight_transposed, to);
}

}  // namespace

ScaledDotGradients scaled_dot_gradients(const ScaledDotKept& kept, const Tensor& g,
                                        const ScaledDotRecipes& recipes, WantedGradients wanted) {
  const std::size_t batch = kept.lhs.batch, m = kept.lhs.free, n = kept.rhs.free,
                    k = kept.lhs.contracted;
  const bool is_nk = kept.rhs.free_first;
  if (g.shape() != kept.shape) {
    throw ContractError(fmt::format("scaled_dot_gradients: given a cotangent {}, expected {}",
                                    octavo::to_string(g.shape()), octavo::to_string(kept.shape)));
  }
  const Tensor cotangent = quantizable(g).reshape({batch, m, n});
  const TensorRecipe recipe = with_known_scale(recipes.grad, cotangent, batch);
  const DotOperand of_g{cotangent, {}, batch, m, n, true};
  const bool packs_g = wanted.rhs && !is_nk && !is_by_block(recipes.grad);
  std::optional<DotResults> lhs, rhs;
  if (wanted.lhs) {
    lhs.emplace(stored_type(kept.lhs_type), sizes_of(kept.lhs_shape, kept.lhs.axes), m, k);
  }
  if (wanted.rhs) {
    rhs.emplace(stored_type(kept.rhs_type), sizes_of(kept.rhs_shape, kept.rhs.axes), is_nk ? n : k,
                is_nk ? k : n);
  }
  ScaledDotGradients result;
  for (std::size_t b = 0; b < batch; ++b) {
    const QuantizedTensor &x = kept.lhs_codes[b], &w = kept.rhs_codes[b];
    QuantizedTensor q;
    quantize(stored_matrix(of_g, b), recipe, {.codes = true, .weight_transposed = packs_g}, q);
    result.grad_amax = larger(result.grad_amax, q.amax);
    if (lhs) gemm(q.operand(), is_nk ? *w.weight_transposed : *w.weight, lhs->matrix(b));
    if (rhs) rhs_gradient(x, q, is_nk, recipes, rhs->matrix(b));
  }
  if (lhs) result.lhs = in_order_of(lhs->tensor(), kept.lhs.axes).astype(kept.lhs_type);
  if (rhs) result.rhs = in_order_of(rhs->tensor(), kept.rhs.axes).astype(kept.rhs_type);
  return result;
}

}  // namespace octavo::ops
