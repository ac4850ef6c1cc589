// FP8 inside layers: the state of Flax's modules and its recurrences, what runs on FP8 kernels, and
// what must leave the state alone. Inputs are those of Flax's tests, from the same keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "octavo/autograd/memory_testing.h"
#include "octavo/base/error.h"
#include "octavo/formats/traits.h"
#include "octavo/nn/dense.h"
#include "octavo/nn/dense_general.h"
#include "octavo/nn/layers_testing.h"

namespace octavo::nn {
namespace {

using Shapes = std::map<std::string, Shape>;

struct Recipe {
  const char* name;
  DotGeneralCls cls;
  const char* module;
  fp8::Fp8Types types;
};

std::vector<Recipe> recipes() {
  return {
      {"OCP", Fp8DotGeneral{}, "Fp8DirectDotGeneralOp_0/", fp8::kOcp},
      {"NANOO", NANOOFp8DotGeneralOp{}, "NANOOFp8DotGeneralOp_0/", fp8::kNanoo},
      {"FNUZ on the direct path", Fp8DotGeneral{.types = fp8::kNanoo}, "Fp8DirectDotGeneralOp_0/",
       fp8::kNanoo},
  };
}

Variables state_of(const Variables& variables) {
  return variables.collection(kOverwriteWithGradient);
}

double state_value(const Variables& state, const std::string& module, const std::string& name,
                   std::size_t index = 0) {
  return doubles(state.value(std::string(kOverwriteWithGradient) + "/" + module + name))[index];
}

bool same_variables(const Variables& a, const Variables& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && same_bits(x.second.value(), y.second.value());
  });
}

TEST(Fp8DotGeneralInjection, VariablesAreFlaxs) {
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    const DenseGeneral layer{.features = {64}, .dot_general_cls = recipe.cls};
    const Variables variables = layer.init(Rng(0), Tensor::ones(DType::f32, {16, 32}));
    Shapes expected = fp8_shapes(recipe.module);
    expected["params/kernel"] = {32, 64};
    expected["params/bias"] = {64};
    EXPECT_EQ(shapes_of(variables), expected);
    for (const auto& [path, variable] : state_of(variables)) {
      EXPECT_EQ(variable.dtype(), DType::f32);
      for (const double value : doubles(variable.value())) {
        EXPECT_EQ(value, path.ends_with("scale") ? 1 : 0) << path;
      }
    }
  }
}

// Flax's test at its tolerances, that of d x at twice the largest error of other random numbers.
TEST(Fp8DotGeneralInjection, FirstStepIsNearThePlainOne) {
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    const std::vector<Rng> keys = Rng(123).split(2);
    const Tensor x = representable(uniform(keys[1], {16, 32}), recipe.types.e4m3),
                 dy = representable(uniform(keys[1], {16, 64}), recipe.types.e5m2);
    DenseGeneral layer{.features = {64}};
    const auto run = [&](const DotGeneralCls& cls) {
      layer.dot_general_cls = cls;
      Variables variables = layer.init(keys[0], x);
      variables.set(kX, x);
      const auto loss = [&](const Variables& v) {
        return mean(layer.apply(v, v.at(kX)) * Variable(dy));
      };
      return value_and_grad_at(loss, variables);
    };
    const ValueAndGrad got = run(recipe.cls), expected = run(PlainDotGeneral{});
    EXPECT_LE(std::fabs(got.value.item() - expected.value.item()), 1e-2);
    expect_close(got.grads.value("params/kernel"), expected.grads.value("params/kernel"), 0, 1e-4);
    expect_close(got.grads.value(kX), expected.grads.value(kX), 0, 2e-4);
    EXPECT_NE(got.value.item(), expected.value.item()) << "nothing was quantized";
  }
}

// Newest in front, the others as they were pushed, from the end: spec of the ring.
class Recurrence {
 public:
  explicit Recurrence(double fp8_max) : max_(static_cast<float>(fp8_max)), history_(1024) {}

  void push(const Tensor& x) {
    const float amax = *std::ranges::max_element(history_);
    if (amax > 0) scale_ = 1.0f / (max_ / amax);
    float newest = 0;
    for (const float value : x.to_floats()) newest = std::max(newest, std::fabs(value));
    std::ranges::rotate(history_, history_.begin() + 1);
    history_[0] = newest;
  }
  void expect(const Variables& state, const std::string& module, const std::string& tensor) const {
    const std::string prefix = std::string(kOverwriteWithGradient) + "/" + module + tensor;
    EXPECT_TRUE(same_bits(state.value(prefix + "_amax_history"), Tensor::from(history_, {1024})))
        << tensor;
    EXPECT_TRUE(same_bits(state.value(prefix + "_scale"), Tensor::from({scale_}, {1}))) << tensor;
  }

