#include "octavo/nn/scope.h"

#include <fmt/format.h>

#include "octavo/base/error.h"

namespace octavo::nn {

struct ScopeRun {
  bool is_initializing;
  Variables variables;
  std::optional<Rng> rng;
  std::uint32_t rngs_made;
};

Scope::Scope(std::shared_ptr<ScopeRun> run, std::string path)
    : run_(std::move(run)), path_(std::move(path)), counts_(std::make_shared<Counts>()) {}

Scope Scope::init(const Rng& rng) {
  return Scope(std::make_shared<ScopeRun>(ScopeRun{true, {}, rng, 0}), "");
}

Scope Scope::apply(const Variables& variables, std::optional<Rng> rng) {
  return Scope(std::make_shared<ScopeRun>(ScopeRun{false, variables, rng, 0}), "");
}

const Variables& Scope::made() const { return run_->variables; }

std::string Scope::full_path(std::string_view collection, std::string_view name) const {
  return path_.empty() ? fmt::format("{}/{}", collection, name)
                       : fmt::format("{}/{}/{}", collection, path_, name);
}

Variable Scope::param(std::string_view name, const Initializer& initializer, const Shape& shape,
                      DType dtype) const {
  const std::string path = full_path(kParams, name);
  if (run_->is_initializing && !run_->variables.contains(path)) {
    run_->variables.set(path, initializer(run_->rng->fold_in(path), shape, dtype));
  }
  const Variable* found = run_->variables.find(path);
  if (found == nullptr) {
    throw ContractError(fmt::format("apply: given no {}, expected a parameter {} (init makes it)",
                                    path, to_string(shape)));
  }
  if (found->shape() != shape) {
    throw ContractError(fmt::format("apply: given {} {}, expected {}", path,
                                    to_string(found->shape()), to_string(shape)));
  }
  return *found;
}

Variable Scope::variable(std::string_view collection, std::string_view name,
                         const Tensor& initial) const {
  const std::string path = full_path(collection, name);
  if (run_->is_initializing && !run_->variables.contains(path)) {
    run_->variables.set(path, initial);
  }
  const Variable* found = run_->variables.find(path);
  if (found == nullptr) {
    throw ContractError(fmt::format(
        "apply: given no {}, expected {} of the collection {}, which {} (init makes it)", path,
        to_string(initial.shape()), collection,
        run_->variables.has_collection(collection) ? "lacks it" : "is not there at all"));
  }
  if (found->shape() != initial.shape()) {
    throw ContractError(fmt::format("apply: given {} {}, expected {}", path,
                                    to_string(found->shape()), to_string(initial.shape())));
  }
  return *found;
}

Scope Scope::child(std::string_view class_name) const {
  const int count = (*counts_)[std::string(class_name)]++;
  return named(fmt::format("{}_{}", class_name, count));
}

Scope Scope::named(std::string_view name) const {
  return Scope(run_, path_.empty() ? std::string(name) : fmt::format("{}/{}", path_, name));
}

Rng Scope::make_rng() const {
  if (!run_->rng) {
    throw ContractError(
        fmt::format("apply: given no Rng, expected one for the random numbers of {}",
                    path_.empty() ? "the layer" : path_));
  }
  return run_->rng->fold_in(path_).fold_in(run_->rngs_made++);
}

}  // namespace octavo::nn
