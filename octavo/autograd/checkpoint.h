// Recomputation: memory for time.
#pragma once

#include "octavo/autograd/value_and_grad.h"

namespace octavo {

// jax.checkpoint: f, of which only the inputs are kept; going back runs it again on them. Gradients
// and new FP8 state are the same bits, but where an input is used several times within f and also
// outside: what adds up within f then adds up first.
//     const auto block = checkpoint([&](std::span<const Variable> in) { return layer(in[0], in[1]);
//     }); const Variable y = block({{x, kernel}});
// f must give the same for the same inputs each time: random numbers from keys that it is given or
// holds. ContractError: f, when called, uses a differentiated variable that is no input; f gives
// another shape or type the second time.
VariableFunction checkpoint(VariableFunction f);

}  // namespace octavo
