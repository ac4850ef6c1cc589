// Runs of 20 steps that begin where Flax's begin and then go on alone: own forward and backward
// passes, own optimizer, own FP8 state. Flax's run (tests/golden/flax/train) and ours do the same
// f32 operations and differ in the order of sums, in fused multiplications and in how
// 1 - b^count is computed. What this may come to is computed beside them, in intervals, from the
// same start: each operation widens its result by its rounding, sums by those of any order, and a
// quotient that lies as near to the middle of two codes as it is wide becomes both codes. Every
// parameter, gradient, scale, history and loss of both runs must lie in its interval, at every
// step; then they differ by no more than its width.
//
// As long as few codes are in doubt the intervals stay narrow: below 1e-3 of the values, where two
// neighbouring codes are 1/16 apart. Adam's are the widest, because optax's 1 - 0.999^count has but
// four digits in the first steps; its MLP has ever more codes in doubt from the fifth step, and all
// that follows from them. The same MLP with SGD has hardly any: at a rate of 0.1, which was chosen
// for that. At 0.5 every code is in doubt before the run ends, and nothing could be told.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "octavo/train/dense_interval_testing.h"
#include "octavo/train/flax_golden_testing.h"
#include "octavo/train/train_testing.h"

namespace octavo::testing {
namespace {

constexpr auto kExact = Fp8Semantics::flax_exact;

using Model = std::function<StepGrids(const Grids& params, const Grid& x, const Grid& target)>;

// sum(y * g)
Model weighted_dense(Pair pair, std::size_t length, const std::string& op) {
  return [=, layer = DenseGrids(pair, length)](const Grids& params, const Grid& x,
                                               const Grid& g) mutable -> StepGrids {
    const Grid y = layer.forward(x, params.at("kernel"), params.at("bias"));
    const auto grads = layer.backward(g);
    StepGrids step{sum(map_cells(y, g, std::multiplies<Interval>())),
                   {{"kernel", grads.kernel}, {"bias", grads.bias}},
                   {},
                   layer.in_doubt()};
    layer.add_state(op + "/", step.state);
    return step;
  };
}

Model squared_mlp(Pair pair, std::size_t length, const std::string& op) {
  return [mlp = MlpGrids{DenseGrids(pair, length), DenseGrids(pair, length), op}](
             const Grids& params, const Grid& x, const Grid& target) mutable {
    return mlp.step(params, x, target);
  };
}

// Steps of an optimizer over all parameters.
using Optimizer = std::function<void(Grids& params, const Grids& grads)>;

void add_update(Grid& params, const Grid& directions, double rate) {
  params = map_cells(params, directions, [&](Interval p, Interval u) { return p + -rate * u; });
}

Optimizer sgd_with_momentum(double rate, double momentum) {
  return [=, traces = Grids()](Grids& params, const Grids& grads) mutable {
    for (auto& [path, param] : params) {
      const Grid& g = grads.at(path);
      Grid& trace =
          traces.try_emplace(path, Grid{g.rows, g.cols, std::vector<Interval>(g.cells.size())})
              .first->second;
      trace = map_cells(g, trace, [&](Interval now, Interval old) { return now + momentum * old; });
      add_update(param, trace, rate);
    }
  };
}

// 1 - b^count: ours in f64, optax's in f32, where the difference is what is left of the power.
Interval correction(double b, int count) {
  const double power = std::pow(b, count), exact = 1 - power;
  const double error = power * relative_rounding(power_roundings(static_cast<std::size_t>(count)));
  return rounded({exact - error, exact + error});
}

Optimizer adam_grids(double rate) {
  return [=, mus = Grids(), nus = Grids(), count = 0](Grids& params, const Grids& grads) mutable {
    ++count;
    const Interval of_mu = correction(0.9, count), of_nu = correction(0.999, count);
    for (auto& [path, param] : params) {
      const Grid& g = grads.at(path);
      const Grid zero{g.rows, g.cols, std::vector<Interval>(g.cells.size())};
      Grid& mu = mus.try_emplace(path, zero).first->second;
      Grid& nu = nus.try_emplace(path, zero).first->second;
      mu = map_cells(g, mu, [](Interval now, Interval old) { return 0.1 * now + 0.9 * old; });
      nu = map_cells(g, nu,
                     [](Interval now, Interval old) { return 0.001 * square(now) + 0.999 * old; });
      const Grid directions = map_cells(mu, nu, [&](Interval m, Interval v) {
        return (m / of_mu) / (root(v / of_nu) + rounded({1e-8, 1e-8}));
      });
      add_update(param, directions, rate);
    }
  };
}

// What a comparison is of; `passing` is a loss or a gradient, of one step alone.
enum class Kind : std::uint8_t { param, state, passing };

// Of a whole run.
struct Agreement {
  // Elements of our run outside of their intervals: all, and those of parameters.
  std::size_t outside = 0, outside_params = 0;
  std::size_t differences = 0;  // elements in which the runs differ
  double largest_share = 0;     // of |ours - Flax's| over the width
  // By step: the widest interval of parameters and state, over the largest value of its tensor.
  std::vector<double> widths;
  std::vector<std::ptrdiff_t> in_doubt;  // codes, up to each step

