// Runs of Flax's TrainState, replayed: tests/golden/flax/train, state and optim.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "octavo/base/error.h"
#include "octavo/nn/einsum.h"
#include "octavo/train/dense_interval_testing.h"
#include "octavo/train/flax_golden_testing.h"
#include "octavo/train/state_file.h"
#include "octavo/train/train_testing.h"

namespace octavo {
namespace {

using testing::DenseGrids;
using testing::expect_held;
using testing::expect_same_bits;
using testing::expect_within;
using testing::FlaxGolden;
using testing::grid_of;
using testing::magnitudes;
using testing::power_roundings;
using testing::relative_rounding;
using testing::row;
using testing::rows;

constexpr auto kExact = Fp8Semantics::flax_exact;

// What codes are larger than what they stand for, at most: half a step of 3 and of 2 bits.
constexpr double kE4m3Growth = 1 + 1.0 / 16, kE5m2Growth = 1 + 1.0 / 8;

// From the sums of magnitudes of `terms` terms, which `growth` enlarges: theirs and ours are at
// most terms + 4 roundings from the exact sum each, the additions and what the result goes through:
// both scales, their product, and the product with it.
double rounding_factor(std::size_t terms, double growth = 1) {
  return growth * 2 * relative_rounding(terms + 4);
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
      expect_within(result.grads.value("params/kernel"), theirs.value("kernel"),
                    ops::dot_general(magnitudes(x), magnitudes(g), {{0}, {0}}, DType::f32),
                    rounding_factor(x.shape()[0], kE4m3Growth * kE5m2Growth), where);
      expect_within(result.grads.value("params/bias"), theirs.value("bias"),
                    sum(Variable(magnitudes(g)), {0}).value(), rounding_factor(x.shape()[0]),
                    where);
    }
  }
}

// An MLP, every step from Flax's own parameters and state. All that follows from these and from the
// inputs alone is equal to the bit: scales, histories but for what this step adds to them, and the
// largest magnitudes of inputs and kernels. What the step adds to them, the gradients and the loss
// lie in their intervals, ours and Flax's.
void replay_mlp(const FlaxGolden& golden, const std::string& name, bool is_shared) {
  const Variables before = golden.variables(name + ".before");
  const Variables owg = golden.variables(name + ".owg"), grads = golden.variables(name + ".grads");
  const nn::Dense layer{
      .features = 16,
      .dot_general_cls = nn::Fp8DotGeneral{.amax_history_length = 8, .semantics = kExact}};
  const std::string second = is_shared ? "first" : "second", op = "Fp8DirectDotGeneralOp_0";
  const auto model = [&](const nn::Scope& scope, const Variable& x) {
    return layer(scope.named(second), relu(layer(scope.named("first"), x)));
  };
  Variables state =
      nn::init(model, Rng(0), Variable(row(golden.at(name + ".x"), 0))).without(kParams);
  for (std::size_t t = 0; t < 20; ++t) {
    const std::string where = name + " step " + std::to_string(t) + " ";
    const Tensor x = row(golden.at(name + ".x"), t), target = row(golden.at(name + ".target"), t);
    const Variables params = rows(before, t);
    testing::MlpGrids mlp{DenseGrids({fp8::kOcp, false}, 8), DenseGrids({fp8::kOcp, false}, 8), op,
                          "first", second};
    mlp.first.read_state("_overwrite_with_gradient/first/" + op + "/", state);
    mlp.second.read_state("_overwrite_with_gradient/" + second + "/" + op + "/", state);
    testing::Grids grids;
    for (const auto& [path, value] : params) {
      grids[path.substr(path.find('/') + 1)] = grid_of(value.value());
    }
    const testing::StepGrids step = mlp.step(grids, grid_of(x), grid_of(target));

    const ValueAndGrad result = value_and_grad(
        [&](const Variables& v) {
          const Variable error = nn::apply(model, v, Variable(x)) - Variable(target);
          return mean(error * error);
        },
        kExact)(state.merged(params));
    expect_held({1, 1, {step.loss}}, result.value, row(golden.at(name + ".loss"), t),
                where + "loss");
    for (const auto& [path, value] : rows(grads, t)) {
      expect_held(step.grads.at(path), result.grads.value("params/" + path), value.value(),
                  where + path);
    }
    const Variables theirs = rows(owg, t);
    for (const auto& [path, value] : theirs) {
      const Tensor ours = result.grads.value("_overwrite_with_gradient/" + path);
      const bool is_input = path.starts_with("first/") && path.find("/input_") != std::string::npos;
      const bool is_kernel = path.find("/kernel_") != std::string::npos;
      if (path.ends_with("scale") || is_kernel || (is_input && !is_shared)) {
        EXPECT_TRUE(same_bits(ours, value.value())) << where << path;
        continue;
      }
      const std::vector<float> a = ours.to_floats(), b = value.value().to_floats();
      EXPECT_TRUE(std::equal(a.begin() + 1, a.end(), b.begin() + 1)) << where << path;
      expect_held(step.state.at(path), ours, value.value(), where + path);
    }
    state = map_variables(state, [&](const std::string& path, const Variable&) {
      return theirs.at(path.substr(path.find('/') + 1));
    });
  }
}

