// The rules of FP8 operations: what each gives back, against the formulas that define it.
#include "octavo/autograd/fp8.h"

#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/fp8_testing.h"
#include "octavo/autograd/shape.h"
#include "octavo/base/ceil_div.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // in_qdq and out_qdq are tested too

namespace octavo::testing {
namespace {

using fp8::Fp8Meta;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const DotDimensionNumbers kMatmul = {{1}, {0}};

Tensor one(float value) { return Tensor::from({value}, {1}); }

// fl(1 / fl(largest / amax)).
float scale_of(float amax, float largest) { return 1.0f / (largest / amax); }

// Three chained uses of one meta, whose cotangents accumulate: x, scale and history after.
struct Chain {
  float y, dx;
  Tensor scale, history;
};

enum class Meta { fp32_max_grad, plain };

Chain chain(float x, const Tensor& scale, const Tensor& history, DType type, Meta meta,
            Fp8Semantics semantics) {
  const Variables variables = {{"params/x", Tensor::from({x}, {1})},
                               {"_overwrite_with_gradient/scale", scale},
                               {"_overwrite_with_gradient/history", history}};
  const auto f = [&](const Variables& v) {
    Variable s = v.at("_overwrite_with_gradient/scale");
    Variable h = v.at("_overwrite_with_gradient/history");
    if (meta == Meta::fp32_max_grad) {
      s = as_fp32_max_grad(s);
      h = as_fp32_max_grad(h);
    }
    Variable y = v.at("params/x");
    for (int i = 0; i < 3; ++i) y = fp8::in_qdq(DType::f32, type, y, s, h, semantics);
    return sum(y);
  };
  const ValueAndGrad result = value_and_grad(f, semantics)(variables);
  return {static_cast<float>(result.value.item()),
          static_cast<float>(result.grads.value("params/x").item()),
          result.grads.value("_overwrite_with_gradient/scale"),
          result.grads.value("_overwrite_with_gradient/history")};
}

TEST(MetaAccumulation, IsByMaximum) {
  for (const auto& [type, largest] :
       {std::pair(DType::f8_e4m3, 448.0f), std::pair(DType::f8_e4m3fnuz, 240.0f)}) {
    for (const auto semantics : {Fp8Semantics::guarded, Fp8Semantics::flax_exact}) {
      Chain c =
          chain(2, one(1), Tensor::zeros(DType::f32, {3}), type, Meta::fp32_max_grad, semantics);
      EXPECT_EQ(c.y, 2);
      EXPECT_EQ(c.dx, 1);
      expect_bits(c.history, Tensor::from({2, 0, 0}, {3}));
      expect_bits(c.scale, one(1));
      c = chain(3, c.scale, c.history, type, Meta::fp32_max_grad, semantics);
      // Saturated from the second use on: their amax is 2. The last alone would give [2, 0, 2].
      EXPECT_EQ(c.y, largest * scale_of(2, largest));
      EXPECT_EQ(c.dx, 1);
      expect_bits(c.history, Tensor::from({3, 0, 2}, {3}));
      expect_bits(c.scale, one(scale_of(2, largest)));
      c = chain(4, c.scale, c.history, type, Meta::fp32_max_grad, semantics);
      EXPECT_EQ(c.y, largest * scale_of(3, largest));
      EXPECT_EQ(c.dx, 1);
      expect_bits(c.history, Tensor::from({4, 2, 3}, {3}));
      expect_bits(c.scale, one(scale_of(3, largest)));
    }
  }
}

TEST(MetaAccumulation, OfPlainStateSumsAsInFlax) {
  const Tensor history = Tensor::from({2, 0, 0}, {3});
  const Chain exact =
      chain(3, one(1), history, DType::f8_e4m3, Meta::plain, Fp8Semantics::flax_exact);
  expect_bits(exact.history, Tensor::from({7, 0, 6}, {3}));
  const float s = scale_of(2, 448);
  expect_bits(exact.scale, one(s + s + s));
  // Guarded: by maximum all the same.
  const Chain guarded =
      chain(3, one(1), history, DType::f8_e4m3, Meta::plain, Fp8Semantics::guarded);
  expect_bits(guarded.history, Tensor::from({3, 0, 2}, {3}));
  expect_bits(guarded.scale, one(s));
}

TEST(MetaAccumulation, RefusesOneOfBoth) {
  const Variable x = one(1), scale = one(1), history = Tensor::zeros(DType::f32, {3});
  EXPECT_EQ(
      refusal([&] { fp8::in_q(DType::f32, DType::f8_e4m3, x, as_fp32_max_grad(scale), history); }),
      "in_q: given a scale and an amax history of which one is fp32_max_grad, expected both "
      "or none");
}

TEST(InQdq, PassesTheGradientThroughAlsoWhereItClips) {
  const Tensor x = Tensor::from({1.0625f, 1e9f, -1e9f, 0.001f}, {4});
  const Tensor g = Tensor::from({0.1f, 0.2f, 0.3f, -0.4f}, {4});
  const Tensor history = Tensor::from({0, 448, 0}, {3});
  const auto result = value_and_vjp(
      [](std::span<const Variable> in) {
        return fp8::in_qdq(DType::f32, DType::f8_e4m3, in[0], in[1], in[2]);
      },
      std::vector{x, one(2), history}, g);
  expect_bits(result.value, Tensor::from({1, 448, -448, 0.001953125f}, {4}));
  expect_bits(result.grads[0], g);
  expect_bits(result.grads[1], one(1));
  expect_bits(result.grads[2], Tensor::from({1e9f, 0, 0}, {3}));
}

TEST(OutQdq, QuantizesTheGradientWithItsNewScale) {
  const Tensor out = Tensor::from({0.1f, 1e9f}, {2});
  const Tensor g = Tensor::from({1.1f, 1e6f}, {2});
  const auto result = value_and_vjp(
      [](std::span<const Variable> in) {
        return fp8::out_qdq(DType::f32, DType::f8_e5m2, in[0], in[1], in[2]);
      },
      std::vector{out, one(1), Tensor::from({4, 0}, {2})}, g);
  expect_bits(result.value, out);
  const float s = scale_of(4, 57344);
  // 1.1 / s = 15769.6 is nearest to 16384; 1e6 / s is beyond the largest.
  expect_bits(result.grads[0], Tensor::from({16384 * s, 57344 * s}, {2}));
  expect_bits(result.grads[1], one(s));
  expect_bits(result.grads[2], Tensor::from({1e6f, 4}, {2}));
}

TEST(InQ, LetsNoGradientThrough) {
  const Tensor x = Tensor::from({1, -3}, {2});
  const auto result = value_and_vjp(
      [](std::span<const Variable> in) {
        const auto [q, scale] = fp8::in_q(DType::f32, DType::f8_e4m3, in[0], in[1], in[2]);
        return fp8::out_dq(DType::f32, scale, Tensor::ones(DType::f32, {1}), q);
      },
      std::vector{x, one(1), Tensor::from({7, 0}, {2})}, Tensor::ones(DType::f32, {2}));
  expect_bits(result.value, x);  // 1 / 64 is its scale
  expect_bits(result.grads[0], Tensor::zeros(DType::f32, {2}));
  expect_bits(result.grads[1], one(1.0f / 64));
  expect_bits(result.grads[2], Tensor::from({3, 7}, {2}));
}

TEST(OutDq, PassesTheGradientUnscaled) {
  const Tensor out = Tensor::from({1, -3}, {2});
  const Tensor g = Tensor::from({0.3f, 5}, {2});
  const auto result = value_and_vjp(
      [](std::span<const Variable> in) { return fp8::out_dq(DType::f32, in[0], in[1], in[2]); },
      std::vector{one(0.5f), one(4), out}, g);
  expect_bits(result.value, Tensor::from({2, -6}, {2}));
  expect_bits(result.grads[0], one(0));
  expect_bits(result.grads[1], one(0));
  expect_bits(result.grads[2], g);
  EXPECT_EQ(refusal([] { fp8::out_dq(DType::f32, one(1), one(1), Tensor::scalar(2)); }),
            "dequantize: given a scale [1] for [], expected one that broadcasts");
}

// in_q, a plain product of the codes, out_dq: the state moves, nothing reaches the operands.
TEST(GuidesRecipe, HasNoGradientForItsOperands) {
  std::mt19937 random(2);
  const Tensor lhs = integers(random, {3, 4}), rhs = integers(random, {4, 5});
  const Fp8Dot recipe = [](const Variable& l, const Variable& r, const fp8::Fp8DotMeta& meta) {
    const auto x = fp8::in_q(DType::f32, DType::f8_e4m3, l, meta.lhs_scale, meta.lhs_amax_history);
    const auto y = fp8::in_q(DType::f32, DType::f8_e4m3, r, meta.rhs_scale, meta.rhs_amax_history);
    const Variable twice = dot_general(x.q, y.q, kMatmul) + dot_general(x.q, y.q, kMatmul);
    return fp8::out_dq(DType::f32, x.scale, y.scale, twice);
  };
  const DotStep step = dot_step(recipe, lhs, rhs, integers(random, {3, 5}), MetaState());
  expect_bits(step.value, scale(ops::dot_general(lhs, rhs, kMatmul), 2).value());
  expect_bits(step.lhs, Tensor::zeros(DType::f32, {3, 4}));
  expect_bits(step.rhs, Tensor::zeros(DType::f32, {4, 5}));
  expect_bits(step.state.histories[0], Tensor::from({fp8::amax(lhs), 0, 0, 0}, {4}));
  expect_bits(step.state.histories[2], Tensor::zeros(DType::f32, {4}));
}

TEST(QuantizedDot, GivesTheProductOfCodesAndGradientsWithUsedScales) {
  std::mt19937 random(3);
  const Tensor lhs = integers(random, {3, 4}), rhs = integers(random, {4, 5});
  const Tensor g = integers(random, {3, 5});
  const Tensor q_lhs = lhs.astype(DType::f8_e4m3), q_rhs = rhs.astype(DType::f8_e4m3);
  const Tensor history = Tensor::from({0, 57344.0f / 8, 1}, {3});  // the new scale is 1 / 8
  const auto result = value_and_vjp(
      [&](std::span<const Variable> in) {
        return fp8::quantized_dot({in[0], in[2], in[3], in[1], in[4], in[5], in[6], in[7]},
                                  kMatmul);
      },
      std::vector{lhs, rhs, q_lhs, one(0.5f), q_rhs, one(3), one(9), history}, g);
  expect_bits(result.value, ops::dot_general(lhs, rhs, kMatmul));  // not scaled
  const Tensor of_lhs = ops::dot_general_transpose_lhs(g, lhs.shape(), rhs, kMatmul);
  const Tensor of_rhs = ops::dot_general_transpose_rhs(g, lhs, rhs.shape(), kMatmul);
  expect_bits(result.grads[0], scale(of_lhs, 3).value());
  expect_bits(result.grads[1], scale(of_rhs, 0.5).value());
  expect_bits(result.grads[3], one(0));
  expect_bits(result.grads[5], one(0));
  expect_bits(result.grads[6], one(1.0f / 8));
  expect_bits(result.grads[7], Tensor::from({fp8::amax(g), 1, 0}, {3}));
}

struct Dims {
  const char* detail;
  Shape lhs, rhs;
  DotDimensionNumbers numbers;
};

std::vector<Dims> dims_of_products() {
  return {
      {"matmul", {3, 4}, {4, 5}, kMatmul},
      {"leading axes", {2, 3, 4}, {4, 5}, {{2}, {0}}},
      {"both transposed", {4, 3}, {5, 4}, {{0}, {1}}},
      {"two contracted", {2, 3, 4}, {4, 3, 5}, {{1, 2}, {1, 0}}},
      {"two contracted, in the other order", {2, 3, 4}, {4, 3, 5}, {{2, 1}, {0, 1}}},
      {"batch axes inside", {3, 2, 5, 4}, {4, 6, 3, 2}, {{0, 3}, {2, 0}, {1}, {3}}},
      {"two batch axes, crossed", {2, 3, 4, 5}, {3, 2, 5, 6}, {{3}, {2}, {0, 1}, {1, 0}}},
      {"outer product", {2, 3}, {4, 5}, {{}, {}}},
  };
}

// Integers are their own codes at scale 1, so nothing is rounded.
TEST(Fp8ScaledDotGeneral, OfRepresentableValuesIsTheProductItself) {
  std::mt19937 random(4);
  for (const Dims& d : dims_of_products()) {
    SCOPED_TRACE(d.detail);
    const Tensor lhs = integers(random, d.lhs), rhs = integers(random, d.rhs);
    const Tensor value = ops::dot_general(lhs, rhs, d.numbers);
    const Tensor g = integers(random, value.shape());
    for (const auto& dot : {fused(d.numbers), composed(d.numbers), fused(d.numbers, fp8::kNanoo),
                            composed(d.numbers, fp8::kNanoo)}) {
      const DotStep step = dot_step(dot, lhs, rhs, g, MetaState());
      expect_bits(step.value, value);
      expect_bits(step.lhs, ops::dot_general_transpose_lhs(g, d.lhs, rhs, d.numbers));
      expect_bits(step.rhs, ops::dot_general_transpose_rhs(g, lhs, d.rhs, d.numbers));
    }
  }
}

// With powers of two as scales neither path rounds where the other does not.
TEST(Fp8ScaledDotGeneral, FusedAndComposedAreTheSameBitsAtScalesOfPowersOfTwo) {
  std::mt19937 random(5);
  for (const Dims& d : dims_of_products()) {
    SCOPED_TRACE(d.detail);
    for (const fp8::Fp8Types types : {fp8::kOcp, fp8::kNanoo}) {
      const float e4m3 = fp8::get_fp8_max(types.e4m3), e5m2 = fp8::get_fp8_max(types.e5m2);
      MetaState state;
      state.histories = {Tensor::from({e4m3 / 64, 0, 0, 0}, {4}),
                         Tensor::from({0, e4m3 / 1024, 0, 0}, {4}),
                         Tensor::from({0, 0, 0, e5m2 / 8192}, {4})};
      for (const DType type : {DType::f32, DType::bf16}) {
        const Tensor lhs = grid(random, d.lhs, type), rhs = grid(random, d.rhs, type);
        const Tensor g = grid(random, ops::dot_general(lhs, rhs, d.numbers).shape(), type);
        const DotStep a = dot_step(fused(d.numbers, types), lhs, rhs, g, state);
        const DotStep b = dot_step(composed(d.numbers, types), lhs, rhs, g, state);
        expect_bits(a.value, b.value);
        expect_bits(a.lhs, b.lhs);
        expect_bits(a.rhs, b.rhs);
        for (std::size_t i = 0; i < 3; ++i) {
          expect_bits(a.state.scales[i], b.state.scales[i]);
          expect_bits(a.state.histories[i], b.state.histories[i]);
        }
      }
    }
  }
}

void expect_near(const Tensor& got, const std::vector<double>& expected) {
  const std::vector<double> values = doubles(got);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    // The specification gives 7 digits.
    EXPECT_NEAR(values[i], expected[i], 1e-6 * std::fabs(expected[i])) << "element " << i;
  }
}

// The worked example: L = [[1, 2, 3], [-4, 0.5, 0]] and so on, three steps.
void expect_worked_steps(const Fp8Dot& dot) {
  const Tensor l = Tensor::from({1, 2, 3, -4, 0.5f, 0}, {2, 3});
  const Tensor r = Tensor::from({0.5f, -1, 0.25f, 2, 1.5f, -0.75f}, {3, 2});
  const Tensor g = Tensor::from({1, 0.5f, -2, 4}, {2, 2});
  DotStep step = dot_step(dot, l, r, g, MetaState());
  expect_bits(step.value, Tensor::from({5.5f, 0.75f, -1.875f, 5}, {2, 2}));
  expect_bits(step.lhs, Tensor::from({0, 1.25f, 1.125f, -5, 7.5f, -6}, {2, 3}));
  expect_bits(step.rhs, Tensor::from({9, -15.5f, 1, 3, 3, 1.5f}, {3, 2}));
  for (const Tensor& s : step.state.scales) expect_bits(s, one(1));
  expect_bits(step.state.histories[0], Tensor::from({4, 0, 0, 0}, {4}));
  expect_bits(step.state.histories[1], Tensor::from({2, 0, 0, 0}, {4}));
  expect_bits(step.state.histories[2], Tensor::from({4, 0, 0, 0}, {4}));

  step = dot_step(dot, l, r, g, step.state);
  expect_bits(step.state.scales[0], one(scale_of(4, 448)));
  expect_bits(step.state.scales[1], one(scale_of(2, 448)));
  expect_bits(step.state.scales[2], one(scale_of(4, 57344)));
  expect_near(step.value, {5.081633, 0.9591838, -1.875, 5});
  expect_near(step.lhs, {0, 1.25, 1.0714287, -5, 7.5, -5.714286});
  expect_near(step.rhs, {9, -15.5, 1, 3, 2.857143, 1.4285716});
  expect_bits(step.state.histories[0], Tensor::from({4, 0, 0, 4}, {4}));
  expect_bits(step.state.histories[1], Tensor::from({2, 0, 0, 2}, {4}));
  expect_bits(step.state.histories[2], Tensor::from({4, 0, 0, 4}, {4}));

  step =
      dot_step(dot, scale(l, 2).value(), r, Tensor::from({1, 0.001f, -2, 4}, {2, 2}), step.state);
  expect_near(step.value, {7.714286, 3.142857, -1.75, 6});
  expect_near(step.lhs, {0.49902347, 0.2519531, 1.427874, -5, 7.5, -5.714286});
  expect_near(step.rhs, {10, -15.998048, 2, 4.003907, 4, 0.0039062505});
  expect_bits(step.state.histories[0], Tensor::from({8, 0, 4, 4}, {4}));
  expect_bits(step.state.histories[1], Tensor::from({2, 0, 2, 2}, {4}));
  expect_bits(step.state.histories[2], Tensor::from({4, 0, 4, 4}, {4}));
}

TEST(WorkedSteps, OfTheComposedPath) { expect_worked_steps(composed(kMatmul)); }
TEST(WorkedSteps, OfTheFusedPath) { expect_worked_steps(fused(kMatmul)); }

TEST(Poison, FreezesTheScaleForTheHistoryAndIsGone) {
  const Tensor rhs = Tensor::ones(DType::f32, {2, 2}), g = Tensor::ones(DType::f32, {2, 2});
  const Tensor clean = Tensor::from({1, 2, 3, 7}, {2, 2});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    for (const auto& dot : {fused(kMatmul), composed(kMatmul)}) {
      MetaState state;  // 4 steps of history
      state = dot_step(dot, clean, rhs, g, state).state;
      DotStep step = dot_step(dot, Tensor::from({bad, 2, 3, 7}, {2, 2}), rhs, g, state);
      EXPECT_EQ(std::isnan(step.value.to_floats()[0]), std::isnan(bad));  // infinity saturates
      EXPECT_FALSE(std::isnan(step.value.to_floats()[2]));
      const Tensor frozen = step.state.scales[0];
      expect_bits(frozen, one(1.0f / 64));
      for (int i = 0; i < 4; ++i) {
        step = dot_step(dot, scale(clean, 2).value(), rhs, g, step.state);
        expect_bits(step.state.scales[0], frozen);
      }
      step = dot_step(dot, clean, rhs, g, step.state);
      expect_bits(step.state.scales[0], one(1.0f / 32));
    }
  }
}

