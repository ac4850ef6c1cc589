// Runs of Flax's TrainState, replayed: tests/golden/flax/train, state and optim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "octavo/base/error.h"
#include "octavo/nn/einsum.h"
#include "octavo/ops/fp8.h"
#include "octavo/train/flax_golden_testing.h"
#include "octavo/train/state_file.h"
#include "octavo/train/train_testing.h"

namespace octavo {
namespace {

using testing::expect_same_bits;
using testing::FlaxGolden;
using testing::kUnit;
using testing::relative_rounding;
using testing::row;
using testing::rows;

constexpr auto kExact = Fp8Semantics::flax_exact;

// |a - b| <= bound for every element.
void expect_within(const Tensor& a, const Tensor& b, const Tensor& bound,
                   const std::string& where) {
  const std::vector<float> x = a.to_floats(), y = b.to_floats(), limit = bound.to_floats();
  ASSERT_EQ(x.size(), y.size()) << where;
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_LE(std::fabs(x[i] - y[i]), limit[i]) << where << " element " << i << " of " << x[i];
  }
}

// What codes are larger than what they stand for, at most: half a step of 3 and of 2 bits.
constexpr double kE4m3Growth = 1 + 1.0 / 16, kE5m2Growth = 1 + 1.0 / 8;

// From the sums of magnitudes of `terms` terms, which `growth` enlarges: theirs and ours are at
// most terms + 4 roundings from the exact sum each, the additions and what the result goes through.
double rounding_bound(double magnitude, std::size_t terms, double growth) {
  return magnitude * growth * 2 * relative_rounding(terms + 4);
}
Tensor rounding_bound(const Tensor& magnitudes, std::size_t terms, double growth = 1) {
  std::vector<float> bound = magnitudes.to_floats();
  for (float& x : bound) x = static_cast<float>(rounding_bound(x, terms, growth));
  return Tensor::from(bound, magnitudes.shape());
}

Tensor abs(const Tensor& x) {
  std::vector<float> values = x.to_floats();
  for (float& v : values) v = std::fabs(v);
  return Tensor::from(values, x.shape());
}

struct DenseRun {
  std::string name, op;
  bool is_nanoo;
  std::size_t steps;
};

std::vector<DenseRun> dense_runs(const FlaxGolden& golden) {
  std::vector<DenseRun> runs;
  for (const Json& c : golden.cases()) {
    if (c.value("layer", "") != "DenseGeneral(32)") continue;
    const bool is_nanoo = c.at("pair") == "nanoo";
    runs.push_back({c.at("name"), is_nanoo ? "NANOOFp8DotGeneralOp_0" : "Fp8DirectDotGeneralOp_0",
                    is_nanoo, c.at("steps")});
  }
  return runs;
}

nn::Dense dense_layer(const DenseRun& run, std::size_t length) {
  nn::Dense layer{.features = 32};
  if (run.is_nanoo) {
    layer.dot_general_cls =
        nn::NANOOFp8DotGeneralOp{.amax_history_length = length, .semantics = kExact};
  } else {
    layer.dot_general_cls = nn::Fp8DotGeneral{.amax_history_length = length, .semantics = kExact};
  }
  return layer;
}

// Scales and histories of every step, to the bit; gradients within what the order of sums explains.
TEST(FlaxTrainGolden, DenseRunsReplayed) {
  const FlaxGolden golden("train");
  const std::vector<DenseRun> runs = dense_runs(golden);
  ASSERT_EQ(runs.size(), 4u);
  for (const DenseRun& run : runs) {
    const Variables before = golden.variables(run.name + ".before");
    const Variables owg = golden.variables(run.name + ".owg");
    const std::size_t length = owg.at(run.op + "/input_amax_history").shape()[1];
    const nn::Dense layer = dense_layer(run, length);
    Variables state = layer.init(Rng(0), row(golden.at(run.name + ".x"), 0)).without(kParams);
    for (std::size_t t = 0; t < run.steps; ++t) {
      const std::string where = run.name + " step " + std::to_string(t);
      const Tensor x = row(golden.at(run.name + ".x"), t), g = row(golden.at(run.name + ".g"), t);
      const Variables variables = state.merged(rows(before, t));
      const ValueAndGrad result =
          value_and_grad([&](const Variables& v) { return sum(layer.apply(v, x) * Variable(g)); },
                         kExact)(variables);
      state = result.grads.collection(kOverwriteWithGradient);
      for (const auto& [path, value] : rows(owg, t)) {
        EXPECT_TRUE(same_bits(state.value("_overwrite_with_gradient/" + path), value.value()))
            << where << " " << path;
      }
      const Variables theirs = rows(golden.variables(run.name + ".grads"), t);
      const Tensor magnitudes = ops::dot_general(abs(x), abs(g), {{0}, {0}}, DType::f32);
      expect_within(result.grads.value("params/kernel"), theirs.value("kernel"),
                    rounding_bound(magnitudes, x.shape()[0], kE4m3Growth * kE5m2Growth), where);
      expect_within(result.grads.value("params/bias"), theirs.value("bias"),
                    rounding_bound(sum(Variable(abs(g)), {0}).value(), x.shape()[0]), where);
    }
  }
}

// The largest of |a| |b| + |bias|, rows of a with columns of b.
float largest_sum(const Tensor& a, const Tensor& b, const Tensor& bias) {
  const Variable sums =
      Variable(ops::dot_general(abs(a), abs(b), {{1}, {0}})) + Variable(abs(bias));
  return fp8::amax(sums.value());
}

// An MLP, every step from Flax's own parameters and state. All that follows from these and from the
// inputs alone is equal to the bit: scales, histories but for what this step adds to them, and the
// largest magnitudes of inputs and kernels.
void replay_mlp(const FlaxGolden& golden, const std::string& name, bool is_shared) {
  const Variables before = golden.variables(name + ".before");
  const Variables owg = golden.variables(name + ".owg");
  const nn::Dense layer{
      .features = 16,
      .dot_general_cls = nn::Fp8DotGeneral{.amax_history_length = 8, .semantics = kExact}};
  const auto model = [&](const nn::Scope& scope, const Variable& x) {
    const Variable hidden = relu(layer(scope.named("first"), x));
    return layer(scope.named(is_shared ? "first" : "second"), hidden);
  };
  Variables state =
      nn::init(model, Rng(0), Variable(row(golden.at(name + ".x"), 0))).without(kParams);
  for (std::size_t t = 0; t < 20; ++t) {
    const Tensor x = row(golden.at(name + ".x"), t);
    const Variable target = row(golden.at(name + ".target"), t);
    const Variables params = rows(before, t);
    const ValueAndGrad result = value_and_grad(
        [&](const Variables& v) {
          const Variable error = nn::apply(model, v, Variable(x)) - target;
          return mean(error * error);
        },
        kExact)(state.merged(params));
    // Sums of 16 products of codes and a bias, in any order.
    const double hidden_bound = rounding_bound(
        largest_sum(x, params.value("params/first/kernel"), params.value("params/first/bias")), 17,
        kE4m3Growth * kE4m3Growth);
    const Variables theirs = rows(owg, t);
    for (const auto& [path, value] : theirs) {
      const Tensor ours = result.grads.value("_overwrite_with_gradient/" + path);
      const std::vector<float> a = ours.to_floats(), b = value.value().to_floats();
      const bool is_input = path.starts_with("first/") && path.find("/input_") != std::string::npos;
      const bool is_kernel = path.find("/kernel_") != std::string::npos;
      if (path.ends_with("scale") || is_kernel || (is_input && !is_shared)) {
        EXPECT_TRUE(same_bits(ours, value.value())) << name << " " << path << " step " << t;
        continue;
      }
      EXPECT_TRUE(std::equal(a.begin() + 1, a.end(), b.begin() + 1)) << path << " step " << t;
      if (path.find("/input_") != std::string::npos) {
        EXPECT_NEAR(a[0], b[0], hidden_bound) << name << " " << path << " step " << t;
      }
    }
    state = map_variables(state, [&](const std::string& path, const Variable&) {
      return theirs.at(path.substr(path.find('/') + 1));
    });
  }
}

TEST(FlaxTrainGolden, MlpReplayed) { replay_mlp(FlaxGolden("train"), "mlp", false); }

// Flax adds up what the two uses give, with flax_exact so do we.
TEST(FlaxTrainGolden, SharedLayerReplayed) { replay_mlp(FlaxGolden("train"), "mlp_shared", true); }

struct OptaxRun {
  const char* name;
  optim::GradientTransformation tx;
  double rate, b2;  // the largest rate; 0: no second moments
};

std::vector<OptaxRun> optax_runs() {
  using namespace optim;
  const auto only_kernel = [](std::string_view path) { return path.ends_with("/kernel"); };
  const Schedule warm = warmup_cosine_decay_schedule(0, 0.1, 5, 15, 0.01);
  const auto clipped = [](double norm, GradientTransformation tx) {
    return chain({clip_by_global_norm(norm), std::move(tx)});
  };
  return {
      {"sgd", sgd({.learning_rate = 0.1}), 0.1, 0},
      {"sgd_momentum", sgd({.learning_rate = 0.1, .momentum = 0.9}), 0.1, 0},
      {"sgd_nesterov", sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}), 0.1, 0},
      {"adam", adam({.learning_rate = 0.1}), 0.1, 0.999},
      {"adam_options",
       adam({.learning_rate = 0.01, .b1 = 0.8, .b2 = 0.95, .eps = 1e-5, .eps_root = 1e-6}), 0.01,
       0.95},
      {"adamw", adamw({.learning_rate = 0.1}), 0.1, 0.999},
      {"adamw_decay", adamw({.learning_rate = 0.1, .weight_decay = 0.1}), 0.1, 0.999},
      {"adamw_mask", adamw({.learning_rate = 0.1, .weight_decay = 0.1, .mask = only_kernel}), 0.1,
       0.999},
      {"adamw_schedule", adamw({.learning_rate = warm, .weight_decay = 0.1}), 0.1, 0.999},
      {"clip_sgd", clipped(1, sgd({.learning_rate = 0.1})), 0.1, 0},
      {"clip_loose", clipped(100, sgd({.learning_rate = 0.1})), 0.1, 0},
      {"clip_adamw", clipped(0.5, adamw({.learning_rate = 0.01})), 0.01, 0.999},
  };
}