TEST(FlaxTrainGolden, MlpReplayed) { replay_mlp(FlaxGolden("train"), "mlp", false); }

// Flax adds up what the two uses give, with flax_exact so do we.
TEST(FlaxTrainGolden, SharedLayerReplayed) { replay_mlp(FlaxGolden("train"), "mlp_shared", true); }

// optax's norm of 17 numbers: their squares and 16 sums, which the root halves, and its own.
constexpr std::size_t kNormRoundings = 10;

// What an update goes through, for the number of its roundings; none of Adam's decays: 0.
struct UpdateRules {
  double b1 = 0, b2 = 0;
  bool is_clipped = false;
  std::size_t rate = 1;  // those of the learning rate, relative to it
};

struct OptaxRun {
  const char* name;
  optim::GradientTransformation tx;
  UpdateRules rules;
};

// Roundings of optax's f32 1 - b^count (ours is f64, rounded): those of the power grow by the
// cancellation; its own.
double correction_roundings(double b, std::size_t count) {
  const double power = std::pow(b, static_cast<double>(count));
  return power / (1 - power) * static_cast<double>(power_roundings(count)) + 1;
}

// In how many f32 roundings a term of an update may differ from its exact value, in step `count`
// from 1, `steps` of which f32 state remembers. What a root takes counts half.
std::size_t update_roundings(const UpdateRules& rules, std::size_t count, std::size_t steps) {
  // Of a moment: a constant, a product and a sum per step, of which nesterov has one more; g^2 is
  // one too.
  const double per_moment = 3 * static_cast<double>(steps + 1);
  double n = per_moment + static_cast<double>(rules.rate) + 1;  // times the rate
  if (rules.b2 > 0) {
    n += (per_moment + 1) / 2 + correction_roundings(rules.b1, count) +
         correction_roundings(rules.b2, count) / 2;
    // Both quotients by a correction; eps_root and its sum; the root; eps and its sum; the quotient
    // of both; the sum with what decays.
    n += 1.5 + 1 + 1 + 2 + 1 + 1;
  }
  // The norm, a quotient and a product: in the first moment, and in half of the second's square.
  if (rules.is_clipped) n += 2 * (kNormRoundings + 2);
  return static_cast<std::size_t>(std::ceil(n));
}

// A cosine's argument, 3 roundings of pi at most; the cosine, 2, and 1 plus it, 2; both halved; its
// power, 2; times 1 - alpha, 2; plus alpha, 2; times the rate, 2: of the largest rate.
constexpr std::size_t kScheduleRoundings = 15;

