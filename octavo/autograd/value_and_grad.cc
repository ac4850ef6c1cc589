#include "octavo/autograd/value_and_grad.h"

#include <fmt/format.h>

#include <limits>

#include "octavo/autograd/compute_internal.h"
#include "octavo/autograd/tape_internal.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

Tensor no_gradient(const Variable& variable) {
  const bool is_maximum = variable.accumulation() == Accumulation::maximum;
  return Tensor::full(variable.dtype(), variable.shape(),
                      is_maximum ? -std::numeric_limits<double>::infinity() : 0.0);
}

}  // namespace

ValueAndGrad value_and_grad_at(const LossFunction& f, const Variables& variables,
                               Fp8Semantics semantics) {
  const TapeScope scope;
  std::vector<std::string> paths;
  std::vector<Variable> watched;
  Variables inputs = variables;
  for (const auto& [path, variable] : variables) {
    if (!is_differentiable(variable.dtype())) continue;
    const bool is_state = collection_of(path) == kOverwriteWithGradient;
    const bool by_maximum = (is_state && semantics == Fp8Semantics::guarded) ||
                            variable.accumulation() == Accumulation::maximum;
    watched.push_back(scope.tape->watch(variable.value(),
                                        by_maximum ? Accumulation::maximum : Accumulation::sum));
    paths.push_back(path);
    inputs.set(path, watched.back());
  }
  const Variable loss = f(inputs);
  if (loss.value().size() != 1 || !is_differentiable(loss.dtype())) {
    throw ContractError(
        fmt::format("value_and_grad: given a function whose value is {} of {}, "
                    "expected a floating-point scalar",
                    to_string(loss.shape()), dtype_name(loss.dtype())));
  }
  std::vector<Cotangent> cotangents =
      scope.tape->backward(loss, Tensor::ones(loss.dtype(), loss.shape()), watched);
  ValueAndGrad result{loss.value(), {}};
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const bool is_state = collection_of(paths[i]) == kOverwriteWithGradient;
    if (!cotangents[i] && is_state && semantics == Fp8Semantics::guarded) continue;
    result.grads.set(paths[i], cotangents[i] ? std::move(*cotangents[i]) : no_gradient(watched[i]));
  }
  return result;
}

ValueAndVjp value_and_vjp(const VariableFunction& f, std::span<const Tensor> inputs,
                          const Tensor& cotangent) {
  const TapeScope scope;
  std::vector<Variable> watched;
  for (const Tensor& input : inputs) {
    watched.push_back(is_differentiable(input.dtype()) ? scope.tape->watch(input)
                                                       : Variable(input));
  }
  const Variable value = f(watched);
  if (value.shape() != cotangent.shape() || value.dtype() != cotangent.dtype()) {
    throw ContractError(fmt::format("value_and_vjp: given a cotangent {} of {}, expected {} of {}",
                                    to_string(cotangent.shape()), dtype_name(cotangent.dtype()),
                                    to_string(value.shape()), dtype_name(value.dtype())));
  }
  const std::vector<Cotangent> cotangents = scope.tape->backward(value, cotangent, watched);
  ValueAndVjp result{value.value(), {}};
  for (std::size_t i = 0; i < watched.size(); ++i) {
    const Tensor& input = inputs[i];
    result.grads.push_back(cotangents[i] ? *cotangents[i]
                           : is_differentiable(input.dtype())
                               ? Tensor::zeros(input.dtype(), input.shape())
                               : Tensor(input.dtype(), {0}));
  }
  return result;
}

}  // namespace octavo