Variables as_params(const Variables& tree) {
  Variables params;
  for (const auto& [path, value] : tree) params.set("params/" + path, value);
  return params;
}

// `bound` of the parameters, and what the roundings of one more update come to, of optax's 1 -
// b^count too, which cancels.
Variables with_step(const Variables& bound, const OptaxRun& run, std::size_t t,
                    const Variables& updates, const Variables& params) {
  const double steps = static_cast<double>(t + 1);
  const double cancelled = run.b2 == 0 ? 0 : (steps + 3) / (1 - std::pow(run.b2, steps));
  // Momentum sums up to `steps` terms of size u; clipping divides by a norm of 17 terms.
  const double terms = 2 * steps + 24 + cancelled;
  return map_variables(bound, [&](const std::string& path, const Variable& b) {
    std::vector<float> limit = b.value().to_floats();
    const std::vector<float> u = updates.value(path).to_floats(),
                             p = params.value(path).to_floats();
    for (std::size_t i = 0; i < limit.size(); ++i) {
      limit[i] += static_cast<float>(2 * kUnit *
                                     (terms * (std::fabs(u[i]) + run.rate * std::fabs(p[i])) +
                                      std::fabs(p[i]) + std::fabs(u[i])));
    }
    return Variable(Tensor::from(limit, b.shape()));
  });
}

