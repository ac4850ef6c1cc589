#include "octavo/optim/optimizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "octavo/autograd/autograd_testing.h"

namespace octavo::optim {
namespace {

using testing::refusal;

Variables one(const char* path, std::initializer_list<float> values, DType dtype = DType::f32) {
  return {{path, Tensor::from(values, {values.size()}, dtype)}};
}

std::vector<float> values(const Variables& variables, const char* path) {
  return variables.value(path).to_floats();
}

// Parameters after `steps` steps of the gradient 2 * param.
Variables descend(const GradientTransformation& tx, Variables params, int steps) {
  Variables state = tx.init(params);
  for (int i = 0; i < steps; ++i) {
    const Variables grads = map_variables(params, [](const std::string&, const Variable& p) {
      std::vector<float> g = p.value().to_floats();
      for (float& x : g) x *= 2;
      return Variable(Tensor::from(g, p.shape()));
    });
    auto [updates, next] = tx.update(grads, state, params);
    params = apply_updates(params, updates);
    state = std::move(next);
  }
  return params;
}

TEST(Schedules, FollowTheirFormulas) {
  const Schedule linear = linear_schedule(1, 0.5, 10);
  EXPECT_EQ(linear(0), 1);
  EXPECT_EQ(linear(5), 0.75);
  EXPECT_EQ(linear(100), 0.5);
  const Schedule cosine = cosine_decay_schedule(2, 4, 0.1);
  EXPECT_EQ(cosine(0), 2);
  EXPECT_DOUBLE_EQ(cosine(1), 2 * (0.9 * (1 + std::cos(std::numbers::pi / 4)) / 2 + 0.1));
  EXPECT_DOUBLE_EQ(cosine(9), 0.2);
  const Schedule warm = warmup_cosine_decay_schedule(0, 1, 10, 110, 0.2);
  EXPECT_EQ(warm(0), 0);
  EXPECT_EQ(warm(5), 0.5);
  EXPECT_EQ(warm(10), 1);
  EXPECT_DOUBLE_EQ(warm(60), 0.6);
  EXPECT_DOUBLE_EQ(warm(1000), 0.2);
  EXPECT_THROW(linear_schedule(0, 1, 0), ContractError);
  EXPECT_THROW(warmup_cosine_decay_schedule(0, 1, 10, 10), ContractError);
}

TEST(Sgd, StepsAgainstTheGradient) {
  EXPECT_THAT(
      values(descend(sgd({.learning_rate = 0.25}), one("params/w", {4, -8}), 2), "params/w"),
      ::testing::ElementsAre(1, -2));
  // trace: 8, then 4 + 0.5 * 8 = 8
  const auto heavy = sgd({.learning_rate = 0.25, .momentum = 0.5});
  EXPECT_THAT(values(descend(heavy, one("params/w", {4}), 2), "params/w"),
              ::testing::ElementsAre(0));
  // 8 + 4 = 12: 4 - 3 = 1; trace 2 + 4 = 6, 2 + 3 = 5: 1 - 1.25
  const auto nesterov = sgd({.learning_rate = 0.25, .momentum = 0.5, .nesterov = true});
  EXPECT_THAT(values(descend(nesterov, one("params/w", {4}), 2), "params/w"),
              ::testing::ElementsAre(-0.25f));
}

TEST(Adam, FirstStepIsTheSignTimesTheRate) {
  const Variables params = one("params/a/kernel", {3, -100, 0});
  const auto tx = adam({.learning_rate = 0.5, .eps = 0x1p-40});
  const Variables state = tx.init(params);
  std::vector<std::string> names;
  for (const auto& [path, value] : state) names.push_back(path);
  EXPECT_THAT(names, ::testing::ElementsAre("0/count", "0/mu/a/kernel", "0/nu/a/kernel"));
  const auto [updates, next] = tx.update(one("params/a/kernel", {7, -1e-3f, 0}), state, params);
  const std::vector<float> steps = values(updates, "params/a/kernel");
  // m / sqrt(n) is 1 but for 7 roundings: 2 of (1 - b1) g / (1 - b1), 3 of (1 - b2) g^2 / (1 - b2),
  // which the root halves, its own, that of eps and the quotient's; and but for eps / |g|.
  constexpr double kRounding = 7 * 0x1p-24 / (1 - 7 * 0x1p-24);
  EXPECT_NEAR(steps[0], -0.5, 0.5 * (kRounding + 0x1p-40 / 7));
  EXPECT_NEAR(steps[1], 0.5, 0.5 * (kRounding + 0x1p-40 / 1e-3));
  EXPECT_EQ(steps[2], 0);
  EXPECT_EQ(next.value("0/count").item(), 1);
}

TEST(AdamW, DecaysThoseInTheMaskAlone) {
  const Variables params{{"params/kernel", Tensor::from({2}, {1})},
                         {"params/bias", Tensor::from({2}, {1})}};
  const Variables grads{{"params/kernel", Tensor::from({0}, {1})},
                        {"params/bias", Tensor::from({0}, {1})}};
  const auto tx =
      adamw({.learning_rate = 0.5, .weight_decay = 0.25, .mask = [](std::string_view path) {
               return path.ends_with("kernel");
             }});
  const Variables updates = tx.update(grads, tx.init(params), params).updates;
  EXPECT_EQ(updates.value("params/kernel").item(), -0.25);
  EXPECT_EQ(updates.value("params/bias").item(), 0);
}

TEST(ClipByGlobalNorm, LeavesFp8StateAlone) {
  Variables grads{{"params/a", Tensor::from({3}, {1})}, {"params/b", Tensor::from({4}, {1})}};
  const std::string state = "_overwrite_with_gradient/input_scale";
  grads.set(state, Tensor::from({1000}, {1}));
  EXPECT_EQ(global_norm(grads), 5.0f);
  const Variables clipped = clip_by_global_norm(2.5).update(grads, {}, {}).updates;
  EXPECT_EQ(clipped.value("params/a").item(), 1.5);
  EXPECT_EQ(clipped.value("params/b").item(), 2);
  EXPECT_EQ(clipped.value(state).item(), 1000);
  const Variables below = clip_by_global_norm(6).update(grads, {}, {}).updates;
  EXPECT_EQ(below.value("params/a").item(), 3);
  EXPECT_EQ(below.value(state).item(), 1000);
}

TEST(Accumulate, SumsParamsAndTakesTheLargestState) {
  const auto grads = [](float param, float amax) {
    return Variables{{"params/w", Tensor::from({param}, {1})},
                     {"_overwrite_with_gradient/h", Tensor::from({amax, 1}, {2})}};
  };
  const Variables sum = accumulate(accumulate(grads(1, 3), grads(2, 7)), grads(3, 5));
  EXPECT_EQ(sum.value("params/w").item(), 6);
  EXPECT_THAT(values(sum, "_overwrite_with_gradient/h"), ::testing::ElementsAre(7, 1));
  const Variables mean = divide(sum, 3);
  EXPECT_EQ(mean.value("params/w").item(), 2);
  EXPECT_THAT(values(mean, "_overwrite_with_gradient/h"), ::testing::ElementsAre(7, 1));
  EXPECT_EQ(refusal([&] { divide(sum, 0); }), "divide: given 0 microbatches, expected 1 or more");
}

// A layer that one microbatch alone ran.
TEST(Accumulate, TakesWhatOneOfThemHas) {
  const Variables a{{"params/a", Tensor::from({1}, {1})},
                    {"_overwrite_with_gradient/a", Tensor::from({2}, {1})}};
  const Variables b{{"params/a", Tensor::from({4}, {1})},
                    {"params/b", Tensor::from({8}, {1})},
                    {"_overwrite_with_gradient/b", Tensor::from({16}, {1})}};
  for (const Variables& sum : {accumulate(a, b), accumulate(b, a)}) {
    EXPECT_EQ(sum.size(), 4u);
    EXPECT_EQ(sum.value("params/a").item(), 5);
    EXPECT_EQ(sum.value("params/b").item(), 8);
    EXPECT_EQ(sum.value("_overwrite_with_gradient/a").item(), 2);
    EXPECT_EQ(sum.value("_overwrite_with_gradient/b").item(), 16);
  }
}

// A state that was restored into another model must not be read past its end.
TEST(Optimizers, RefuseShapesThatDiffer) {
  const Variables params = one("params/w", {1, 2, 3}), narrow = one("params/w", {1, 2});
  const std::string shapes = "given shape [2], expected [3]";
  EXPECT_EQ(refusal([&] { apply_updates(params, narrow); }), "optimizer: params/w: " + shapes);
  EXPECT_EQ(refusal([&] { accumulate(params, narrow); }),
            "accumulate: given shapes [3] and [2], expected the same");
  const auto step = [&](const GradientTransformation& tx, const Variables& initial) {
    return refusal([&] { tx.update(params, tx.init(initial), initial); });
  };
  EXPECT_EQ(step(sgd({.learning_rate = 1, .momentum = 0.5}), narrow),
            "optimizer: trace/w: " + shapes);
  EXPECT_EQ(step(adam({.learning_rate = 1}), narrow), "optimizer: mu/w: " + shapes);
  EXPECT_EQ(step(add_decayed_weights(0.1), narrow), "optimizer: params/w: " + shapes);
  EXPECT_EQ(step(with_master_weights(sgd({.learning_rate = 1})), narrow),
            "optimizer: params/w: given shape [3], expected [2]");
  EXPECT_EQ(step(adamw({.learning_rate = 1}), params), "");
}

TEST(Optimizers, RefuseAStateOfAnotherShape) {
  const Variables params = one("params/w", {1, 2, 3}), narrow = one("params/w", {1, 2});
  const auto step = [](const GradientTransformation& tx, const Variables& grads,
                       const Variables& state, const Variables& variables) {
    return refusal([&] { tx.update(grads, state, variables); });
  };
  // Gradients and masters alike, the parameter longer.
  const auto masters = with_master_weights(sgd({.learning_rate = 1}));
  EXPECT_EQ(step(masters, narrow, masters.init(narrow), params),
            "optimizer: params/w: given shape [2], expected [3]");
  EXPECT_EQ(step(masters, {}, masters.init(params), narrow),
            "optimizer: params/w: given shape [3], expected [2]");
  // Counts are scalars.
  for (const GradientTransformation& tx :
       {adam({.learning_rate = 1}), sgd({.learning_rate = linear_schedule(1, 0, 2)})}) {
    Variables state = tx.init(params);
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}}) {
      state.set("0/count", Tensor::from_ids(std::vector<std::int32_t>(size), {size}));
      EXPECT_EQ(step(tx, params, state, params),
                fmt::format("optimizer: count: given shape [{}], expected []", size));
    }
  }
}

