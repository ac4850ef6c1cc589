#pragma once

#include "octavo/autograd/variable.h"

namespace octavo {

// optax's loss of the same name, log(sum(exp(logits))) - logits[label] for each label.
// logits: (..., classes) f32, bf16, f16 or f64; labels: (...) i32. The result is (...) in the type
// of logits, computed in f32 (f64 in f64) and rounded once. The gradient is softmax(logits), less 1
// at the label. ContractError: other shapes or types, a label outside [0, classes).
Variable softmax_cross_entropy_with_integer_labels(const Variable& logits, const Tensor& labels);

}  // namespace octavo
