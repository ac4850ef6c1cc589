// Values that may be recorded for differentiation.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "octavo/tensor/tensor.h"

namespace octavo {

class Tape;

// How two cotangents of one value become one.
enum class Accumulation : std::uint8_t {
  sum,      // zero is 0
  maximum,  // elementwise, NaN wins; zero is minus infinity. Flax's fp32_max_grad, f32 only
};

// A tensor, and where it stands on a tape if it was computed from what is differentiated. A
// variable without a tape records nothing: the same function trains and infers.
class Variable {
 public:
  Variable() = default;
  // A constant.
  Variable(Tensor value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  // The tensor and what it tells; how uses accumulate; whether it is on a tape.
  const Tensor& value() const { return value_; }
  const Shape& shape() const { return value_.shape(); }
  std::size_t rank() const { return value_.rank(); }
  DType dtype() const { return value_.dtype(); }
  Accumulation accumulation() const { return accumulation_; }
  bool is_recorded() const { return tape_ != nullptr; }

 private:
  friend class Tape;
  friend Variable with_accumulation(const Variable& x, Accumulation accumulation);

  Tensor value_;
  Accumulation accumulation_ = Accumulation::sum;
  std::shared_ptr<Tape> tape_;
  std::size_t slot_ = 0;  // of the tape's cotangents
};

// A cotangent, or none: nothing flowed back.
using Cotangent = std::optional<Tensor>;

// A vector-Jacobian rule: cotangents of the outputs to cotangents of the inputs, in their order, of
// the inputs' shapes and types.
using VectorJacobian = std::function<std::vector<Cotangent>(std::span<const Cotangent>)>;

// When a rule runs.
enum class RunRule : std::uint8_t {
  with_cotangent,  // only where a cotangent reached one of the outputs
  when_on_path,    // also without: rules that give new state back (as JAX's custom_vjp)
};

// What an operation computed, recorded on its inputs' tape; on none, the values alone. `inputs` are
// those that the rule gives cotangents for. ContractError: inputs of two tapes.
std::vector<Variable> record(std::string_view operation, std::vector<Tensor> outputs,
                             std::span<const Variable> inputs, VectorJacobian rule,
                             RunRule run = RunRule::with_cotangent);

// One output, and a rule that is called with its cotangent.
Variable record(std::string_view operation, Tensor output, std::span<const Variable> inputs,
                std::function<std::vector<Cotangent>(const Tensor&)> rule);

// The value alone: no cotangent flows beyond.
inline Variable stop_gradient(const Variable& x) { return x.value(); }

// x, whose uses accumulate that way (Flax: x.astype(fp32_max_grad), and back).
// ContractError: a maximum of other than f32.
Variable with_accumulation(const Variable& x, Accumulation accumulation);
inline Variable as_fp32_max_grad(const Variable& x) {
  return with_accumulation(x, Accumulation::maximum);
}

}  // namespace octavo
