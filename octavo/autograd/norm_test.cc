#include "octavo/autograd/norm.h"

#include "octavo/autograd/autograd_testing.h"

namespace octavo::testing {
namespace {

Tensor row(std::initializer_list<float> values) { return Tensor::from(values, {1, values.size()}); }

TEST(RmsNorm, HasEpsilonInsideTheRoot) {
  // mean(x^2) = 9, 1 / sqrt(9 + 7) = 1 / 4.
  const Tensor x = row({3, -3, 3, -3}), scale = Tensor::from({1, 2, 4, 8}, {4});
  expect_bits(rms_norm(x, {}, {.epsilon = 7}).value(), row({0.75f, -0.75f, 0.75f, -0.75f}));
  expect_bits(rms_norm(x, scale, {.epsilon = 7}).value(), row({0.75f, -1.5f, 3, -6}));
}

TEST(LayerNorm, SubtractsTheMeanAndAddsTheBias) {
  const Tensor x = row({4, -2, 4, -2}), scale = Tensor::from({1, 2, 4, 8}, {4});
  const Tensor bias = Tensor::from({0, 1, 0, 1}, {4});
  expect_bits(layer_norm(x, {}, {}, {.epsilon = 7}).value(), row({0.75f, -0.75f, 0.75f, -0.75f}));
  expect_bits(layer_norm(x, scale, bias, {.epsilon = 7}).value(), row({0.75f, -0.5f, 3, -5}));
}

TEST(LayerNorm, OfAConstantRowIsItsBias) {
  const Tensor x = Tensor::full(DType::f32, {2, 100}, 1000.1);
  const Tensor bias = Tensor::full(DType::f32, {100}, 0.25);
  // The sum of equal numbers is rounded, and so may the mean be: by an epsilon of it per addition
  // in a lane, 7 of them, and 4 that join. Divided by sqrt(epsilon) = 1e-3 that is what remains.
  const double stray = 1000.1 * 11 * std::numeric_limits<float>::epsilon() / 1e-3;
  for (const float y : layer_norm(x, {}, bias).value().to_floats()) EXPECT_NEAR(y, 0.25, stray);
}

TEST(Norms, ComputeInF32AndRoundOnce) {
  std::mt19937 random(1);
  const Tensor x = grid(random, {3, 40}, DType::bf16), wide = x.astype(DType::f32);
  const Tensor scale = grid(random, {40}, DType::f32), bias = grid(random, {40}, DType::f32);
  const Tensor y = layer_norm(wide, scale, bias).value();
  expect_bits(layer_norm(x, scale, bias).value(), y);  // bf16 and f32 promote to f32
  expect_bits(layer_norm(x, scale, bias, {.dtype = DType::bf16}).value(), y.astype(DType::bf16));
  const Tensor narrow = scale.astype(DType::bf16);
  expect_bits(rms_norm(x, narrow).value(), rms_norm(wide, narrow).value().astype(DType::bf16));
}

TEST(Norms, GiveGradientsInTheTypesOfTheirInputs) {
  std::mt19937 random(2);
  const Tensor x = grid(random, {3, 4}, DType::bf16), scale = grid(random, {4}, DType::f32);
  const Tensor g = grid(random, {3, 4}, DType::f32);
  const auto f = [](std::span<const Variable> in) { return rms_norm(in[0], in[1]); };
  const ValueAndVjp mixed = value_and_vjp(f, std::vector{x, scale}, g);
  const ValueAndVjp wide = value_and_vjp(f, std::vector{x.astype(DType::f32), scale}, g);
  expect_bits(mixed.grads[0], wide.grads[0].astype(DType::bf16));
  expect_bits(mixed.grads[1], wide.grads[1]);
}

TEST(Norms, RefuseOtherShapes) {
  const Variable x = Tensor::ones(DType::f32, {2, 3}), four = Tensor::ones(DType::f32, {4});
  EXPECT_EQ(refusal([&] { rms_norm(x, four); }),
            "rms_norm: given a scale [4] for x [2, 3], expected [3]");
  EXPECT_EQ(refusal([&] { layer_norm(x, {}, four); }),
            "layer_norm: given a bias [4] for x [2, 3], expected [3]");
  EXPECT_EQ(refusal([] { layer_norm(Tensor::scalar(1), {}, {}); }),
            "layer_norm: given x [], expected (..., n) with n at least 1");
}

TEST(Norms, RefuseOtherTypes) {
  const Variable x = Tensor::ones(DType::f32, {2, 3});
  const auto in = [](DType type, Shape shape) { return Variable(Tensor::ones(type, shape)); };
  for (const DType type : {DType::i32, DType::f8_e4m3}) {
    const std::string given =
        ": given elements of " + std::string(dtype_name(type)) + ", expected F32, BF16, F16 or F64";
    EXPECT_EQ(refusal([&] { rms_norm(in(type, {2, 3}), {}); }), "rms_norm" + given);
    EXPECT_EQ(refusal([&] { layer_norm(in(type, {2, 3}), {}, {}); }), "layer_norm" + given);
    EXPECT_EQ(refusal([&] { rms_norm(x, in(type, {3})); }), "rms_norm" + given);
    EXPECT_EQ(refusal([&] { layer_norm(x, {}, in(type, {3})); }), "layer_norm" + given);
    EXPECT_EQ(refusal([&] { rms_norm(x, {}, {.dtype = type}); }), "rms_norm" + given);
  }
}

}  // namespace
}  // namespace octavo::testing
