#include "octavo/ops/training_products.h"

#include <fmt/format.h>

namespace octavo::ops {

void training_products(const TrainingInputs& from, const TrainingRecipes& recipes,
                       TrainingTensors& tensors, const TrainingOutputs& to,
                       const Context& context) {
  const auto [m, k] = std::pair(from.x.matrix.rows, from.x.matrix.cols);
  const std::size_t n = from.w.matrix.rows;
  if (from.w.matrix.cols != k || from.g.matrix.rows != m || from.g.matrix.cols != n) {
    throw ContractError(fmt::format(
        "training_products: given x ({}, {}), w ({}, {}) and g ({}, {}), expected (M, K), (N, K), "
        "(M, N)",
        m, k, n, from.w.matrix.cols, from.g.matrix.rows, from.g.matrix.cols));
  }
  auto& [x, w, g] = tensors;
  const GemmOptions options{.context = &context};
  quantize(from.x, recipes.x, {.codes = true, .weight_transposed = true}, x, context);
  quantize(from.w, recipes.w, {.weight = true, .weight_transposed = true}, w, context);
  gemm(x.operand(), *w.weight, to.y, options);

  quantize(from.g, recipes.g, {.codes = true, .codes_transposed = true}, g, context);
  gemm(g.operand(), *w.weight_transposed, to.dx, options);
  gemm(g.operand_transposed(), *x.weight_transposed, to.dw, options);
}

}  // namespace octavo::ops
