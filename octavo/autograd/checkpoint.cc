#include "octavo/autograd/checkpoint.h"

#include <fmt/format.h>

#include "octavo/autograd/tape_internal.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

// An input as it was, without its tape.
struct KeptInput {
  Tensor value;
  Accumulation accumulation;
  bool is_recorded;

  explicit KeptInput(const Variable& x)
      : value(x.value()), accumulation(x.accumulation()), is_recorded(x.is_recorded()) {}
  Variable constant() const { return with_accumulation(value, accumulation); }
};

// What f gave the first time.
struct Kind {
  Shape shape;
  DType dtype;
};

std::vector<Cotangent> recompute(const VariableFunction& f, std::span<const KeptInput> kept,
                                 const Kind& first, const Cotangent& seed) {
  const TapeScope scope;
  std::vector<Variable> inputs;
  for (const KeptInput& input : kept) {
    inputs.push_back(input.is_recorded ? scope.tape->watch(input.value, input.accumulation)
                                       : input.constant());
  }
  const Variable again = f(inputs);
  if (again.shape() != first.shape || again.dtype() != first.dtype) {
    throw ContractError(fmt::format(
        "checkpoint: given a function that gives {} of {}, then {} of {}, expected the same for "
        "the same inputs",
        to_string(first.shape), dtype_name(first.dtype), to_string(again.shape()),
        dtype_name(again.dtype())));
  }
  return scope.tape->backward(again, seed, inputs);
}

}  // namespace

VariableFunction checkpoint(VariableFunction f) {
  return [f = std::move(f)](std::span<const Variable> inputs) {
    const std::vector<KeptInput> kept(inputs.begin(), inputs.end());
    std::vector<Variable> constants;
    for (const KeptInput& input : kept) constants.push_back(input.constant());
    const Variable value = f(constants);
    if (value.is_recorded()) {
      throw ContractError(
          "checkpoint: given a function that uses a differentiated variable of its surroundings, "
          "expected all of them among its inputs");
    }
    return record(
        "checkpoint", {value.value()}, inputs,
        [f, kept, first = Kind{value.shape(), value.dtype()}](std::span<const Cotangent> seed) {
          return recompute(f, kept, first, seed[0]);
        },
        RunRule::when_on_path)[0];
  };
}

}  // namespace octavo