// By their parameters of 20 steps.
TEST(OptaxGolden, Optimizers) {
  const FlaxGolden golden("optim");
  const Variables gradients = as_params(golden.variables("gradients"));
  for (const OptaxRun& run : optax_runs()) {
    Variables params = golden.variables("start");
    Variables state = run.tx.init(params),
              bound = map_variables(params, [](const auto&, const Variable& p) {
                return Variable(Tensor::zeros(DType::f32, p.shape()));
              });
    const Variables expected = as_params(golden.variables(std::string(run.name) + ".params"));
    for (std::size_t t = 0; t < 20; ++t) {
      auto [updates, next] = run.tx.update(rows(gradients, t), state, params);
      bound = with_step(bound, run, t, updates, params);
      params = optim::apply_updates(params, updates);
      state = std::move(next);
      for (const auto& [path, value] : rows(expected, t)) {
        expect_within(params.value(path), value.value(), bound.value(path),
                      std::string(run.name) + " " + path + " step " + std::to_string(t));
      }
    }
  }
}

// Sums of 17 squares, and a root.
TEST(OptaxGolden, GlobalNorms) {
  const FlaxGolden golden("optim");
  const Variables gradients = as_params(golden.variables("gradients"));
  const auto norms = golden.at("global_norm.norm").values<float>();
  const Variables clipped_by_one = as_params(golden.variables("clip_by_global_norm"));
  for (std::size_t t = 0; t < norms.size(); ++t) {
    const Variables g = rows(gradients, t);
    EXPECT_NEAR(optim::global_norm(g), norms[t], norms[t] * 20 * kUnit);
    for (const auto& [path, value] : optim::clip_by_global_norm(1).update(g, {}, {}).updates) {
      const std::vector<float> a = value.value().to_floats();
      const std::vector<float> b = rows(clipped_by_one, t).value(path).to_floats();
      for (std::size_t i = 0; i < a.size(); ++i) {
        EXPECT_NEAR(a[i], b[i], std::fabs(b[i]) * 24 * kUnit);
      }
    }
  }
}