TEST(TwoUses, OfOneMetaTakeTheMaximum) {
  const Tensor rhs = Tensor::ones(DType::f32, {2, 2});
  const Tensor x = Tensor::from({5, 1, 1, 1}, {2, 2});
  const std::string owg = "_overwrite_with_gradient/";
  const MetaState fresh(3);
  const Variables variables = {{"params/x", x},
                               {owg + "s0", fresh.scales[0]},
                               {owg + "s1", fresh.scales[1]},
                               {owg + "s2", fresh.scales[2]},
                               {owg + "h0", fresh.histories[0]},
                               {owg + "h1", fresh.histories[1]},
                               {owg + "h2", fresh.histories[2]}};
  const auto loss = [&](const Variables& v) {
    const fp8::Fp8DotMeta meta = {v.at(owg + "s0"), v.at(owg + "s1"), v.at(owg + "s2"),
                                  v.at(owg + "h0"), v.at(owg + "h1"), v.at(owg + "h2")};
    const Variable& in = v.at("params/x");
    const Variable a = fused(kMatmul)(in, rhs, meta);
    const Variable b = fused(kMatmul)(scale(in, 0.5), rhs, meta);  // amax 2.5, and used last
    return sum(scale(a, 2) + scale(b, 3));
  };
  const ValueAndGrad result = value_and_grad(loss)(variables);
  expect_bits(result.grads.value(owg + "h0"), Tensor::from({5, 0, 0}, {3}));
  expect_bits(result.grads.value(owg + "h2"), Tensor::from({3, 0, 0}, {3}));
  expect_bits(result.grads.value(owg + "s0"), one(1));
}

