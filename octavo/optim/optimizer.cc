#include "octavo/optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/autograd/tape.h"
#include "octavo/base/error.h"
#include "octavo/base/for_rows.h"

namespace octavo::optim {
namespace {

// "params/Dense_0/kernel" has the state "mu/Dense_0/kernel".
std::string below(std::string_view prefix, std::string_view path) {
  return fmt::format("{}/{}", prefix, path.substr(path.find('/') + 1));
}

// f(i) for each element of a new f32 tensor of that shape.
template <class F>
Tensor elements(const Shape& shape, const F& f) {
  Tensor result(DType::f32, shape);
  const std::span<float> to = result.mutable_values<float>();
  for_rows(default_context(), to.size(), to.size(), [&](const Range& mine) {
    for (std::size_t i = mine.begin; i < mine.end; ++i) to[i] = f(i);
  });
  return result;
}

// Of a tensor that goes with one of `shape`, element by element.
template <class T = float>
std::span<const T> values_like(const Shape& shape, std::string_view path, const Tensor& x) {
  if (x.shape() == shape) return x.values<T>();
  throw ContractError(fmt::format("optimizer: {}: given shape {}, expected {}", path,
                                  to_string(x.shape()), to_string(shape)));
}

Tensor as_f32(const Variable& x) { return x.value().astype(DType::f32); }

Variables zeros_like(std::string_view prefix, const Variables& params) {
  Variables zeros;
  for (const auto& [path, param] : params) {
    zeros.set(below(prefix, path), Tensor::zeros(DType::f32, param.shape()));
  }
  return zeros;
}

constexpr const char* kCount = "count";

// Stays at the largest i32, as optax's.
Tensor count_of(std::int64_t count) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  const auto value = static_cast<std::int32_t>(std::min(count, kLargest));
  return Tensor::from_ids(std::span(&value, 1), {});
}

std::int64_t read_count(const Variables& state) {
  return values_like<std::int32_t>({}, kCount, state.value(kCount))[0];
}

// Without state: updates of each gradient alone.
template <class F>
GradientTransformation stateless(const F& f) {
  return {[](const Variables&) { return Variables(); },
          [f](const Variables& grads, const Variables&, const Variables& params) {
            return Updates{map_variables(grads,
                                         [&](const std::string& path, const Variable& grad) {
                                           return Variable(f(path, as_f32(grad), params));
                                         }),
                           {}};
          }};
}

Tensor scaled(const Tensor& x, float factor) {
  const auto from = x.values<float>();
  return elements(x.shape(), [&](std::size_t i) { return from[i] * factor; });
}

GradientTransformation trace(double momentum, bool nesterov) {
  const auto decay = static_cast<float>(momentum);
  return {[](const Variables& params) { return zeros_like("trace", params); },
          [=](const Variables& grads, const Variables& state, const Variables&) {
            Updates result{{}, state};
            for (const auto& [path, grad] : grads) {
              const Tensor g = as_f32(grad);
              const std::string name = below("trace", path);
              const auto step = [&, v = g.values<float>()](const Tensor& t) {
                const auto old = values_like(g.shape(), name, t);
                return elements(g.shape(), [&](std::size_t i) { return v[i] + decay * old[i]; });
              };
              const Tensor next = step(state.value(name));
              result.updates.set(path, nesterov ? step(next) : next);
              result.state.set(name, next);
            }
            return result;
          }};
}

GradientTransformation scale_by_adam(const Adam& options) {
  return {[](const Variables& params) {
            Variables state = zeros_like("mu", params).merged(zeros_like("nu", params));
            state.set(kCount, count_of(0));
            return state;
          },
          [options](const Variables& grads, const Variables& state, const Variables&) {
            const std::int64_t count = read_count(state) + 1;
            const auto b1 = static_cast<float>(options.b1), b2 = static_cast<float>(options.b2);
            const auto a1 = static_cast<float>(1 - options.b1);
            const auto a2 = static_cast<float>(1 - options.b2);
            // In f64: 1 - b2^count cancels, and f32 would leave 4 digits of it in the first steps.
            const auto correction = [count](double b) {
              return static_cast<float>(1 - std::pow(b, static_cast<double>(count)));
            };
            const float correction1 = correction(options.b1), correction2 = correction(options.b2);
            const auto eps = static_cast<float>(options.eps);
            const auto eps_root = static_cast<float>(options.eps_root);
            Updates result{{}, state};
            result.state.set(kCount, count_of(count));
            for (const auto& [path, grad] : grads) {
              const Tensor g = as_f32(grad);
              const auto v = g.values<float>();
              const auto old = [&](const char* what) {
                const std::string name = below(what, path);
                return values_like(g.shape(), name, state.value(name));
              };
              const auto old_mu = old("mu"), old_nu = old("nu");
              const Tensor mu =
                  elements(g.shape(), [&](std::size_t i) { return a1 * v[i] + b1 * old_mu[i]; });
              const Tensor nu = elements(
                  g.shape(), [&](std::size_t i) { return a2 * (v[i] * v[i]) + b2 * old_nu[i]; });
              const auto m = mu.values<float>(), n = nu.values<float>();
              result.updates.set(path, elements(g.shape(), [&](std::size_t i) {
                                   return (m[i] / correction1) /
                                          (std::sqrt(n[i] / correction2 + eps_root) + eps);
                                 }));
              result.state.set(below("mu", path), mu);
              result.state.set(below("nu", path), nu);
            }
            return result;
          }};
}

}  // namespace