 private:
  float max_, scale_ = 1;
  std::vector<float> history_;
};

TEST(Fp8TrainState, EveryStepFollowsTheRecurrences) {
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    const std::vector<Rng> keys = Rng(123).split(3);
    const DenseGeneral layer{.features = {32}, .dot_general_cls = recipe.cls};
    Variables variables = layer.init(keys[0], uniform(keys[1], {16, 16}));
    Recurrence of_x(fp8::get_fp8_max(recipe.types.e4m3)),
        of_kernel = of_x, of_grad(fp8::get_fp8_max(recipe.types.e5m2));
    for (std::uint32_t step = 0; step < 5; ++step) {
      const Rng key = keys[2].fold_in(step);
      const Tensor x = normal(key, {16, 16}), g = normal(key, {16, 32});
      of_x.push(x);
      of_kernel.push(variables.value("params/kernel"));
      of_grad.push(g);
      const auto loss = [&](const Variables& v) { return dot_with(layer.apply(v, x), g); };
      const Variables grads = value_and_grad_at(loss, variables).grads;
      of_x.expect(grads, recipe.module, "input");
      of_kernel.expect(grads, recipe.module, "kernel");
      of_grad.expect(grads, recipe.module, "output_grad");
      variables = map_variables(variables, [&](const std::string& path, const Variable& variable) {
        return collection_of(path) == kParams ? variable - scale(grads.at(path), 0.1)
                                              : grads.at(path);
      });
    }
  }
}

// Three uses of one scale and history in a step.
class Fp8MetaDtype : public testing::TestWithParam<DType> {
 protected:
  // x -> in_qdq three times.
  static Variable chain(const Variables& v, bool is_cast) {
    const auto meta = [&](const char* path) {
      return is_cast ? as_fp32_max_grad(v.at(path)) : v.at(path);
    };
    Variable x = v.at(kX);
    const Variable of_scale = meta(kScale), history = meta(kHistory);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    for (int use = 0; use < 3; ++use) {
      x = fp8::in_qdq(DType::f32, GetParam(), x, of_scale, history);
    }
#pragma GCC diagnostic pop
    return sum(x);
  }

  static constexpr const char* kScale = "_overwrite_with_gradient/scale";
  static constexpr const char* kHistory = "_overwrite_with_gradient/history";
};

TEST_P(Fp8MetaDtype, UsesAccumulateByMaximum) {
  const float max = fp8::get_fp8_max(GetParam());
  struct Step {
    float x;
    Tensor history;
    float scale, y;
  };
  const std::vector<Step> steps = {
      {2, Tensor::from({2, 0, 0}, {3}), 1, 2},
      {3, Tensor::from({3, 0, 2}, {3}), 1 / (max / 2), 2},
      {4, Tensor::from({4, 2, 3}, {3}), 1 / (max / 3), 3},
  };
  // Guarded it is the collection that accumulates so; as Flax does, what is cast.
  for (const auto& [semantics, is_cast] :
       {std::pair(Fp8Semantics::guarded, false), std::pair(Fp8Semantics::flax_exact, true)}) {
    Variables variables = {{kScale, Tensor::ones(DType::f32, {1})},
                           {kHistory, Tensor::zeros(DType::f32, {3})}};
    for (const Step& step : steps) {
      variables.set(kX, Tensor::from({step.x}, {1}));
      const ValueAndGrad got = value_and_grad_at(
          [cast = is_cast](const Variables& v) { return chain(v, cast); }, variables, semantics);
      EXPECT_EQ(got.value.item(), step.y);
      EXPECT_EQ(got.grads.value(kX).item(), 1);
      EXPECT_TRUE(same_bits(got.grads.value(kHistory), step.history));
      EXPECT_TRUE(same_bits(got.grads.value(kScale), Tensor::from({step.scale}, {1})));
      variables = got.grads;
    }
  }
}

TEST_P(Fp8MetaDtype, UncastUsesAddUpInFlax) {
  const Variables variables = {{kX, Tensor::from({3}, {1})},
                               {kScale, Tensor::ones(DType::f32, {1})},
                               {kHistory, Tensor::from({2, 0, 0}, {3})}};
  const Variables grads = value_and_grad_at([](const Variables& v) { return chain(v, false); },
                                            variables, Fp8Semantics::flax_exact)
                              .grads;
  EXPECT_TRUE(same_bits(grads.value(kHistory), Tensor::from({7, 0, 6}, {3})));
}

