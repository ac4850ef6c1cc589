// What was computed, in order, and how to go back.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "octavo/autograd/variable.h"

namespace octavo {

// For rules: functions are differentiated by value_and_grad, operations recorded by record().
class Tape : public std::enable_shared_from_this<Tape> {
 public:
  // A value to differentiate by.
  Variable watch(Tensor value, Accumulation accumulation = Accumulation::sum);

  // Outputs of an operation whose inputs are on this tape or constants, and its rule
  // (VectorJacobian). ContractError: a tape that went back, an input of another tape. In backward:
  // cotangents of a rule of other number, shapes or types than the inputs'.
  std::vector<Variable> record(std::string_view operation, std::vector<Tensor> outputs,
                               std::span<const Variable> inputs, VectorJacobian rule, RunRule run,
                               Accumulation accumulation = Accumulation::sum);

  // Cotangents of `wanted`, from `seed` of `output`: for each, none if output does not depend on
  // it. Rules run once, latest first, and are dropped.
  // Without a seed only rules run that need none (RunRule::when_on_path).
  // ContractError: a tape that went back before, a seed of another shape or type than the output,
  // a wanted variable of another tape.
  std::vector<Cotangent> backward(const Variable& output, Cotangent seed,
                                  std::span<const Variable> wanted);

  // Forgets the rules with all that they keep; nothing more is recorded.
  void drop();

  // The tape of recorded inputs, or null. ContractError: two tapes.
  static std::shared_ptr<Tape> of(std::string_view operation, std::span<const Variable> inputs);

 private:
  struct Record {
    std::string operation;
    std::vector<std::optional<std::size_t>> inputs;  // slots; none: a constant
    std::vector<std::size_t> outputs;
    VectorJacobian rule;
    RunRule run;
  };
  struct Slot {
    DType dtype;
    Shape shape;
    Accumulation accumulation;
    std::optional<std::size_t> record;  // that made it; none: watched
  };

  Variable add_slot(Tensor value, Accumulation accumulation, std::optional<std::size_t> record);
  std::vector<bool> records_before(std::size_t slot) const;
  void run_rule(Record& record, std::vector<Cotangent>& cotangents) const;

  std::deque<Record> records_;
  std::vector<Slot> slots_;
  bool is_spent_ = false;
};

// The sum, or the maximum, of two cotangents of one shape and type: f32, bf16 or f16 (one
// rounding), or f64. ContractError: other shapes or types.
Tensor accumulate(const Tensor& a, const Tensor& b, Accumulation accumulation);

}  // namespace octavo
