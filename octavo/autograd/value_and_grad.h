// Reverse-mode differentiation of functions of collections, as jax.value_and_grad.
#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "octavo/autograd/variables.h"
#include "octavo/quant/delayed_scaling.h"

namespace octavo {

// A value and its gradients.
struct ValueAndGrad {
  Tensor value;     // scalar, of f's type
  Variables grads;  // by floating-point variables, under their paths, of their shapes and types
};

// From variables to a scalar.
using LossFunction = std::function<Variable(const Variables&)>;

// The value of f at `variables`, which is a scalar, and its gradient by each of them. "Gradients"
// of the overwrite-with-gradient collection are its new values (TrainState::apply_gradients).
// Guarded: what uses a value of that collection several times accumulates by maximum, and one that
// nothing used is not among the gradients: it stays what it is, and in a sum of microbatches
// (optim::accumulate) no history that was not rotated meets one that was. As in Flax: uses add up,
// unless f casts to fp32_max_grad, and an unused one becomes 0, or minus infinity.
// ContractError: f gives no scalar, or no floating-point one.
ValueAndGrad value_and_grad_at(const LossFunction& f, const Variables& variables,
                               Fp8Semantics semantics = Fp8Semantics::guarded);

// value_and_grad(f)(variables) is value_and_grad_at(f, variables); f: to a floating-point scalar.
inline auto value_and_grad(LossFunction f, Fp8Semantics semantics = Fp8Semantics::guarded) {
  return [f = std::move(f), semantics](const Variables& variables) {
    return value_and_grad_at(f, variables, semantics);
  };
}

// What f computed beside its value: f gives (loss, aux), as jax.value_and_grad(f, has_aux=True).
// An aux that is a Variable or Variables comes back as values; others keep what they hold, of which
// only value() is of use then.
template <class Aux>
struct ValueAuxAndGrad {
  Tensor value;
  Aux aux;
  Variables grads;
};

// F: std::pair<Variable, Aux>(const Variables&). Else as value_and_grad_at.
template <class F>
auto value_and_grad_with_aux_at(const F& f, const Variables& variables,
                                Fp8Semantics semantics = Fp8Semantics::guarded) {
  using Aux = typename std::invoke_result_t<const F&, const Variables&>::second_type;
  std::optional<Aux> aux;
  ValueAndGrad result = value_and_grad_at(
      [&](const Variables& v) {
        auto [loss, beside] = f(v);
        if constexpr (std::is_same_v<Aux, Variable>) {
          aux = stop_gradient(beside);
        } else if constexpr (std::is_same_v<Aux, Variables>) {
          aux = map_variables(beside,
                              [](std::string_view, const Variable& x) { return stop_gradient(x); });
        } else {
          aux = std::move(beside);
        }
        return loss;
      },
      variables, semantics);
  return ValueAuxAndGrad<Aux>{std::move(result.value), std::move(*aux), std::move(result.grads)};
}

// The gradient of f at `inputs` contracted with `cotangent` of the value, which may have any shape
// (jax.vjp). ContractError: a cotangent of another shape or type than the value.
using VariableFunction = std::function<Variable(std::span<const Variable>)>;
struct ValueAndVjp {
  Tensor value;
  std::vector<Tensor> grads;  // of each input; zeros where nothing flowed back; (0) of integers
};
ValueAndVjp value_and_vjp(const VariableFunction& f, std::span<const Tensor> inputs,
                          const Tensor& cotangent);

}  // namespace octavo
