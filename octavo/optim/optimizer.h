// Optimizers as transformations of gradients, as optax has them: pairs of pure functions whose
// state is Variables, named as optax's flattened state: "0/mu/Dense_0/kernel". All arithmetic is
// f32.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/autograd/variables.h"
#include "octavo/optim/schedule.h"

namespace octavo::optim {

// Of one step: what is added to parameters, and the next state.
struct Updates {
  Variables updates, state;
};

// Gradients, parameters and updates have paths "params/...". A parameter without a gradient has no
// update in that step, and its state stays. State is f32 of the parameters' shapes, counts are i32
// scalars. ContractError: of update, a gradient whose state or parameter is not there, or of
// another shape.
struct GradientTransformation {
  std::function<Variables(const Variables& params)> init;
  std::function<Updates(const Variables& grads, const Variables& state, const Variables& params)>
      update;
};

// params + updates of their shapes, computed in f32 and cast to each parameter's type (optax).
// ContractError: an update of another shape.
Variables apply_updates(const Variables& params, const Variables& updates);

// Which parameters, by path.
using Mask = std::function<bool(std::string_view path)>;

// One after the other; the state of transformation i is under "i/".
GradientTransformation chain(std::vector<GradientTransformation> transformations);

// g times -learning_rate(count), of steps from 0; the state "count", but of a constant none.
GradientTransformation scale_by_learning_rate(Schedule learning_rate);

// g + weight_decay * param, of those in the mask (none: all). No state.
GradientTransformation add_decayed_weights(double weight_decay, Mask mask = {});

// The gradients of "params" times max_norm / norm where their global norm is not below max_norm;
// FP8 state among them passes as it is. No state. (Pascanu et al., 2013.)
GradientTransformation clip_by_global_norm(double max_norm);

// Updates of 0 for those in the mask (none: all). No state.
GradientTransformation freeze(Mask mask);

// Parameters of a narrow type are updated through f32 copies, which are the state's "master/":
// updates are what brings a parameter to its copy, rounded. (The difference is an f32: of one that
// shrinks by more than 2^16 in a step it lacks bits, up to 2^-24 of the old value, until the next.)
GradientTransformation with_master_weights(GradientTransformation inner);

// Of sgd.
struct Sgd {
  Schedule learning_rate;
  double momentum = 0;
  bool nesterov = false;
};
// trace = g + momentum * trace; the update is -learning_rate times the trace, or g + momentum *
// trace (nesterov). State: "0/trace/...", with momentum alone.
GradientTransformation sgd(const Sgd& options);

// Of adam.
struct Adam {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999;
  double eps = 1e-8;    // outside of the root
  double eps_root = 0;  // inside of it
};
// mu = b1 mu + (1 - b1) g, nu = b2 nu + (1 - b2) g^2, both divided by 1 - b^count:
// -learning_rate * mu / (sqrt(nu + eps_root) + eps)   (Kingma and Ba, 2014)
// State: "0/mu/...", "0/nu/...", "0/count".
GradientTransformation adam(const Adam& options);

// Of adamw.
struct AdamW {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999;
  double eps = 1e-8;
  double eps_root = 0;
  double weight_decay = 1e-4;
  Mask mask = {};  // that decay; none: all
};
// adam with weight_decay * param added before the learning rate: decoupled from the moments
// (Loshchilov and Hutter, 2017). State as adam's.
GradientTransformation adamw(const AdamW& options);

// The root of the sum of squares of all gradients of "params"; FP8 state does not count. In f64,
// rounded to f32.
float global_norm(const Variables& grads);

// Of two microbatches: params add up, FP8 state takes the larger. What one of them lacks is the
// other's: a layer that only one of them ran. Types are kept.
// ContractError: what both have, of another shape or type.
Variables accumulate(const Variables& a, const Variables& b);
// For the mean of `count` microbatches: params divided by count in f32, FP8 state as it is.
// ContractError: a count of 0.
Variables divide(const Variables& grads, std::size_t count);

}  // namespace octavo::optim