std::vector<OptaxRun> optax_runs() {
  using namespace optim;
  const auto only_kernel = [](std::string_view path) { return path.ends_with("/kernel"); };
  const Schedule warm = warmup_cosine_decay_schedule(0, 0.1, 5, 15, 0.01);
  const auto clipped = [](double norm, GradientTransformation tx) {
    return chain({clip_by_global_norm(norm), std::move(tx)});
  };
  const UpdateRules of_adam{0.9, 0.999};
  return {
      {"sgd", sgd({.learning_rate = 0.1}), {}},
      {"sgd_momentum", sgd({.learning_rate = 0.1, .momentum = 0.9}), {}},
      {"sgd_nesterov", sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}), {}},
      {"adam", adam({.learning_rate = 0.1}), of_adam},
      {"adam_options",
       adam({.learning_rate = 0.01, .b1 = 0.8, .b2 = 0.95, .eps = 1e-5, .eps_root = 1e-6}),
       {0.8, 0.95}},
      {"adamw", adamw({.learning_rate = 0.1}), of_adam},
      {"adamw_decay", adamw({.learning_rate = 0.1, .weight_decay = 0.1}), of_adam},
      {"adamw_mask", adamw({.learning_rate = 0.1, .weight_decay = 0.1, .mask = only_kernel}),
       of_adam},
      // Its rates are a tenth of the largest, or more.
      {"adamw_schedule",
       adamw({.learning_rate = warm, .weight_decay = 0.1}),
       {0.9, 0.999, false, 10 * kScheduleRoundings}},
      {"clip_sgd", clipped(1, sgd({.learning_rate = 0.1})), {.is_clipped = true}},
      {"clip_loose", clipped(100, sgd({.learning_rate = 0.1})), {.is_clipped = true}},
      {"clip_adamw", clipped(0.5, adamw({.learning_rate = 0.01})), {0.9, 0.999, true}},
  };
}

Variables as_params(const Variables& tree) {
  Variables params;
  for (const auto& [path, value] : tree) params.set("params/" + path, value);
  return params;
}

// How far ours and optax's parameters may be apart after a step, if before it by `bound`: both
// updates are `roundings` of the sum of magnitudes of their terms off, which is the same update of
// magnitudes, and their sums with parameters by one rounding.
Variables with_step(const Variables& bound, std::size_t roundings, const Variables& of_magnitudes,
                    const Variables& updates, const Variables& params) {
  return map_variables(bound, [&](const std::string& path, const Variable& b) {
    std::vector<float> limit = b.value().to_floats();
    const std::vector<float> m = of_magnitudes.value(path).to_floats(),
                             u = updates.value(path).to_floats(),
                             p = params.value(path).to_floats();
    for (std::size_t i = 0; i < limit.size(); ++i) {
      const double own = std::fabs(p[i]) + std::fabs(u[i]) + limit[i];
      limit[i] += static_cast<float>(
          2 * (relative_rounding(roundings) * std::fabs(m[i]) + relative_rounding(1) * own));
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
    Variables state = run.tx.init(params), state_of_magnitudes = state;
    Variables bound = map_variables(params, [](const auto&, const Variable& p) {
      return Variable(Tensor::zeros(DType::f32, p.shape()));
    });
    const Variables expected = as_params(golden.variables(std::string(run.name) + ".params"));
    for (std::size_t t = 0; t < 20; ++t) {
      auto [updates, next] = run.tx.update(rows(gradients, t), state, params);
      auto [of_magnitudes, next_of_magnitudes] =
          run.tx.update(magnitudes(rows(gradients, t)), state_of_magnitudes, magnitudes(params));
      bound = with_step(bound, update_roundings(run.rules, t + 1, t + 1), of_magnitudes, updates,
                        params);
      params = optim::apply_updates(params, updates);
      state = std::move(next);
      state_of_magnitudes = std::move(next_of_magnitudes);
      for (const auto& [path, value] : rows(expected, t)) {
        expect_within(params.value(path), value.value(), bound.value(path), 1,
                      std::string(run.name) + " " + path + " step " + std::to_string(t));
      }
    }
  }
}

TEST(OptaxGolden, GlobalNorms) {
  const FlaxGolden golden("optim");
  const Variables gradients = as_params(golden.variables("gradients"));
  const auto norms = golden.at("global_norm.norm").values<float>();
  const Variables clipped_by_one = as_params(golden.variables("clip_by_global_norm"));
  for (std::size_t t = 0; t < norms.size(); ++t) {
    const Variables g = rows(gradients, t);
    // Ours is one rounding off.
    EXPECT_NEAR(optim::global_norm(g), norms[t], norms[t] * relative_rounding(kNormRoundings + 1));
    // Both norms, two quotients and two products.
    for (const auto& [path, value] : optim::clip_by_global_norm(1).update(g, {}, {}).updates) {
      const Tensor expected = rows(clipped_by_one, t).value(path);
      expect_within(value.value(), expected, magnitudes(expected),
                    relative_rounding(kNormRoundings + 1 + 2 * 2), path);
    }
  }
}

// Ours are f64, optax's f32.
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
      EXPECT_NEAR(schedule(static_cast<std::int64_t>(t)), values[t],
                  0.1 * relative_rounding(kScheduleRoundings))
          << name << " step " << t;
    }
  }
}

