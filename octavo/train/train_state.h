// What a training run is at one moment, as flax.training.train_state.
#pragma once

#include "octavo/autograd/variables.h"
#include "octavo/optim/optimizer.h"

namespace octavo {

// Immutable: apply_gradients gives the next one.
struct TrainState {
  std::int64_t step = 0;
  Variables variables;  // all collections
  optim::GradientTransformation tx;
  Variables opt_state;  // of the collection "params"

  // Step 0, and the optimizer's first state, of "params".
  static TrainState create(Variables variables, optim::GradientTransformation tx);

  // "params" by the optimizer, "_overwrite_with_gradient" by what grads hold of it, verbatim; all
  // other collections stay (Flax loses them). FP8 state that grads lack stays too. step + 1.
  // ContractError: a gradient for what is not there, or of another shape.
  TrainState apply_gradients(const Variables& grads) const;
};

}  // namespace octavo
