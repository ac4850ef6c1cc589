#include "octavo/autograd/tape.h"

#include <fmt/format.h>

#include "octavo/autograd/compute_internal.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

[[noreturn]] void refuse_two_tapes(std::string_view operation) {
  throw ContractError(fmt::format(
      "{}: given variables of two tapes, expected those of one value_and_grad", operation));
}

}  // namespace

Tensor accumulate(const Tensor& a, const Tensor& b, Accumulation accumulation) {
  if (a.shape() != b.shape()) {
    throw ContractError(fmt::format("accumulate: given shapes {} and {}, expected the same",
                                    to_string(a.shape()), to_string(b.shape())));
  }
  if (a.dtype() != b.dtype()) {
    throw ContractError(fmt::format("accumulate: given types {} and {}, expected the same",
                                    dtype_name(a.dtype()), dtype_name(b.dtype())));
  }
  return compute(a.dtype(), a.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> x(a), y(b);
    if (accumulation == Accumulation::sum) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = x[i] + y[i];
    } else {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = larger(x[i], y[i]);
    }
  });
}

Variable Tape::add_slot(Tensor value, Accumulation accumulation,
                        std::optional<std::size_t> record) {
  slots_.push_back({value.dtype(), value.shape(), accumulation, record});
  Variable variable(std::move(value));
  variable.accumulation_ = accumulation;
  variable.tape_ = shared_from_this();
  variable.slot_ = slots_.size() - 1;
  return variable;
}

Variable Tape::watch(Tensor value, Accumulation accumulation) {
  return add_slot(std::move(value), accumulation, std::nullopt);
}

std::shared_ptr<Tape> Tape::of(std::string_view operation, std::span<const Variable> inputs) {
  std::shared_ptr<Tape> tape;
  for (const Variable& input : inputs) {
    if (input.tape_ == nullptr || input.tape_ == tape) continue;
    if (tape != nullptr) refuse_two_tapes(operation);
    tape = input.tape_;
  }
  return tape;
}

std::vector<Variable> Tape::record(std::string_view operation, std::vector<Tensor> outputs,
                                   std::span<const Variable> inputs, VectorJacobian rule,
                                   RunRule run, Accumulation accumulation) {
  if (is_spent_) {
    throw ContractError(fmt::format(
        "{}: given a variable of a value_and_grad that has returned, expected its value()",
        operation));
  }
  for (const Variable& input : inputs) {
    if (input.is_recorded() && input.tape_.get() != this) refuse_two_tapes(operation);
  }
  Record& record =
      records_.emplace_back(Record{std::string(operation), {}, {}, std::move(rule), run});
  for (const Variable& input : inputs) {
    record.inputs.push_back(input.is_recorded() ? std::optional(input.slot_) : std::nullopt);
  }
  std::vector<Variable> results;
  for (Tensor& output : outputs) {
    results.push_back(add_slot(std::move(output), accumulation, records_.size() - 1));
    record.outputs.push_back(results.back().slot_);
  }
  return results;
}

std::vector<bool> Tape::records_before(std::size_t slot) const {
  std::vector<bool> on_path(records_.size());
  if (!slots_[slot].record) return on_path;
  on_path[*slots_[slot].record] = true;
  for (std::size_t r = records_.size(); r-- > 0;) {
    if (!on_path[r]) continue;
    for (const std::optional<std::size_t>& input : records_[r].inputs) {
      if (input && slots_[*input].record) on_path[*slots_[*input].record] = true;
    }
  }
  return on_path;
}