TEST(Inference, ChangesNoState) {
  std::mt19937 random(6);
  const Tensor lhs = grid(random, {3, 4}, DType::f32), rhs = grid(random, {4, 5}, DType::f32);
  MetaState state;
  state.histories[0] = Tensor::from({2, 0, 1, 0}, {4});
  const auto& [s, h] = state;
  const fp8::Fp8DotMeta meta = {s[0], s[1], s[2], h[0], h[1], h[2]};
  const Variable first = fused(kMatmul)(lhs, rhs, meta);
  EXPECT_FALSE(first.is_recorded());
  expect_bits(fused(kMatmul)(lhs, rhs, meta).value(), first.value());
  expect_bits(meta.lhs_amax_history.value(), Tensor::from({2, 0, 1, 0}, {4}));
  expect_bits(meta.lhs_scale.value(), one(1));
}

TEST(TinyGradients, FlushInTheFirstStepAndAreBackInTheSecond) {
  const Tensor lhs = Tensor::ones(DType::f32, {2, 2}), rhs = Tensor::ones(DType::f32, {2, 2});
  // Half of e5m2's smallest number, 2^-16: the tie to even, 0.
  const Tensor g = Tensor::full(DType::f32, {2, 2}, 0x1p-17);
  for (const auto& dot : {fused(kMatmul), composed(kMatmul)}) {
    const DotStep first = dot_step(dot, lhs, rhs, g, MetaState());
    expect_bits(first.lhs, Tensor::zeros(DType::f32, {2, 2}));
    expect_bits(first.rhs, Tensor::zeros(DType::f32, {2, 2}));
    const DotStep second = dot_step(dot, lhs, rhs, g, first.state);
    expect_bits(second.state.scales[2], one(scale_of(0x1p-17f, 57344)));
    // Codes of 57344 twice, by a scale of which the product is rounded.
    expect_near(second.lhs, std::vector<double>(4, 0x1p-16));
    expect_near(second.rhs, std::vector<double>(4, 0x1p-16));
  }
}