// optax computes them in f32: a cosine of an argument up to pi, and three products.
TEST(OptaxGolden, Schedules) {
  const FlaxGolden golden("optim");
  using namespace optim;
  const std::pair<const char*, Schedule> schedules[] = {
      {"constant", 0.1},
      {"cosine_decay", cosine_decay_schedule(0.1, 15)},
      {"cosine_decay_alpha", cosine_decay_schedule(0.1, 15, 0.1)},
      {"warmup_cosine", warmup_cosine_decay_schedule(0, 0.1, 5, 15, 0.01)},
      {"warmup_cosine_from", warmup_cosine_decay_schedule(0.02, 0.1, 1, 20)},
      {"linear", linear_schedule(0.1, 0.01, 12)},
  };
  for (const auto& [name, schedule] : schedules) {
    const auto values = golden.at(std::string("schedule.") + name + ".values").values<float>();
    for (std::size_t t = 0; t < values.size(); ++t) {
      EXPECT_NEAR(schedule(static_cast<std::int64_t>(t)), values[t], 0.1 * 16 * kUnit)
          << name << " step " << t;
    }
  }
}

class FlaxStateGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "octavo_state_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
};

// A Flax state comes in, trains one step to what Flax has then, and goes out as it came.
TEST_F(FlaxStateGolden, ComesInAndGoesOut) {
  const FlaxGolden golden("state");
  const optim::Schedule warm = optim::warmup_cosine_decay_schedule(0, 0.1, 2, 10);
  const std::pair<const char*, optim::GradientTransformation> optimizers[] = {
      {"adam", optim::adam({.learning_rate = 0.01})},
      {"sgd_momentum", optim::sgd({.learning_rate = 0.1, .momentum = 0.9})},
      {"clip_adamw", optim::chain({optim::clip_by_global_norm(1),
                                   optim::adamw({.learning_rate = warm, .weight_decay = 0.1})})}};
  for (const auto& [name, tx] : optimizers) {
    const std::size_t length = std::string(name) == "adam" ? 1024 : 4;
    const nn::Dense layer{.features = 6,
                          .dot_general_cls = nn::Fp8DotGeneral{.amax_history_length = length}};
    const Tensor x = golden.at(std::string(name) + "/batch/x"),
                 g = golden.at(std::string(name) + "/batch/g");
    const TrainState initial = TrainState::create(layer.init(Rng(0), x), tx);
    for (const char* step : {"0", "3", "4"}) {
      TensorFile file;
      for (const auto& [path, value] : golden.variables(std::string(name) + "/" + step, '/')) {
        file.tensors.emplace(path, value.value());
      }
      ASSERT_TRUE(write_tensor_file(directory_ / step, file));
      const Result<RestoredState> state = import_flax_state(directory_ / step, initial);
      ASSERT_TRUE(state) << state.error().message;
      EXPECT_THAT(state->notes, ::testing::IsEmpty());
      EXPECT_EQ(state->state.step, std::atoi(step));

      ASSERT_TRUE(export_flax_state(directory_ / "out", state->state));
      const TensorFile out = *read_tensor_file(directory_ / "out");
      ASSERT_EQ(out.tensors.size(), file.tensors.size());
      for (const auto& [path, value] : file.tensors) {
        EXPECT_TRUE(same_bits(out.tensors.at(path), value)) << name << " " << path;
      }
    }
    const TrainState third = import_flax_state(directory_ / "3", initial)->state;
    const TrainState fourth = import_flax_state(directory_ / "4", initial)->state;
    const Variables grads = value_and_grad([&](const Variables& v) {
                              return sum(layer.apply(v, x) * Variable(g));
                            })(third.variables)
                                .grads;
    const TrainState ours = third.apply_gradients(grads);
    EXPECT_EQ(ours.step, 4);
    expect_same_bits(ours.variables.collection(kOverwriteWithGradient),
                     fourth.variables.collection(kOverwriteWithGradient));

    // As far as the parameters move when every gradient moves by what its sum may round, and some
    // roundings of the update and of optax's 1 - b^count (b = 0.999, count = 4) themselves.
    const Tensor of_kernel = rounding_bound(ops::dot_general(abs(x), abs(g), {{0}, {0}}),
                                            x.shape()[0], kE4m3Growth * kE5m2Growth);
    const Tensor of_bias = rounding_bound(sum(Variable(abs(g)), {0}).value(), x.shape()[0]);
    const auto moved = [&](double sign) {
      return third
          .apply_gradients(map_variables(grads,
                                         [&](const std::string& path, const Variable& v) {
                                           if (collection_of(path) != kParams) return v;
                                           const Variable by =
                                               path.ends_with("kernel") ? of_kernel : of_bias;
                                           return Variable((v + scale(by, sign)).value());
                                         }))
          .variables;
    };
    const Variables up = moved(1), down = moved(-1);
    for (const auto& [path, value] : fourth.variables.collection(kParams)) {
      const std::vector<float> a = ours.variables.value(path).to_floats(),
                               b = value.value().to_floats();
      const std::vector<float> from = third.variables.value(path).to_floats();
      const std::vector<float> high = up.value(path).to_floats(),
                               low = down.value(path).to_floats();
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double step = std::fabs(a[i] - from[i]) + std::fabs(a[i]);
        const double bound = 2 * (std::fabs(high[i] - a[i]) + std::fabs(low[i] - a[i])) +
                             step * 2 * kUnit * (24 + 7 / (1 - std::pow(0.999, 4)));
        EXPECT_NEAR(a[i], b[i], bound) << name << " " << path;
      }
    }
  }
}

