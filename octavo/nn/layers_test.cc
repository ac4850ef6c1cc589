// Embed, norms, Dropout, MLPs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "octavo/autograd/norm.h"
#include "octavo/base/error.h"
#include "octavo/nn/dropout.h"
#include "octavo/nn/embed.h"
#include "octavo/nn/layers_testing.h"
#include "octavo/nn/mlp.h"
#include "octavo/nn/norms.h"

namespace octavo::nn {
namespace {

using Shapes = std::map<std::string, Shape>;

TEST(Embed, RowsOfItsTable) {
  const Embed layer{.num_embeddings = 7, .features = 3, .embedding_init = integer_init(1)};
  const Tensor ids = Tensor::from_ids(std::vector<std::int32_t>{6, 0, 6, 2}, {2, 2});
  const Variables variables = layer.init(Rng(0), ids);
  EXPECT_EQ(shapes_of(variables), (Shapes{{"params/embedding", {7, 3}}}));
  const Tensor y = layer.apply(variables, ids).value();
  ASSERT_EQ(y.shape(), (Shape{2, 2, 3}));
  const auto table = doubles(variables.value("params/embedding")), got = doubles(y);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids.values<std::int32_t>()[i / 3]);
    EXPECT_EQ(got[i], table[id * 3 + i % 3]);
  }
  EXPECT_THROW(layer.apply(variables, Tensor::from_ids(std::vector<std::int32_t>{7}, {1})),
               ContractError);
  EXPECT_THROW(layer.apply(variables, Tensor::ones(DType::f32, {1})), ContractError);
}

TEST(Embed, TypesOfTheResult) {
  const Tensor ids = Tensor::from_ids(std::vector<std::int32_t>{1}, {1});
  Embed layer{.num_embeddings = 2, .features = 3};
  const Variables variables = layer.init(Rng(0), ids);
  EXPECT_EQ(layer.apply(variables, ids).dtype(), DType::f32);
  layer.dtype = DType::bf16;
  EXPECT_EQ(layer.apply(variables, ids).dtype(), DType::bf16);
}

// Of n squares of normal numbers the mean is 1, with deviation sqrt(2 / n): six of these.
TEST(Embed, InitialVarianceIsOneByFeatures) {
  const double features = 64, count = 64 * 100;
  const Variables variables = Embed{.num_embeddings = 100, .features = 64}.init(
      Rng(3), Tensor::from_ids(std::vector<std::int32_t>{1}, {1}));
  double squares = 0;
  for (const double value : doubles(variables.value("params/embedding"))) squares += value * value;
  EXPECT_NEAR(squares / count * features, 1, 6 * std::sqrt(2 / count));
}

TEST(Embed, InitialValuesAreOfTables) {
  EXPECT_THROW(embedding_normal()(Rng(0), {}, DType::f32), ContractError);
  EXPECT_EQ(embedding_normal()(Rng(0), {4}, DType::f32).shape(), (Shape{4}));
}

// The table twice: as rows, and for logits.
struct Tied {
  Embed layer{.num_embeddings = 5,
              .features = 3,
              .param_dtype = DType::f64,
              .embedding_init = integer_init(1)};

  Variable operator()(const Scope& scope, const Tensor& ids) const {
    return layer.attend(scope.named("embed"), layer(scope.named("embed"), ids));
  }
};

TEST(Embed, AttendMultipliesWithTheTable) {
  const Tensor ids = Tensor::from_ids(std::vector<std::int32_t>{4, 1, 4}, {3});
  const Tied layer;
  const Variables variables = init(layer, Rng(0), ids);
  EXPECT_EQ(shapes_of(variables), (Shapes{{"params/embed/embedding", {5, 3}}}));
  const auto table = doubles(variables.value("params/embed/embedding"));
  const Tensor y = apply(layer, variables, ids).value();
  ASSERT_EQ(y.shape(), (Shape{3, 5}));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids.values<std::int32_t>()[i / 5]);
    double expected = 0;
    for (std::size_t f = 0; f < 3; ++f) expected += table[id * 3 + f] * table[i % 5 * 3 + f];
    EXPECT_EQ(doubles(y)[i], expected);
  }
  // Quadratic in the table: central differences are exact here too.
  const Tensor g = integers({3, 5}, 2, DType::f64);
  expect_gradients([&](const Variables& v) { return dot_with(apply(layer, v, ids), g); },
                   variables);
}