// Current scaling: q = x / (amax / largest), and products of what that dequantizes to.
TEST(CurrentScaling, IsQdqByTheTensorsOwnScale) {
  std::mt19937 random(7);
  const auto own = [](const Tensor& x, DType type) {
    const float largest = fp8::get_fp8_max(type);
    return fp8::qdq(x, type, one(fp8::amax(x) / largest));
  };
  // Amax a power of two times the largest: scales are powers of two, nothing else is rounded.
  const auto operand = [&](const Shape& shape, float largest) {
    Tensor x = grid(random, shape, DType::f32);
    x.mutable_values<float>()[1] = largest;
    return x;
  };
  const Tensor lhs = operand({3, 4}, 448.0f / 64), rhs = operand({4, 5}, 448.0f / 128);
  const Tensor g = operand({3, 5}, 57344.0f / 16384);
  const auto result = value_and_vjp(
      [](std::span<const Variable> in) {
        return fp8::current_scaled_dot_general(in[0], in[1], kMatmul);
      },
      std::vector{lhs, rhs}, g);
  const Tensor x = own(lhs, DType::f8_e4m3), w = own(rhs, DType::f8_e4m3);
  const Tensor c = own(g, DType::f8_e5m2);
  expect_bits(result.value, ops::dot_general(x, w, kMatmul));
  expect_bits(result.grads[0], ops::dot_general_transpose_lhs(c, lhs.shape(), w, kMatmul));
  expect_bits(result.grads[1], ops::dot_general_transpose_rhs(c, x, rhs.shape(), kMatmul));
}