using FlaxStateGolden = testing::FilesTest;

// A Flax state comes in, trains one step to what Flax has then, and goes out as it came.
TEST_F(FlaxStateGolden, ComesInAndGoesOut) {
  const FlaxGolden golden("state");
  const optim::Schedule warm = optim::warmup_cosine_decay_schedule(0, 0.1, 2, 10);
  // The rate of the last is more than half of its largest there.
  const OptaxRun optimizers[] = {
      {"adam", optim::adam({.learning_rate = 0.01}), {0.9, 0.999}},
      {"sgd_momentum", optim::sgd({.learning_rate = 0.1, .momentum = 0.9}), {}},
      {"clip_adamw",
       optim::chain({optim::clip_by_global_norm(1),
                     optim::adamw({.learning_rate = warm, .weight_decay = 0.1})}),
       {0.9, 0.999, true, 2 * kScheduleRoundings}}};
  for (const auto& [name, tx, rules] : optimizers) {
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

    // As far as the parameters move when every gradient moves by what its sum may round, and the
    // roundings of the update itself (with_step).
    const Tensor of_kernel = scale(ops::dot_general(magnitudes(x), magnitudes(g), {{0}, {0}}),
                                   rounding_factor(x.shape()[0], kE4m3Growth * kE5m2Growth))
                                 .value();
    const Tensor of_bias =
        scale(sum(Variable(magnitudes(g)), {0}), rounding_factor(x.shape()[0])).value();
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
    const Variables params = third.variables.collection(kParams);
    const auto update = [&](const Variables& by, const Variables& state, const Variables& of) {
      return tx.update(by.collection(kParams), state, of).updates;
    };
    const Variables zero =
        map_variables(params, [](const std::string&, const Variable& v) { return scale(v, 0); });
    const Variables bound =
        with_step(zero, update_roundings(rules, 4, 1),
                  update(magnitudes(grads), magnitudes(third.opt_state), magnitudes(params)),
                  update(grads, third.opt_state, params), params);
    for (const auto& [path, value] : fourth.variables.collection(kParams)) {
      const Tensor& from = ours.variables.value(path);
      const std::vector<float> a = from.to_floats(), b = value.value().to_floats();
      const std::vector<float> high = up.value(path).to_floats(),
                               low = down.value(path).to_floats();
      const std::vector<float> own = bound.value(path).to_floats();
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double by_gradient = 2 * (std::fabs(high[i] - a[i]) + std::fabs(low[i] - a[i]));
        EXPECT_NEAR(a[i], b[i], by_gradient + own[i]) << name << " " << path;
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
