#include "octavo/train/train_state.h"

#include <fmt/format.h>

#include "octavo/base/error.h"

namespace octavo {
namespace {

void check_gradients(const Variables& grads, const Variables& variables) {
  for (const auto& [path, grad] : grads) {
    const Variable* variable = variables.find(path);
    if (variable == nullptr || variable->shape() != grad.shape()) {
      throw ContractError(fmt::format(
          "apply_gradients: given a gradient {} of {}, expected {}", to_string(grad.shape()), path,
          variable == nullptr ? "one of the state's variables" : to_string(variable->shape())));
    }
  }
}

}  // namespace

TrainState TrainState::create(Variables variables, optim::GradientTransformation tx) {
  Variables opt_state = tx.init(variables.collection(kParams));
  return {0, std::move(variables), std::move(tx), std::move(opt_state)};
}

TrainState TrainState::apply_gradients(const Variables& grads) const {
  check_gradients(grads, variables);
  const Variables params = variables.collection(kParams);
  auto [updates, next] = tx.update(grads.collection(kParams), opt_state, params);
  return {step + 1,
          variables.merged(optim::apply_updates(params, updates))
              .merged(grads.collection(kOverwriteWithGradient)),
          tx, std::move(next)};
}

}  // namespace octavo