// Integers up to 4 scaled by a block's amax of 448 / 2^k are exact in e4m3fn.
TEST(BlockScaling, OfRepresentableValuesIsTheProductItself) {
  std::mt19937 random(8);
  const auto operand = [&](const Shape& shape) {
    Tensor x = integers(random, shape);
    const auto values = x.mutable_values<float>();
    // Each block has a 7 = 448 / 64, in every row and column of 128.
    for (std::size_t i = 0; i < shape[0]; ++i) values[i * shape[1] + i % 3] = 7;
    for (std::size_t j = 0; j < shape[1]; ++j) values[j % 3 * shape[1] + j] = 7;
    return x;
  };
  const Tensor lhs = operand({6, 20}), rhs = operand({20, 10}), g = operand({6, 10});
  const auto result = value_and_vjp(
      [](std::span<const Variable> in) {
        return fp8::block_scaled_dot_general(in[0], in[1], kMatmul);
      },
      std::vector{lhs, rhs}, g);
  expect_bits(result.value, ops::dot_general(lhs, rhs, kMatmul));
  expect_bits(result.grads[0], ops::dot_general_transpose_lhs(g, lhs.shape(), rhs, kMatmul));
  expect_bits(result.grads[1], ops::dot_general_transpose_rhs(g, lhs, rhs.shape(), kMatmul));
}