// A kernel in the product "mk,kn->nm", which JAX computes as kernel times x. The next step needs
// each state where it belongs, and the file has it where Flax has it.
TEST_F(FlaxStateGolden, ExchangedEinsumComesInAndGoesOut) {
  const FlaxGolden golden("state");
  const nn::Einsum layer{.shape = {8, 6},
                         .equation = "mk,kn->nm",
                         .use_bias = false,
                         .einsum_cls = nn::Fp8Einsum{.amax_history_length = 4}};
  const Tensor x = golden.at("einsum/batch/x"), g = golden.at("einsum/batch/g");
  ASSERT_TRUE(is_exchanged_by_jax(layer.equation, x.shape(), layer.shape));
  const TrainState initial = TrainState::create(
      layer.init(Rng(0), x), optim::sgd({.learning_rate = 0.1, .momentum = 0.9}));
  const auto file_of = [&](const char* step) {
    TensorFile file;
    for (const auto& [path, value] : golden.variables(std::string("einsum/") + step, '/')) {
      file.tensors.emplace(path, value.value());
    }
    return file;
  };
  const auto next = [&](const TrainState& state) {
    const auto loss = [&](const Variables& v) { return sum(layer.apply(v, x) * Variable(g)); };
    return state.apply_gradients(value_and_grad(loss)(state.variables).grads);
  };
  const std::vector<std::string> exchanged = {"Fp8Einsum_0"};
  for (const char* step : {"0", "3", "4"}) {
    ASSERT_TRUE(write_tensor_file(directory_ / step, file_of(step)));
    const Result<RestoredState> state = import_flax_state(directory_ / step, initial, exchanged);
    ASSERT_TRUE(state) << state.error().message;
    EXPECT_THAT(state->notes, ::testing::IsEmpty());
    ASSERT_TRUE(export_flax_state(directory_ / "out", state->state, exchanged));
    const TensorFile out = *read_tensor_file(directory_ / "out"), in = file_of(step);
    ASSERT_EQ(out.tensors.size(), in.tensors.size());
    for (const auto& [path, value] : in.tensors) {
      EXPECT_TRUE(same_bits(out.tensors.at(path), value)) << path;
    }
  }
  const auto fp8_state = [](const TrainState& state) {
    return state.variables.collection(kOverwriteWithGradient);
  };
  const auto third = [&](const std::vector<std::string>& modules) {
    return import_flax_state(directory_ / "3", initial, modules)->state;
  };
  const TrainState fourth = import_flax_state(directory_ / "4", initial, exchanged)->state;
  expect_same_bits(fp8_state(next(third(exchanged))), fp8_state(fourth));
  // Without the exchange x would be quantized with the kernel's scale.
  const std::string scale = "_overwrite_with_gradient/Fp8Einsum_0/input_scale";
  EXPECT_FALSE(same_bits(next(third({})).variables.value(scale), fourth.variables.value(scale)));

  EXPECT_THROW(import_flax_state(directory_ / "3", initial, {"Fp8Einsum_1"}), ContractError);
  EXPECT_THROW(export_flax_state(directory_ / "out", initial, {""}), ContractError);
}

}  // namespace
}  // namespace octavo