// Rows whose statistics are exact: deviations of 3 and an epsilon of 7 make the root 4.
TEST(Norms, ValuesByDefinition) {
  const RMSNorm rms{.epsilon = 7, .scale_init = integer_init(1)};
  const Tensor x = Tensor::from({3, -3, 3, -3, -3, -3, -3, 3}, {2, 4});
  const Variables of_rms = rms.init(Rng(0), x);
  EXPECT_EQ(shapes_of(of_rms), (Shapes{{"params/scale", {4}}}));
  const auto scale = doubles(of_rms.value("params/scale"));
  const auto y = doubles(rms.apply(of_rms, x).value());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(y[i], doubles(x)[i] / 4 * scale[i % 4]);

  const LayerNorm layer{.epsilon = 7, .bias_init = integer_init(2), .scale_init = integer_init(1)};
  const Tensor moved = Tensor::from({5, -1, 5, -1, 8, 2, 2, 8}, {2, 4});
  const Variables of_layer = layer.init(Rng(0), moved);
  EXPECT_EQ(shapes_of(of_layer), (Shapes{{"params/scale", {4}}, {"params/bias", {4}}}));
  const auto bias = doubles(of_layer.value("params/bias"));
  const auto z = doubles(layer.apply(of_layer, moved).value());
  const double mean[] = {2, 5};
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(z[i], (doubles(moved)[i] - mean[i / 4]) / 4 * scale[i % 4] + bias[i % 4]);
  }
}

TEST(Norms, InitialValuesAndTypes) {
  const Tensor x = normal(Rng(1), {2, 4});
  const Variables variables = LayerNorm{}.init(Rng(0), x);
  EXPECT_TRUE(same_bits(variables.value("params/scale"), Tensor::ones(DType::f32, {4})));
  EXPECT_TRUE(same_bits(variables.value("params/bias"), Tensor::zeros(DType::f32, {4})));
  EXPECT_TRUE((LayerNorm{.use_bias = false, .use_scale = false}.init(Rng(0), x).empty()));
  EXPECT_TRUE((RMSNorm{.use_scale = false}.init(Rng(0), x).empty()));
  EXPECT_EQ(RMSNorm{}.epsilon, 1e-6);
  EXPECT_EQ(LayerNorm{}.epsilon, 1e-6);

  const Tensor narrow = x.astype(DType::bf16);
  EXPECT_EQ(LayerNorm{}.apply(variables, narrow).dtype(), DType::f32);
  EXPECT_EQ(LayerNorm{.dtype = DType::bf16}.apply(variables, x).dtype(), DType::bf16);
  EXPECT_EQ(RMSNorm{.use_scale = false}.apply({}, narrow).dtype(), DType::bf16);
  const Tensor ids = Tensor::from_ids(std::vector<std::int32_t>{3, 4}, {2});
  EXPECT_EQ(RMSNorm{.use_scale = false}.apply({}, ids).dtype(), DType::f32);
  EXPECT_THROW((RMSNorm{.dtype = DType::i32}.init(Rng(0), x)), ContractError);
  EXPECT_THROW(RMSNorm{}.init(Rng(0), Tensor::scalar(1)), ContractError);
}

// All values on the way are below 8, with fewer than 40 roundings each; 12 products are added.
constexpr Differences kOfNorms{.step = 0x1p-8, .roundings = 40, .magnitude = 8 * 12};

TEST(Norms, GradientsAreCentralDifferences) {
  const Tensor x = integers({3, 4}, 5, DType::f64), g = integers({3, 4}, 6, DType::f64);
  const RMSNorm rms{.epsilon = 1, .param_dtype = DType::f64, .scale_init = integer_init(1)};
  Variables variables = rms.init(Rng(0), x);
  variables.set(kX, x);
  expect_gradients([&](const Variables& v) { return dot_with(rms.apply(v, v.at(kX)), g); },
                   variables, kOfNorms);
  const LayerNorm layer{.epsilon = 1,
                        .param_dtype = DType::f64,
                        .bias_init = integer_init(2),
                        .scale_init = integer_init(1)};
  variables = layer.init(Rng(0), x);
  variables.set(kX, x);
  expect_gradients([&](const Variables& v) { return dot_with(layer.apply(v, v.at(kX)), g); },
                   variables, kOfNorms);
}

TEST(Dropout, ElementsAreDroppedOrScaled) {
  const Dropout layer{.rate = 0.25};
  const double count = 4000;
  const Tensor x = Tensor::full(DType::f32, {40, 100}, 3);
  const Tensor y = layer.apply({}, Rng(1), x).value();
  double kept = 0;
  for (const double value : doubles(y)) {
    EXPECT_TRUE(value == 0 || value == 4) << value;
    kept += value != 0;
  }
  EXPECT_NEAR(kept / count, 0.75, 6 * std::sqrt(0.25 * 0.75 / count));
  EXPECT_TRUE(same_bits(layer.apply({}, Rng(1), x).value(), y));
  EXPECT_FALSE(same_bits(layer.apply({}, Rng(2), x).value(), y));
  EXPECT_TRUE(layer.init(Rng(0), x).empty());

  Variables variables = {{kX, x}};
  const Tensor dx =
      value_and_grad_at(
          [&](const Variables& v) { return scale(sum(layer.apply(v, Rng(1), v.at(kX))), 3); },
          variables)
          .grads.value(kX);
  EXPECT_TRUE(same_bits(dx, y));
}