// What e4m3fn holds of x (rows, cols) in blocks, each with its own scale amax / 448.
Tensor in_blocks(const Tensor& x, std::size_t height, std::size_t width) {
  const std::size_t cols = x.shape()[1], across = ceil_div(cols, width);
  const auto block_of = [&](std::size_t i) {
    return i / cols / height * across + i % cols / width;
  };
  std::vector<float> values = x.to_floats();
  std::vector<float> scales(ceil_div(x.shape()[0], height) * across);
  for (std::size_t i = 0; i < values.size(); ++i) {
    scales[block_of(i)] = std::max(scales[block_of(i)], std::fabs(values[i]));
  }
  for (float& scale : scales) scale /= 448.0f;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] /= scales[block_of(i)];
  values = Tensor::from(values, x.shape(), DType::f8_e4m3).to_floats();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= scales[block_of(i)];
  return Tensor::from(values, x.shape());
}

// Where `got` is not a (m, k) times b (k, n), summed in f32; "" if it is. A term is rounded less
// than k times where terms are added, and fewer than 8 times before and after that: the two factors
// where they are dequantized here, the product of two scales and that with a sum.
std::string product_difference(const Tensor& got, const Tensor& a, const Tensor& b) {
  const std::size_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
  if (got.shape() != Shape{m, n}) return "shape " + to_string(got.shape());
  const std::vector<double> values = doubles(got), x = doubles(a), y = doubles(b);
  const double roundings = static_cast<double>(k + 8) * 0x1p-24;
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sum = 0, magnitude = 0;
    for (std::size_t l = 0; l < k; ++l) {
      const double term = x[i / n * k + l] * y[l * n + i % n];
      sum += term;
      magnitude += std::fabs(term);
    }
    const double bound = roundings / (1 - roundings) * magnitude;
    if (std::fabs(values[i] - sum) <= bound) continue;
    return fmt::format("element {}: {}, expected {}, bound {}", i, values[i], sum, bound);
  }
  return "";
}