INSTANTIATE_TEST_SUITE_P(Formats, Fp8MetaDtype,
                         testing::Values(DType::f8_e4m3, DType::f8_e4m3fnuz));

std::size_t fp8_runs(const ops::KernelLog& log) {
  return static_cast<std::size_t>(std::ranges::count_if(log.runs(), [](const ops::KernelRun& run) {
    return bytes_per_element(run.a) == 1 || bytes_per_element(run.w) == 1;
  }));
}

// Forward, then both products of the backward pass, whichever operand is read as the weight.
TEST(KernelsOfALayer, Fp8ProductsForwardAndBackward) {
  for (const bool is_fp8 : {true, false}) {
    const Dense layer{
        .features = 64,
        .dot_general_cls = is_fp8 ? DotGeneralCls(Fp8DotGeneral{}) : PlainDotGeneral{}};
    Variables variables = layer.init(Rng(0), Tensor::ones(DType::f32, {16, 32}));
    variables.set(kX, normal(Rng(1), {16, 32}));
    std::size_t forward = 0;
    const ops::KernelLog log;
    value_and_grad_at(
        [&](const Variables& v) {
          const Variable y = layer.apply(v, v.at(kX));
          forward = log.runs().size();
          return sum(y * y);
        },
        variables);
    EXPECT_EQ(forward, 1u);
    EXPECT_EQ(log.runs().size(), 3u);
    EXPECT_EQ(fp8_runs(log), is_fp8 ? 3u : 0u);
    EXPECT_EQ(log.count(Format::e4m3fn, Format::e4m3fn), is_fp8 ? 1u : 0u);
    EXPECT_EQ(log.count(Format::e5m2, Format::e4m3fn) + log.count(Format::e4m3fn, Format::e5m2),
              is_fp8 ? 2u : 0u);
  }
}

TEST(KernelsOfALayer, FnuzOnTheDirectPath) {
  const Dense layer{.features = 8, .dot_general_cls = Fp8DotGeneral{.types = fp8::kNanoo}};
  const Tensor x = normal(Rng(1), {4, 16});
  const Variables variables = layer.init(Rng(0), x);
  const ops::KernelLog log;
  value_and_grad_at([&](const Variables& v) { return sum(layer.apply(v, x)); }, variables);
  EXPECT_EQ(log.count(Format::e4m3fnuz, Format::e4m3fnuz), 1u);
  EXPECT_EQ(
      log.count(Format::e5m2fnuz, Format::e4m3fnuz) + log.count(Format::e4m3fnuz, Format::e5m2fnuz),
      1u);  // x is a constant
}

TEST(KernelsOfALayer, TheQdqPathMultipliesInItsOwnType) {
  const Dense layer{.features = 8, .dot_general_cls = NANOOFp8DotGeneralOp{}};
  const Tensor x = normal(Rng(1), {4, 16});
  const Variables variables = layer.init(Rng(0), x);
  const ops::KernelLog log;
  value_and_grad_at([&](const Variables& v) { return sum(layer.apply(v, x)); }, variables);
  EXPECT_EQ(fp8_runs(log), 0u);
}

// Every row, and every block of the kernel, has the largest code: all scales of all recipes are 1.
TEST(Fp8Recipes, AreExactOnWhatScaleOneHolds) {
  const auto with_largest = [](Tensor from, std::size_t every) {
    std::vector<float> values = from.to_floats();
    for (std::size_t i = 0; i < values.size(); i += every) values[i] = 448;
    return Tensor::from(values, from.shape());
  };
  const Tensor x = with_largest(integers({3, 128}, 1), 128);
  const Initializer kernel_init = [&](const Rng&, const Shape& shape, DType) {
    return with_largest(integers(shape, 2), 128 * 128);
  };
  Dense layer{.features = 128, .use_bias = false, .kernel_init = kernel_init};
  const Tensor expected = layer.apply(layer.init(Rng(0), x), x).value();
  for (const DotGeneralCls& cls :
       {DotGeneralCls(Fp8DotGeneral{}), DotGeneralCls(Fp8CurrentDotGeneral{}),
        DotGeneralCls(Fp8BlockDotGeneral{})}) {
    layer.dot_general_cls = cls;
    const Variables variables = layer.init(Rng(0), x);
    const ops::KernelLog log;
    EXPECT_TRUE(same_bits(layer.apply(variables, x).value(), expected));
    EXPECT_EQ(fp8_runs(log), 1u);
  }
  EXPECT_FALSE(layer.init(Rng(0), x).has_collection(kOverwriteWithGradient));  // of blocks
}