TEST(Dropout, NeedsRandomNumbersOnlyWhereItDrops) {
  const Tensor x = normal(Rng(1), {4, 5});
  const Scope without = Scope::apply({});
  EXPECT_TRUE(same_bits(Dropout{.rate = 0.5}(without, x, true).value(), x));
  EXPECT_TRUE(same_bits(Dropout{.rate = 0}(without, x).value(), x));
  EXPECT_THROW((Dropout{.rate = 0.5}(without, x)), ContractError);
  const Scope with = Scope::apply({}, Rng(1));
  EXPECT_THROW((Dropout{.rate = 1.5}(with, x)), ContractError);
  EXPECT_TRUE(same_bits(Dropout{.rate = 1}(with, x).value(), Tensor::zeros(DType::f32, {4, 5})));
  // Each call draws anew.
  const Tensor ones = Tensor::ones(DType::f32, {100});
  EXPECT_FALSE(same_bits(Dropout{.rate = 0.5}(with, ones).value(),
                         Dropout{.rate = 0.5}(with, ones).value()));
}

TEST(Dropout, SharedDraws) {
  const Tensor x = Tensor::ones(DType::f32, {20, 30});
  const auto y = doubles(Dropout{.rate = 0.5, .broadcast_dims = {0}}.apply({}, Rng(1), x).value());
  for (std::size_t i = 30; i < y.size(); ++i) EXPECT_EQ(y[i], y[i - 30]);
  EXPECT_EQ(std::set<double>(y.begin(), y.end()), (std::set<double>{0, 2}));
}

TEST(Mlp, IsItsTwoLayers) {
  const Mlp layer{.hidden_features = 5};
  const Tensor x = normal(Rng(1), {2, 3});
  const Variables variables = layer.init(Rng(0), x);
  EXPECT_EQ(shapes_of(variables), (Shapes{{"params/Dense_0/kernel", {3, 5}},
                                          {"params/Dense_0/bias", {5}},
                                          {"params/Dense_1/kernel", {5, 3}},
                                          {"params/Dense_1/bias", {3}}}));
  const auto dense = [&](const Variable& in, const std::string& name) {
    return matmul(in, variables.at("params/" + name + "/kernel")) +
           variables.at("params/" + name + "/bias");
  };
  EXPECT_TRUE(same_bits(layer.apply(variables, x).value(),
                        dense(gelu(dense(x, "Dense_0")), "Dense_1").value()));
}

TEST(Mlp, GatedIsItsThreeLayers) {
  const GatedMlp layer{.hidden_features = 5, .out_features = 2};
  const Tensor x = normal(Rng(1), {2, 3});
  const Variables variables = layer.init(Rng(0), x);
  EXPECT_EQ(shapes_of(variables), (Shapes{{"params/gate/kernel", {3, 5}},
                                          {"params/up/kernel", {3, 5}},
                                          {"params/down/kernel", {5, 2}}}));
  const auto dense = [&](const Variable& in, const std::string& name) {
    return matmul(in, variables.at("params/" + name + "/kernel"));
  };
  EXPECT_TRUE(same_bits(layer.apply(variables, x).value(),
                        dense(silu(dense(x, "gate")) * dense(x, "up"), "down").value()));
}

// 6 results of at most 4 * 64 hidden values of magnitude at most 64, fewer than 40 roundings each.
constexpr Differences kOfMlps{.step = 0x1p-8, .roundings = 40, .magnitude = 6.0 * 4 * 64 * 64};

TEST(Mlp, GradientsAreCentralDifferences) {
  const Tensor x = integers({2, 3}, 5, DType::f64), g = integers({2, 3}, 6, DType::f64);
  const Mlp plain{.hidden_features = 4,
                  .param_dtype = DType::f64,
                  .kernel_init = integer_init(1),
                  .bias_init = integer_init(2)};
  const GatedMlp gated{
      .hidden_features = 4, .param_dtype = DType::f64, .kernel_init = integer_init(3)};
  Variables variables = plain.init(Rng(0), x);
  variables.set(kX, x);
  expect_gradients([&](const Variables& v) { return dot_with(plain.apply(v, v.at(kX)), g); },
                   variables, kOfMlps);
  variables = gated.init(Rng(0), x);
  variables.set(kX, x);
  expect_gradients([&](const Variables& v) { return dot_with(gated.apply(v, v.at(kX)), g); },
                   variables, kOfMlps);
}

TEST(Mlp, InFp8KeepsStateOfEachLayer) {
  const Fp8DotGeneral fp8{.amax_history_length = 4};
  const Tensor x = normal(Rng(1), {2, 3});
  Shapes expected = fp8_shapes("Dense_0/Fp8DirectDotGeneralOp_0/", 4);
  expected.merge(fp8_shapes("Dense_1/Fp8DirectDotGeneralOp_0/", 4));
  EXPECT_EQ(shapes_of(Mlp{.hidden_features = 5, .dot_general_cls = fp8}.init(Rng(0), x).collection(
                kOverwriteWithGradient)),
            expected);
  const Variables gated = GatedMlp{.hidden_features = 5, .dot_general_cls = fp8}.init(Rng(0), x);
  EXPECT_EQ(gated.collection(kOverwriteWithGradient).size(), 18u);
}

}  // namespace
}  // namespace octavo::nn
