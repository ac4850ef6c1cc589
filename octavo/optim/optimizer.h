// Optimizers as chains of transformations of gradients, as optax has them: each is a pair of pure
// functions, and its state is Variables that a checkpoint holds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "octavo/autograd/variables.h"

namespace octavo::optim {

// A learning rate by step, from 0.
using Schedule = std::function<double(std::int64_t step)>;

// State under its own names: "count" (i32 scalar), "mu/params/Dense_0/kernel", ...
struct Updates {
  Variables updates, state;
};

// params: f32. Updates are added to them.
struct GradientTransformation {
  std::function<Variables(const Variables& params)> init;
  std::function<Updates(const Variables& grads, const Variables& state, const Variables& params)>
      update;
};

// params + updates.
Variables apply_updates(const Variables& params, const Variables& updates);

}  // namespace octavo::optim