  void compare(const Tensor& ours, const Tensor& theirs, const Grid& grid, Kind kind,
               const std::string& where) {
    const std::vector<float> a = ours.to_floats(), b = theirs.to_floats();
    ASSERT_EQ(a.size(), grid.cells.size()) << where;
    ASSERT_EQ(b.size(), grid.cells.size()) << where;
    const double largest = amax(grid).high;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Interval cell = grid.cells[i];
      const double width = cell.high - cell.low;
      EXPECT_TRUE(cell.holds(b[i])) << "Flax's " << where << " element " << i;
      const bool is_outside = !cell.holds(a[i]);
      outside += is_outside;
      outside_params += is_outside && kind == Kind::param;
      differences += a[i] != b[i];
      if (width > 0) largest_share = std::max(largest_share, std::fabs(a[i] - b[i]) / width);
      if (kind != Kind::passing && largest > 0) {
        widths.back() = std::max(widths.back(), width / largest);
      }
    }
  }
};

struct TrainRun {
  std::string name;
  Model grids;
  Optimizer optimizer_grids;
  nn::DotGeneralCls product;
  optim::GradientTransformation tx;
};

Variable loss_of(const TrainRun& run, const Variables& v, const Tensor& x, const Tensor& target) {
  const nn::Scope scope = nn::Scope::apply(v);
  if (run.name.starts_with("dense")) {
    const nn::Dense layer{.features = 32, .dot_general_cls = run.product};
    return sum(layer(scope, x) * Variable(target));
  }
  const nn::Dense layer{.features = 16, .dot_general_cls = run.product};
  const Variable hidden = relu(layer(scope.named("first"), x));
  const Variable error = layer(scope.named("second"), hidden) - Variable(target);
  return mean(error * error);
}

// The state that Flax's run began with: scales 1, histories 0.
Variables initial_variables(const TrainRun& run, const FlaxGolden& golden) {
  Variables variables;
  for (const auto& [path, value] : rows(golden.variables(run.name + ".owg"), 0)) {
    variables.set(std::string(kOverwriteWithGradient) + "/" + path,
                  Tensor::full(DType::f32, value.shape(), path.ends_with("scale") ? 1 : 0));
  }
  return variables.merged(rows(golden.variables(run.name + ".before"), 0));
}

Agreement agreement_of(TrainRun run, Fp8Semantics semantics) {
  const FlaxGolden golden("train");
  const bool is_dense = run.name.starts_with("dense");
  const Variables theirs_before = golden.variables(run.name + ".before");
  const Variables theirs_grads = golden.variables(run.name + ".grads");
  const Variables theirs_state = golden.variables(run.name + ".owg");
  const Variables theirs_after = golden.variables(run.name + ".after");
  TrainState state = TrainState::create(initial_variables(run, golden), run.tx);
  Grids params;
  for (const auto& [path, value] : state.variables.collection(kParams)) {
    params[path.substr(path.find('/') + 1)] = grid_of(value.value());
  }
  Agreement agreement;
  const auto compare_params = [&](const Variables& theirs, const std::string& when) {
    for (const auto& [path, grid] : params) {
      agreement.compare(state.variables.value("params/" + path), theirs.value("params/" + path),
                        grid, Kind::param, when + path);
    }
  };
  for (std::size_t t = 0; t < 20; ++t) {
    const std::string when = run.name + " step " + std::to_string(t) + " ";
    const Tensor x = row(golden.at(run.name + ".x"), t);
    const Tensor target = row(golden.at(run.name + (is_dense ? ".g" : ".target")), t);
    agreement.widths.push_back(0);
    compare_params(rows(theirs_before, t), when);
    const ValueAndGrad ours = value_and_grad(
        [&](const Variables& v) { return loss_of(run, v, x, target); }, semantics)(state.variables);
    state = state.apply_gradients(ours.grads);
    const StepGrids step = run.grids(params, grid_of(x), grid_of(target));
    agreement.in_doubt.push_back(step.in_doubt);
    agreement.compare(ours.value, row(golden.at(run.name + ".loss"), t), {1, 1, {step.loss}},
                      Kind::passing, when + "loss");
    for (const auto& [path, grid] : step.grads) {
      agreement.compare(ours.grads.value("params/" + path), row(theirs_grads.value(path), t), grid,
                        Kind::passing, when + "gradient " + path);
    }
    for (const auto& [path, grid] : step.state) {
      agreement.compare(state.variables.value(std::string(kOverwriteWithGradient) + "/" + path),
                        row(theirs_state.value(path), t), grid, Kind::state, when + path);
    }
    run.optimizer_grids(params, step.grads);
  }
  compare_params(theirs_after, run.name + " after ");
  return agreement;
}

constexpr Pair kOcpPair{fp8::kOcp, false}, kNanooPair{fp8::kNanoo, true};
constexpr const char* kOp = "Fp8DirectDotGeneralOp_0";

TrainRun dense_with_adam(bool is_nanoo, Fp8Semantics semantics) {
  const std::string op = is_nanoo ? "NANOOFp8DotGeneralOp_0" : kOp;
  return {is_nanoo ? "dense_adam.nanoo" : "dense_adam.ocp",
          weighted_dense(is_nanoo ? kNanooPair : kOcpPair, 16, op), adam_grids(0.01),
          is_nanoo ? nn::DotGeneralCls(nn::NANOOFp8DotGeneralOp{16, semantics})
                   : nn::DotGeneralCls(nn::Fp8DotGeneral{16, fp8::kOcp, semantics}),
          optim::adam({.learning_rate = 0.01})};
}

TrainRun mlp_with_sgd(Fp8Semantics semantics) {
  return {"mlp_sgd", squared_mlp(kOcpPair, 8, kOp), sgd_with_momentum(0.1, 0.9),
          nn::Fp8DotGeneral{8, fp8::kOcp, semantics},
          optim::sgd({.learning_rate = 0.1, .momentum = 0.9})};
}

TrainRun mlp_with_adam(Fp8Semantics semantics) {
  return {"mlp", squared_mlp(kOcpPair, 8, kOp), adam_grids(0.01),
          nn::Fp8DotGeneral{8, fp8::kOcp, semantics}, optim::adam({.learning_rate = 0.01})};
}

constexpr Fp8Semantics kBoth[] = {kExact, Fp8Semantics::guarded};

// Neighbouring codes of e4m3 differ by this, relative to the larger, or by more.
constexpr double kCodeStep = 1.0 / 16;
// Where next to no codes are in doubt; a fault of one code is 60 times as large.
constexpr double kNarrow = 1e-3;

// All within the intervals; and these narrow, and then still narrower than a step of codes, for so
// many steps.
void expect_agreement(const TrainRun& run, Fp8Semantics semantics, std::size_t narrow_steps = 20,
                      std::size_t telling_steps = 20) {
  SCOPED_TRACE(run.name);
  const Agreement agreement = agreement_of(run, semantics);
  EXPECT_EQ(agreement.outside, 0u);
  EXPECT_GT(agreement.differences, 0u);  // two runs, not one
  ASSERT_EQ(agreement.widths.size(), 20u);
  for (std::size_t t = 0; t < telling_steps; ++t) {
    EXPECT_LT(agreement.widths[t], t < narrow_steps ? kNarrow : kCodeStep) << "step " << t;
  }
  const std::string of_run = fmt::format("{}_{}_", run.name, static_cast<int>(semantics));
  ::testing::Test::RecordProperty(of_run + "widths",
                                  fmt::format("{:.1e}", fmt::join(agreement.widths, " ")));
  ::testing::Test::RecordProperty(of_run + "in_doubt",
                                  fmt::format("{}", fmt::join(agreement.in_doubt, " ")));
  ::testing::Test::RecordProperty(of_run + "largest_share",
                                  fmt::format("{:.3f}", agreement.largest_share));
  ::testing::Test::RecordProperty(of_run + "differences", fmt::format("{}", agreement.differences));
}

TEST(FlaxFreeRun, DenseWithAdam) {
  for (const Fp8Semantics semantics : kBoth) {
    for (const bool is_nanoo : {false, true}) {
      expect_agreement(dense_with_adam(is_nanoo, semantics), semantics);
    }
  }
}

TEST(FlaxFreeRun, MlpWithSgd) {
  for (const Fp8Semantics semantics : kBoth) {
    expect_agreement(mlp_with_sgd(semantics), semantics);
  }
}

// All 20 steps lie inside. One code is in doubt in the first four, and the widths are those of
// Adam's corrections; in the fifth there are seven, which make each other more: by its end every
// second code of a step. As the intervals follow from Flax's start alone, how far they tell a code
// from its neighbour is no tolerance of ours: it is the 15 steps until a fifth of the codes is in
// doubt.
TEST(FlaxFreeRun, MlpWithAdam) {
  for (const Fp8Semantics semantics : kBoth) {
    expect_agreement(mlp_with_adam(semantics), semantics, 5, 15);
  }
}

// Runs with one fault each.
TEST(FlaxFreeRun, FaultsLeaveTheIntervals) {
  TrainRun rate = mlp_with_sgd(kExact), gradient = rate;
  rate.tx = optim::sgd({.learning_rate = 0.1001, .momentum = 0.9});
  gradient.product = nn::Fp8DotGeneral{8, {.e5m2 = DType::f8_e4m3}, kExact};
  TrainRun decay = mlp_with_adam(kExact);
  decay.tx = optim::adam({.learning_rate = 0.01, .b2 = 0.998});
  // The state is that of nanoo's operator: formats of OCP in it.
  TrainRun formats = dense_with_adam(true, kExact);
  formats.product = [](const nn::Scope& scope, const Variable& x, const Variable& kernel,
                       const DotDimensionNumbers& dims) {
    return nn::QdqDotGeneral{16, DType::f8_e4m3, DType::f8_e5m2, kExact}.run(
        scope.child("NANOOFp8DotGeneralOp"), x, kernel, dims);
  };
  for (const TrainRun& run : {rate, gradient, decay, formats}) {
    SCOPED_TRACE(run.name);
    EXPECT_GT(agreement_of(run, kExact).outside_params, 0u);
  }
}

}  // namespace
}  // namespace octavo::testing