TEST(Fp8State, InferenceLeavesItAlone) {
  const Dense layer{.features = 8, .dot_general_cls = Fp8DotGeneral{.amax_history_length = 4}};
  const Tensor x = normal(Rng(1), {4, 16});
  Variables variables = layer.init(Rng(0), x);
  const auto step = [&](const Variables& from) {
    return value_and_grad_at([&](const Variables& v) { return sum(layer.apply(v, x)); }, from)
        .grads;
  };
  variables = variables.merged(state_of(step(variables)));
  const Variables before = variables;
  const Tensor y = layer.apply(variables, x).value();
  layer.apply(variables, scale(x, 100));
  EXPECT_TRUE(same_bits(layer.apply(variables, x).value(), y));
  EXPECT_TRUE(same_variables(variables, before));
  EXPECT_TRUE(same_variables(step(variables), step(before)));
}

struct Shared {
  Dense layer{.features = 16,
              .use_bias = false,
              .dot_general_cls = Fp8DotGeneral{.amax_history_length = 4}};

  Variable operator()(const Scope& scope, const Variable& x) const {
    const Variable y = layer(scope.named("shared"), x);
    return layer(scope.named("shared"), scale(x, 8)) + scale(y, 4);
  }
};

TEST(Fp8State, OfASharedLayerIsTheMaximumOfItsUses) {
  const Shared layer;
  const Tensor x = normal(Rng(1), {4, 16});
  const float amax = fp8::amax(x);
  const Variables variables = init(layer, Rng(0), x);
  EXPECT_EQ(variables.size(), 7u);  // one kernel, one state
  const auto loss = [&](const Variables& v) { return sum(apply(layer, v, x)); };
  const std::string module = "shared/Fp8DirectDotGeneralOp_0/";
  const Variables guarded = state_of(value_and_grad_at(loss, variables).grads);
  EXPECT_EQ(state_value(guarded, module, "input_amax_history"), 8 * amax);
  EXPECT_EQ(state_value(guarded, module, "output_grad_amax_history"), 4);
  EXPECT_EQ(state_value(guarded, module, "input_scale"), 1);
  const Variables added =
      state_of(value_and_grad_at(loss, variables, Fp8Semantics::flax_exact).grads);
  EXPECT_EQ(state_value(added, module, "input_amax_history"), 8 * amax + amax);
  EXPECT_EQ(state_value(added, module, "input_scale"), 2);
}

TEST(Fp8State, OfALayerThatDidNotRunIsNotAmongTheGradients) {
  const Dense layer{.features = 8, .dot_general_cls = Fp8DotGeneral{.amax_history_length = 4}};
  const Tensor x = normal(Rng(1), {4, 16});
  Variables variables = layer.init(Rng(0), x);
  const auto used = [&](const Variables& v) { return sum(layer.apply(v, x)); };
  variables = variables.merged(state_of(value_and_grad_at(used, variables).grads));
  const auto unused = [&](const Variables& v) { return sum(v.at("params/bias")); };
  EXPECT_TRUE(state_of(value_and_grad_at(unused, variables).grads).empty());
  const Variables lost = value_and_grad_at(unused, variables, Fp8Semantics::flax_exact).grads;
  EXPECT_EQ(state_value(lost, "Fp8DirectDotGeneralOp_0/", "input_scale"), 0);
}

// A frozen layer, and the first one, whose input needs no gradient: their histories go on.
TEST(Fp8State, OfAFrozenFirstLayerAdvances) {
  const Dense layer{.features = 8, .dot_general_cls = Fp8DotGeneral{.amax_history_length = 4}};
  const Tensor x = normal(Rng(1), {4, 16});
  const Variables variables = layer.init(Rng(0), x);
  const auto loss = [&](const Variables& v) {
    Variables frozen = v;
    for (const auto& [path, variable] : v.collection(kParams)) {
      frozen.set(path, stop_gradient(variable));
    }
    return sum(layer.apply(frozen, x));
  };
  const Variables state = state_of(value_and_grad_at(loss, variables).grads);
  const std::string module = "Fp8DirectDotGeneralOp_0/";
  EXPECT_EQ(state_value(state, module, "input_amax_history"), fp8::amax(x));
  EXPECT_EQ(state_value(state, module, "kernel_amax_history"),
            fp8::amax(variables.value("params/kernel")));
  EXPECT_EQ(state_value(state, module, "output_grad_amax_history"), 1);
}