// Grid values times 2^exponent(row, col).
template <class Exponent>
Tensor scaled_grid(std::mt19937& random, const Shape& shape, const Exponent& exponent) {
  Tensor x = grid(random, shape, DType::f32);
  const auto values = x.mutable_values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(
        values[i], exponent(static_cast<int>(i / shape[1]), static_cast<int>(i % shape[1])));
  }
  return x;
}

// 1 x 128 of x and of the gradient, 128 x 128 of the kernel; the gradient of the kernel from what
// these hold, quantized anew in groups of 128 tokens. No size is a multiple of 128, and neither
// tokens, blocks nor the rows within a block are of one magnitude.
TEST(BlockScaling, IsByTheBlocksOfItsSpecification) {
  std::mt19937 random(9);
  const Tensor lhs = scaled_grid(
      random, {150, 300}, [](int token, int k) { return token * 5 % 13 * 2 - 12 + k / 128 * 3; });
  const Tensor rhs = scaled_grid(
      random, {300, 140}, [](int k, int n) { return k % 5 + k / 128 * 3 + n / 128 * 12 - 10; });
  const Tensor g = scaled_grid(
      random, {150, 140}, [](int token, int n) { return token * 7 % 11 * 2 - 10 + n / 128 * 9; });
  const auto turned = [](const Tensor& x) { return ops::transpose(x, {1, 0}); };
  const Tensor x = in_blocks(lhs, 1, 128), w = in_blocks(rhs, 128, 128), q_g = in_blocks(g, 1, 128);
  const Tensor x_by_token = in_blocks(x, 128, 1), g_by_token = in_blocks(q_g, 128, 1);
  for (const bool is_turned : {false, true}) {
    SCOPED_TRACE(is_turned ? "kernel (n, k)" : "kernel (k, n)");
    const DotDimensionNumbers dims = {{1}, {is_turned ? 1u : 0u}};
    const auto result = value_and_vjp(
        [&](std::span<const Variable> in) {
          return fp8::block_scaled_dot_general(in[0], in[1], dims);
        },
        std::vector{lhs, is_turned ? turned(rhs) : rhs}, g);
    const Tensor of_lhs = result.grads[0];
    const Tensor of_rhs = is_turned ? turned(result.grads[1]) : result.grads[1];
    EXPECT_EQ(product_difference(result.value, x, w), "");
    EXPECT_EQ(product_difference(of_lhs, q_g, turned(w)), "");
    EXPECT_EQ(product_difference(of_rhs, turned(x_by_token), g_by_token), "");
    // Other blocks do not give the same.
    EXPECT_NE(product_difference(result.value, x, in_blocks(rhs, 1, 128)), "");
    EXPECT_NE(product_difference(result.value, x, in_blocks(rhs, 300, 140)), "");
    EXPECT_NE(product_difference(result.value, in_blocks(lhs, 150, 300), w), "");
    EXPECT_NE(product_difference(of_lhs, in_blocks(g, 150, 140), turned(w)), "");
    EXPECT_NE(product_difference(of_rhs, turned(x), q_g), "");
    EXPECT_NE(product_difference(of_rhs, turned(in_blocks(lhs, 128, 1)), in_blocks(g, 128, 1)), "");
  }
}

TEST(Recipes, RefuseTypesThatAreNotTrainedIn) {
  const Variable x = Tensor::ones(DType::f32, {2, 2});
  for (const DType type : {DType::i32, DType::f64, DType::u8, DType::f32, DType::f8_e8m0}) {
    const std::string given = fmt::format("get_fp8_max: given {}, expected", dtype_name(type));
    const auto expect_refused = [&](const auto& call) {
      EXPECT_EQ(refusal(call).substr(0, given.size()), given);
    };
    for (const fp8::Fp8Types types : {fp8::Fp8Types{.e4m3 = type}, fp8::Fp8Types{.e5m2 = type}}) {
      expect_refused([&] { fp8::current_scaled_dot_general(x, x, kMatmul, types); });
    }
    for (const fp8::BlockScaling scaling :
         {fp8::BlockScaling{.type = type}, fp8::BlockScaling{.grad_type = type}}) {
      expect_refused([&] { fp8::block_scaled_dot_general(x, x, kMatmul, scaling); });
    }
  }
}

}  // namespace
}  // namespace octavo::testing