TEST(Freeze, WithoutAMaskIsOfAll) {
  const Variables grads{{"params/a", Tensor::from({3}, {1})}, {"params/b", Tensor::from({4}, {1})}};
  const Variables all = freeze({}).update(grads, {}, {}).updates;
  EXPECT_EQ(all.value("params/a").item(), 0);
  EXPECT_EQ(all.value("params/b").item(), 0);
  const auto is_a = [](std::string_view path) { return path == "params/a"; };
  const Variables some = freeze(is_a).update(grads, {}, {}).updates;
  EXPECT_EQ(some.value("params/a").item(), 0);
  EXPECT_EQ(some.value("params/b").item(), 4);
}

// Steps in which one parameter has no gradient: its moments are what they were.
TEST(Optimizers, KeepTheStateOfParametersWithoutGradient) {
  const Variables params{{"params/a", Tensor::from({1}, {1})},
                         {"params/b", Tensor::from({2}, {1})}};
  const Variables all{{"params/a", Tensor::from({3}, {1})}, {"params/b", Tensor::from({4}, {1})}};
  const std::pair<GradientTransformation, std::vector<std::string>> cases[] = {
      {sgd({.learning_rate = 0.5, .momentum = 0.5}), {"0/trace/"}},
      {adam({.learning_rate = 0.5}), {"0/mu/", "0/nu/"}},
      {adamw({.learning_rate = 0.5}), {"0/mu/", "0/nu/"}},
      {with_master_weights(adam({.learning_rate = 0.5})), {"master/", "0/mu/", "0/nu/"}}};
  for (const auto& [tx, moments] : cases) {
    const Variables first = tx.update(all, tx.init(params), params).state;
    const Updates second = tx.update(one("params/a", {3}), first, params);
    ASSERT_EQ(second.state.size(), first.size());
    for (const std::string& moment : moments) {
      EXPECT_NE(second.state.value(moment + "a").item(), first.value(moment + "a").item())
          << moment;
      EXPECT_EQ(second.state.value(moment + "b").item(), first.value(moment + "b").item())
          << moment;
    }
    EXPECT_EQ(tx.update(all, second.state, params).state.size(), first.size());
  }
}

TEST(MasterWeights, KeepWhatBf16Loses) {
  // A step of 2^-10 is below half of bf16's spacing at 1: without copies nothing would ever move.
  const auto step = [](const GradientTransformation& tx) {
    Variables params = one("params/w", {1}, DType::bf16);
    Variables state = tx.init(params);
    for (int i = 0; i < 16; ++i) {
      auto [updates, next] = tx.update(one("params/w", {-0x1p-10f}), state, params);
      params = apply_updates(params, updates);
      state = std::move(next);
    }
    return std::pair(params, state);
  };
  EXPECT_EQ(step(sgd({.learning_rate = 1.0})).first.value("params/w").item(), 1);
  const auto [params, state] = step(with_master_weights(sgd({.learning_rate = 1.0})));
  EXPECT_EQ(params.value("params/w").item(), 1 + 0x1p-6);
  EXPECT_EQ(params.value("params/w").dtype(), DType::bf16);
  EXPECT_EQ(state.value("master/w").item(), 1 + 0x1p-6);
}

}  // namespace
}  // namespace octavo::optim