// A kernel in bf16: x is cast to it, the result has its type, rounded once.
TEST(Fp8Layers, KernelsInBf16) {
  const Dense layer{.features = 8,
                    .use_bias = false,
                    .dtype = DType::bf16,
                    .param_dtype = DType::bf16,
                    .kernel_init = integer_init(1),
                    .dot_general_cls = Fp8DotGeneral{}};
  const Tensor x = integers({4, 300}, 2);
  Variables variables = layer.init(Rng(0), x);
  variables.set(kX, x);
  EXPECT_EQ(variables.at("params/kernel").dtype(), DType::bf16);
  const Variable y = layer.apply(variables, x);
  const Tensor exact = matmul(x, variables.value("params/kernel").astype(DType::f32)).value();
  EXPECT_TRUE(same_bits(y.value(), exact.astype(DType::bf16)));
  const Variables grads =
      value_and_grad_at([&](const Variables& v) { return sum(layer.apply(v, v.at(kX))); },
                        variables)
          .grads;
  EXPECT_EQ(grads.at("params/kernel").dtype(), DType::bf16);
  EXPECT_EQ(grads.at(kX).dtype(), DType::f32);
  EXPECT_EQ(grads.at("_overwrite_with_gradient/Fp8DirectDotGeneralOp_0/kernel_scale").dtype(),
            DType::f32);
}

TEST(Fp8Layers, KeepOneBytePerElementForTheBackwardPass) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's malloc does not say what it holds";
#endif
  constexpr std::size_t kRows = 2048, kWidth = 256, kLayers = 3;
  const Dense layer{.features = kWidth,
                    .bias_init = integer_init(1),
                    .dot_general_cls = Fp8DotGeneral{.amax_history_length = 4}};
  const Tensor x = normal(Rng(1), {kRows, kWidth});
  const Variables variables = layer.init(Rng(0), x);
  std::size_t kept = 0;
  const auto loss = [&](const Variables& v) {
    const std::size_t before = bytes_in_use();
    Variable y = x;
    for (std::size_t i = 0; i < kLayers; ++i) y = layer.apply(v, y);
    kept = bytes_in_use() - before;
    return sum(y);
  };
  value_and_grad_at(loss, variables);  // grows the buffers of threads
  value_and_grad_at(loss, variables);
  // Codes of each layer's input and of its kernel, and the last result. The input itself, the
  // product before the bias, and all else that has a byte for each of its elements is dropped.
  constexpr std::size_t kCodes = kRows * kWidth, kKernel = kWidth * kWidth;
  const std::size_t expected = kLayers * (kCodes + kKernel) + kCodes * sizeof(float);
  EXPECT_GE(kept, expected);
  EXPECT_LT(kept, expected + kCodes);
}

TEST(Fp8Layers, SayWhatStateIsMissing) {
  const Dense layer{.features = 8, .dot_general_cls = Fp8DotGeneral{.amax_history_length = 4}};
  const Tensor x = Tensor::ones(DType::f32, {2, 3});
  const Variables variables = layer.init(Rng(0), x);
  const auto message = [&](const Variables& given) -> std::string {
    try {
      layer.apply(given, x);
    } catch (const ContractError& error) {
      return error.what();
    }
    return "was not refused";
  };
  const std::string path = "_overwrite_with_gradient/Fp8DirectDotGeneralOp_0/";
  EXPECT_THAT(message(variables.without(kOverwriteWithGradient)),
              testing::AllOf(testing::HasSubstr(path), testing::HasSubstr("is not there at all")));
  Variables without_one;
  for (const auto& [name, variable] : variables) {
    if (name != path + "kernel_scale") without_one.set(name, variable);
  }
  EXPECT_THAT(message(without_one), testing::AllOf(testing::HasSubstr(path + "kernel_scale"),
                                                   testing::HasSubstr("lacks it")));
  Variables longer = variables;
  longer.set(path + "input_amax_history", Tensor::zeros(DType::f32, {5}));
  EXPECT_THAT(message(longer), testing::HasSubstr("input_amax_history [5], expected [4]"));
  EXPECT_THAT(message(variables.without(kParams)), testing::HasSubstr("params/kernel"));
}

}  // namespace
}  // namespace octavo::nn
