// Where a layer finds its variables: one body serves init, which makes them, and apply, which reads
// them. Paths are Flax's: "params/Dense_0/kernel".
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/autograd/random.h"
#include "octavo/autograd/variables.h"
#include "octavo/nn/initializers.h"

namespace octavo::nn {

// One run of init or apply; scopes of all layers in it share this.
struct ScopeRun;

// The place of a layer among the variables, and a key for its random numbers.
class Scope {
 public:
  // Scopes of a root layer; without `rng`, make_rng refuses.
  static Scope init(const Rng& rng);
  static Scope apply(const Variables& variables, std::optional<Rng> rng = {});

  // What init made.
  const Variables& made() const;

  // A parameter. While initializing it is made, but for one that a shared layer made before. apply
  // checks its shape, not its type.
  // ContractError: apply without it, or with another shape.
  Variable param(std::string_view name, const Initializer& initializer, const Shape& shape,
                 DType dtype = DType::f32) const;

  // A variable of another collection, likewise.
  // ContractError: apply without it, or with another shape.
  Variable variable(std::string_view collection, std::string_view name,
                    const Tensor& initial) const;

  // The scope of a layer inside this one: named after its class and how many of it there were,
  // "Dense_0", or as said. A layer that is used twice is called in named() of one name, anew each
  // time: it finds the same variables.
  Scope child(std::string_view class_name) const;
  Scope named(std::string_view name) const;

  // A key for random numbers, another one for each call. ContractError: apply was given none.
  Rng make_rng() const;

  // "Dense_0/Fp8DirectDotGeneralOp_0", for messages.
  const std::string& path() const { return path_; }

 private:
  Scope(std::shared_ptr<ScopeRun> run, std::string path);
  std::string full_path(std::string_view collection, std::string_view name) const;

  std::shared_ptr<ScopeRun> run_;
  using Counts = std::map<std::string, int, std::less<>>;  // children made, by class

  std::string path_;
  std::shared_ptr<Counts> counts_;
};

// What every layer's init and apply do: call it in a root scope. init gives the variables that it
// made.
template <class Layer, class... Inputs>
Variables init(const Layer& layer, const Rng& rng, const Inputs&... inputs) {
  const Scope scope = Scope::init(rng);
  layer(scope, inputs...);
  return scope.made();
}

// What the layer gives for `variables`; random numbers are refused.
template <class Layer, class... Inputs>
auto apply(const Layer& layer, const Variables& variables, const Inputs&... inputs) {
  return layer(Scope::apply(variables), inputs...);
}

// With random numbers: for layers with dropout.
template <class Layer, class... Inputs>
auto apply(const Layer& layer, const Variables& variables, const Rng& rng,
           const Inputs&... inputs) {
  return layer(Scope::apply(variables, rng), inputs...);
}

}  // namespace octavo::nn