Variables apply_updates(const Variables& params, const Variables& updates) {
  return map_variables(params, [&](const std::string& path, const Variable& param) -> Variable {
    const Variable* update = updates.find(path);
    if (update == nullptr) return param;
    const Tensor from = as_f32(param), by = as_f32(*update);
    const auto x = from.values<float>(), u = values_like(param.shape(), path, by);
    return elements(param.shape(), [&](std::size_t i) { return x[i] + u[i]; })
        .astype(param.dtype());
  });
}

GradientTransformation chain(std::vector<GradientTransformation> transformations) {
  return {
      [transformations](const Variables& params) {
        Variables state;
        for (std::size_t i = 0; i < transformations.size(); ++i) {
          for (const auto& [path, value] : transformations[i].init(params)) {
            state.set(fmt::format("{}/{}", i, path), value);
          }
        }
        return state;
      },
      [transformations](const Variables& grads, const Variables& state, const Variables& params) {
        Updates result{grads, {}};
        for (std::size_t i = 0; i < transformations.size(); ++i) {
          const std::string prefix = fmt::format("{}/", i);
          Variables own;
          for (const auto& [path, value] : state) {
            if (path.starts_with(prefix)) own.set(path.substr(prefix.size()), value);
          }
          Updates step = transformations[i].update(result.updates, own, params);
          result.updates = std::move(step.updates);
          for (const auto& [path, value] : step.state) result.state.set(prefix + path, value);
        }
        return result;
      }};
}

GradientTransformation scale_by_learning_rate(Schedule learning_rate) {
  const auto times = [](const Variables& grads, double rate) {
    const auto factor = static_cast<float>(-rate);
    return map_variables(grads, [&](const std::string&, const Variable& grad) {
      return Variable(scaled(as_f32(grad), factor));
    });
  };
  if (learning_rate.is_constant()) {  // without state, as optax
    return {[](const Variables&) { return Variables(); },
            [=](const Variables& grads, const Variables&, const Variables&) {
              return Updates{times(grads, learning_rate(0)), {}};
            }};
  }
  return {[](const Variables&) { return Variables{{kCount, count_of(0)}}; },
          [=](const Variables& grads, const Variables& state, const Variables&) {
            const std::int64_t count = read_count(state);
            return Updates{times(grads, learning_rate(count)), {{kCount, count_of(count + 1)}}};
          }};
}

GradientTransformation add_decayed_weights(double weight_decay, Mask mask) {
  return stateless([decay = static_cast<float>(weight_decay), mask](
                       const std::string& path, const Tensor& g, const Variables& params) {
    if (mask && !mask(path)) return g;
    const Tensor param = as_f32(params.at(path));
    const auto v = g.values<float>(), p = values_like(g.shape(), path, param);
    return elements(g.shape(), [&](std::size_t i) { return v[i] + decay * p[i]; });
  });
}