void Tape::run_rule(Record& record, std::vector<Cotangent>& cotangents) const {
  std::vector<Cotangent> of_outputs;
  bool is_reached = record.run == RunRule::when_on_path;
  for (const std::size_t slot : record.outputs) {
    is_reached |= cotangents[slot].has_value();
    of_outputs.push_back(std::move(cotangents[slot]));
    cotangents[slot].reset();
  }
  if (is_reached) {
    std::vector<Cotangent> of_inputs = record.rule(of_outputs);
    if (of_inputs.size() != record.inputs.size()) {
      throw ContractError(fmt::format("{}: given a rule with {} cotangents, expected {}",
                                      record.operation, of_inputs.size(), record.inputs.size()));
    }
    for (std::size_t i = 0; i < of_inputs.size(); ++i) {
      if (!of_inputs[i] || !record.inputs[i]) continue;
      const Slot& slot = slots_[*record.inputs[i]];
      if (of_inputs[i]->shape() != slot.shape || of_inputs[i]->dtype() != slot.dtype) {
        throw ContractError(fmt::format(
            "{}: given a cotangent {} of {} for input {}, expected {} of {}", record.operation,
            to_string(of_inputs[i]->shape()), dtype_name(of_inputs[i]->dtype()), i,
            to_string(slot.shape), dtype_name(slot.dtype)));
      }
      Cotangent& to = cotangents[*record.inputs[i]];
      to = to ? accumulate(*to, *of_inputs[i], slot.accumulation) : std::move(of_inputs[i]);
    }
  }
  record.rule = nullptr;  // with all that it kept
}

std::vector<Cotangent> Tape::backward(const Variable& output, Cotangent seed,
                                      std::span<const Variable> wanted) {
  if (is_spent_)
    throw ContractError("backward: given a tape that went back before, expected a new one");
  for (const Variable& variable : wanted) {
    if (variable.is_recorded() && variable.tape_.get() != this) refuse_two_tapes("backward");
  }
  if (seed && (seed->shape() != output.shape() || seed->dtype() != output.dtype())) {
    throw ContractError(fmt::format("backward: given a seed {} of {}, expected {} of {}",
                                    to_string(seed->shape()), dtype_name(seed->dtype()),
                                    to_string(output.shape()), dtype_name(output.dtype())));
  }
  is_spent_ = true;
  std::vector<Cotangent> cotangents(slots_.size());
  if (output.tape_.get() == this) {
    cotangents[output.slot_] = std::move(seed);
    const std::vector<bool> on_path = records_before(output.slot_);
    for (std::size_t r = records_.size(); r-- > 0;) {
      if (on_path[r]) run_rule(records_[r], cotangents);
    }
  }
  drop();
  std::vector<Cotangent> results;
  for (const Variable& variable : wanted) {
    results.push_back(variable.is_recorded() ? cotangents[variable.slot_] : std::nullopt);
  }
  return results;
}

void Tape::drop() {
  is_spent_ = true;
  records_.clear();
}

std::vector<Variable> record(std::string_view operation, std::vector<Tensor> outputs,
                             std::span<const Variable> inputs, VectorJacobian rule, RunRule run) {
  const std::shared_ptr<Tape> tape = Tape::of(operation, inputs);
  if (tape == nullptr) return {outputs.begin(), outputs.end()};
  return tape->record(operation, std::move(outputs), inputs, std::move(rule), run);
}

Variable record(std::string_view operation, Tensor output, std::span<const Variable> inputs,
                std::function<std::vector<Cotangent>(const Tensor&)> rule) {
  return record(
      operation, std::vector<Tensor>{std::move(output)}, inputs,
      [rule = std::move(rule)](std::span<const Cotangent> of) { return rule(*of[0]); })[0];
}

Variable with_accumulation(const Variable& x, Accumulation accumulation) {
  if (x.dtype() != DType::f32 && accumulation == Accumulation::maximum) {
    throw ContractError(
        fmt::format("fp32_max_grad: given {}, expected F32", dtype_name(x.dtype())));
  }
  const std::shared_ptr<Tape> tape = Tape::of("with_accumulation", std::span(&x, 1));
  if (tape == nullptr) {
    Variable result = x;
    result.accumulation_ = accumulation;
    return result;
  }
  return tape->record(
      "with_accumulation", {x.value()}, std::span(&x, 1),
      [](std::span<const Cotangent> of) { return std::vector{of[0]}; }, RunRule::with_cotangent,
      accumulation)[0];
}

}  // namespace octavo