GradientTransformation clip_by_global_norm(double max_norm) {
  return {[](const Variables&) { return Variables(); },
          [max_norm](const Variables& grads, const Variables&, const Variables&) {
            const float norm = global_norm(grads), limit = static_cast<float>(max_norm);
            if (norm < limit) return Updates{grads, {}};
            return Updates{map_variables(grads,
                                         [&](const std::string& path, const Variable& grad) {
                                           if (collection_of(path) != kParams) return grad;
                                           const Tensor g = as_f32(grad);
                                           const auto v = g.values<float>();
                                           return Variable(elements(g.shape(), [&](std::size_t i) {
                                             return v[i] / norm * limit;
                                           }));
                                         }),
                           {}};
          }};
}

GradientTransformation freeze(Mask mask) {
  return stateless([mask](const std::string& path, const Tensor& g, const Variables&) {
    return !mask || mask(path) ? Tensor::zeros(DType::f32, g.shape()) : g;
  });
}

GradientTransformation with_master_weights(GradientTransformation inner) {
  const auto masters_of = [](const Variables& state, const Variables& params) {
    return map_variables(params, [&](const std::string& path, const Variable&) {
      return state.at(below("master", path));
    });
  };
  return {
      [inner](const Variables& params) {
        const Variables masters = map_variables(
            params,
            [](const std::string&, const Variable& param) { return Variable(as_f32(param)); });
        Variables state = inner.init(masters);
        for (const auto& [path, master] : masters) state.set(below("master", path), master);
        return state;
      },
      [inner, masters_of](const Variables& grads, const Variables& state, const Variables& params) {
        const Variables masters = masters_of(state, params);
        Updates result = inner.update(grads, state.without("master"), masters);
        for (const auto& [path, master] : apply_updates(masters, result.updates)) {
          result.state.set(below("master", path), master);
          const Tensor from = as_f32(params.at(path));
          const Tensor to = master.value().astype(params.at(path).dtype()).astype(DType::f32);
          const auto a = from.values<float>(), b = values_like(from.shape(), path, to);
          result.updates.set(path,
                             elements(from.shape(), [&](std::size_t i) { return b[i] - a[i]; }));
        }
        return result;
      }};
}

GradientTransformation sgd(const Sgd& options) {
  if (options.momentum == 0) return chain({scale_by_learning_rate(options.learning_rate)});
  return chain(
      {trace(options.momentum, options.nesterov), scale_by_learning_rate(options.learning_rate)});
}

GradientTransformation adam(const Adam& options) {
  return chain({scale_by_adam(options), scale_by_learning_rate(options.learning_rate)});
}

GradientTransformation adamw(const AdamW& options) {
  return chain({scale_by_adam(
                    {options.learning_rate, options.b1, options.b2, options.eps, options.eps_root}),
                add_decayed_weights(options.weight_decay, options.mask),
                scale_by_learning_rate(options.learning_rate)});
}

float global_norm(const Variables& grads) {
  double sum = 0;
  for (const auto& [path, grad] : grads) {
    if (collection_of(path) != kParams) continue;
    const Tensor g = as_f32(grad);
    for (const float x : g.values<float>()) sum += static_cast<double>(x) * x;
  }
  return static_cast<float>(std::sqrt(sum));
}

Variables accumulate(const Variables& a, const Variables& b) {
  Variables result = a;
  for (const auto& [path, value] : b) {
    const Variable* other = a.find(path);
    const bool is_state = collection_of(path) == kOverwriteWithGradient;
    result.set(path, other == nullptr ? value
                                      : octavo::accumulate(
                                            other->value(), value.value(),
                                            is_state ? Accumulation::maximum : Accumulation::sum));
  }
  return result;
}

Variables divide(const Variables& grads, std::size_t count) {
  if (count == 0) throw ContractError("divide: given 0 microbatches, expected 1 or more");
  return map_variables(grads, [&](const std::string& path, const Variable& value) -> Variable {
    if (collection_of(path) == kOverwriteWithGradient) return value;
    const Tensor g = as_f32(value);
    const auto v = g.values<float>();
    return elements(g.shape(), [&](std::size_t i) { return v[i] / static_cast<float>(count); })
        .astype(value.dtype());
  });
}

}  // namespace octavo::optim
