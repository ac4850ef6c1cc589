#include "octavo/nn/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/nn/layers_testing.h"

namespace octavo::nn {
namespace {

using Shapes = std::map<std::string, Shape>;
using Attention = MultiHeadDotProductAttention;

constexpr std::size_t kBatch = 2, kLength = 3, kFeatures = 6, kHeads = 2, kDim = 4;

Tensor input(std::uint32_t seed) {
  return normal(Rng(seed), {kBatch, kLength, kFeatures}).astype(DType::f64);
}

Attention layer_in_f64() {
  return {.num_heads = kHeads,
          .qkv_features = kHeads * kDim,
          .param_dtype = DType::f64,
          .bias_init = normal(0.5)};
}

// One head's row of x W + b, and the sum of its magnitudes.
struct Bounded {
  double value = 0, magnitude = 0;
  void add(double term, double of_term) {
    value += term;
    magnitude += of_term;
  }
};

// Attention by its definition, with the sums of magnitudes that bound its roundings.
class Reference {
 public:
  Reference(const Variables& variables, const std::vector<Tensor>& inputs,
            std::function<bool(std::size_t q, std::size_t k)> sees)
      : variables_(variables), sees_(std::move(sees)) {
    for (std::size_t i = 0; i < 3; ++i) inputs_.push_back(doubles(inputs[i]));
  }

  Bounded at(std::size_t batch, std::size_t q, std::size_t feature) const {
    const auto kernel = doubles(variables_.value("params/out/kernel"));
    const double bias = doubles(variables_.value("params/out/bias"))[feature];
    Bounded sum{bias, std::fabs(bias)};
    for (std::size_t h = 0; h < kHeads; ++h) {
      for (std::size_t d = 0; d < kDim; ++d) {
        const Bounded value = mixed(batch, q, h, d);
        const double w = kernel[(h * kDim + d) * kFeatures + feature];
        sum.add(value.value * w, value.magnitude * std::fabs(w));
      }
    }
    return sum;
  }
  double largest_score() const { return largest_score_; }

 private:
  Bounded projected(std::size_t which, std::size_t batch, std::size_t row, std::size_t h,
                    std::size_t d) const {
    static constexpr const char* kNames[] = {"query", "key", "value"};
    const std::string path = std::string("params/") + kNames[which];
    const auto kernel = doubles(variables_.value(path + "/kernel"));
    const double bias = doubles(variables_.value(path + "/bias"))[h * kDim + d];
    Bounded sum{bias, std::fabs(bias)};
    for (std::size_t f = 0; f < kFeatures; ++f) {
      const double term = inputs_[which][(batch * kLength + row) * kFeatures + f] *
                          kernel[(f * kHeads + h) * kDim + d];
      sum.add(term, std::fabs(term));
    }
    return sum;
  }

  Bounded mixed(std::size_t batch, std::size_t q, std::size_t h, std::size_t d) const {
    std::vector<double> weights(kLength);
    double total = 0;
    for (std::size_t k = 0; k < kLength; ++k) {
      if (!sees_(q, k)) continue;
      Bounded score;
      for (std::size_t e = 0; e < kDim; ++e) {
        const Bounded a = projected(0, batch, q, h, e), b = projected(1, batch, k, h, e);
        score.add(a.value * b.value / std::sqrt(kDim), a.magnitude * b.magnitude);
      }
      largest_score_ = std::max(largest_score_, score.magnitude);
      total += weights[k] = std::exp(score.value);
    }
    Bounded sum;
    for (std::size_t k = 0; k < kLength; ++k) {
      const Bounded value = projected(2, batch, k, h, d);
      sum.add(weights[k] / total * value.value, weights[k] / total * value.magnitude);
    }
    return sum;
  }

  const Variables& variables_;
  std::vector<std::vector<double>> inputs_;
  std::function<bool(std::size_t, std::size_t)> sees_;
  mutable double largest_score_ = 0;
};

void expect_attention(const Tensor& got, const Reference& reference) {
  ASSERT_EQ(got.shape(), (Shape{kBatch, kLength, kFeatures}));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const Shape at = unravel(i, got.shape());
    const Bounded expected = reference.at(at[0], at[1], at[2]);
    // Roundings of the sums on the way, in both; an error of a score is a relative one of weights,
    // and 16 for the rest of softmax.
    const double of_scores = (2 * (kFeatures + 1) + kDim + 2) * reference.largest_score();
    const double roundings = kFeatures + kLength + kHeads * kDim + 16 + 2 * of_scores;
    EXPECT_LE(std::fabs(doubles(got)[i] - expected.value),
              2 * roundings * std::numeric_limits<double>::epsilon() * expected.magnitude)
        << "element " << i;
  }
}

TEST(Attention, SelfAttentionByDefinition) {
  const Attention layer = layer_in_f64();
  const Tensor x = input(1);
  const Variables variables = layer.init(Rng(0), x);
  expect_attention(layer.apply(variables, x).value(),
                   Reference(variables, {x, x, x}, [](std::size_t, std::size_t) { return true; }));
}

TEST(Attention, OtherKeysAndValuesAndAMask) {
  const Attention layer = layer_in_f64();
  const Tensor x = input(1), keys = input(2), values = input(3);
  const Variables variables = layer.init(Rng(0), x);
  const auto causal = [](std::size_t q, std::size_t k) { return k <= q; };
  const AttentionInputs inputs{.keys = keys, .values = values, .mask = causal_mask(kLength)};
  expect_attention(layer.apply(variables, x, inputs).value(),
                   Reference(variables, {x, keys, values}, causal));
  // Values are the keys' input unless given.
  const AttentionInputs without_values{.keys = keys};
  expect_attention(
      layer.apply(variables, x, without_values).value(),
      Reference(variables, {x, keys, keys}, [](std::size_t, std::size_t) { return true; }));
}

TEST(Attention, AQueryThatSeesNothingGetsTheBiasAlone) {
  const Attention layer = layer_in_f64();
  const Tensor x = input(1);
  const Variables variables = layer.init(Rng(0), x);
  Tensor mask(DType::u8, {1, 1, 1, 1});
  mask.mutable_values<std::uint8_t>()[0] = 0;
  const auto y = doubles(layer.apply(variables, x, {.mask = mask}).value());
  const auto bias = doubles(variables.value("params/out/bias"));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % kFeatures]);
}

TEST(Attention, VariablesAreFlaxs) {
  const EinsumCls einsum_cls = Fp8Einsum{};
  const Attention layer{.num_heads = 2,
                        .qkv_features = 8,
                        .normalize_qk = true,
                        .qkv_dot_general_cls = Fp8DotGeneral{},
                        .out_dot_general_cls = Fp8DotGeneral{},
                        .qk_attn_weights_einsum_cls = einsum_cls,
                        .attn_weights_value_einsum_cls = einsum_cls};
  Shapes expected = {{"params/query/kernel", {6, 2, 4}}, {"params/query/bias", {2, 4}},
                     {"params/key/kernel", {6, 2, 4}},   {"params/key/bias", {2, 4}},
                     {"params/value/kernel", {6, 2, 4}}, {"params/value/bias", {2, 4}},
                     {"params/query_ln/scale", {4}},     {"params/key_ln/scale", {4}},
                     {"params/out/kernel", {2, 4, 6}},   {"params/out/bias", {6}}};
  for (const char* path : {"query/Fp8DirectDotGeneralOp_0/", "key/Fp8DirectDotGeneralOp_0/",
                           "value/Fp8DirectDotGeneralOp_0/", "out/Fp8DirectDotGeneralOp_0/",
                           "Fp8Einsum_0/", "Fp8Einsum_1/"}) {
    expected.merge(fp8_shapes(path));
  }
  EXPECT_EQ(shapes_of(layer.init(Rng(0), Tensor::ones(DType::f32, {2, 3, 6}))), expected);
}

TEST(Attention, EveryProductInFp8) {
  const EinsumCls einsum_cls = Fp8Einsum{.amax_history_length = 4};
  const DotGeneralCls dot_general_cls = Fp8DotGeneral{.amax_history_length = 4};
  const Attention layer{.num_heads = kHeads,
                        .qkv_features = kHeads * kDim,
                        .qkv_dot_general_cls = dot_general_cls,
                        .out_dot_general_cls = dot_general_cls,
                        .qk_attn_weights_einsum_cls = einsum_cls,
                        .attn_weights_value_einsum_cls = einsum_cls};
  const Tensor x = input(1).astype(DType::f32);
  Variables variables = layer.init(Rng(0), x);
  variables.set(kX, x);
  const ops::KernelLog log;
  const Variables grads =
      value_and_grad_at([&](const Variables& v) { return sum(layer.apply(v, v.at(kX))); },
                        variables)
          .grads;
  // Four projections; two einsums, one product for each head of each batch.
  const std::size_t products = 4 + 2 * kBatch * kHeads;
  EXPECT_EQ(log.count(Format::e4m3fn, Format::e4m3fn), products);
  EXPECT_EQ(log.count(Format::e5m2, Format::e4m3fn) + log.count(Format::e4m3fn, Format::e5m2),
            2 * products);
  EXPECT_EQ(log.runs().size(), 3 * products);
  // Weights of attention are the lhs of their product: at most 1.
  const std::string path = "_overwrite_with_gradient/Fp8Einsum_1/";
  const double of_weights = doubles(grads.value(path + "input_amax_history"))[0];
  EXPECT_GT(of_weights, 1.0 / kLength);
  EXPECT_LE(of_weights, 1);
}

// Values on the way are below 64, fewer than 100 roundings each; 36 results of 8 products.
TEST(Attention, GradientsAreCentralDifferences) {
  Attention layer = layer_in_f64();
  layer.normalize_qk = true;
  const Tensor x = input(1), g = input(4);
  Variables variables = layer.init(Rng(0), x);
  variables.set(kX, x);
  const AttentionInputs inputs{.mask = causal_mask(kLength)};
  expect_gradients(
      [&](const Variables& v) { return dot_with(layer.apply(v, v.at(kX), inputs), g); }, variables,
      {.step = 0x1p-8, .roundings = 100, .magnitude = 64.0 * 36 * 8});
}

TEST(Attention, Rope) {
  const Attention layer = layer_in_f64();
  const Tensor x = input(1);
  const Variables variables = layer.init(Rng(0), x);
  const auto with = [&](std::vector<std::int32_t> positions) {
    const RopeTables tables =
        rope_tables(Tensor::from_ids(positions, {kLength}), rope_frequencies(10000, kDim));
    return layer.apply(variables, x, {.rope = tables}).value();
  };
  const Tensor plain = layer.apply(variables, x).value();
  EXPECT_TRUE(same_bits(with({0, 0, 0}), plain));
  EXPECT_FALSE(same_bits(with({0, 1, 2}), plain));
}

TEST(Attention, Dropout) {
  Attention layer = layer_in_f64();
  const Tensor x = input(1);
  const Variables variables = layer.init(Rng(0), x);
  const Tensor plain = layer.apply(variables, x).value();
  layer.dropout_rate = 0.5;
  EXPECT_TRUE(same_bits(layer.apply(variables, x, {.deterministic = true}).value(), plain));
  EXPECT_THROW(layer.apply(variables, x), ContractError);
  const Tensor dropped = layer.apply(variables, Rng(1), x).value();
  EXPECT_FALSE(same_bits(dropped, plain));
  EXPECT_TRUE(same_bits(layer.apply(variables, Rng(1), x).value(), dropped));
  layer.broadcast_dropout = false;
  EXPECT_FALSE(same_bits(layer.apply(variables, Rng(1), x).value(), dropped));
}

TEST(Attention, TypesAndRefusals) {
  const Tensor x = Tensor::ones(DType::f32, {2, 3, 6});
  const Attention bf16{.num_heads = 2, .dtype = DType::bf16};
  EXPECT_EQ(bf16.apply(bf16.init(Rng(0), x), x).dtype(), DType::bf16);
  const Attention wide{.num_heads = 2, .out_features = 5};
  EXPECT_EQ(wide.apply(wide.init(Rng(0), x), x).shape(), (Shape{2, 3, 5}));
  const auto message = [&](const Attention& layer) -> std::string {
    try {
      layer.init(Rng(0), x);
    } catch (const ContractError& error) {
      return error.what();
    }
    return "was not refused";
  };
  EXPECT_THAT(message({.num_heads = 4}), testing::HasSubstr("given 6 qkv_features for 4 heads"));
  EXPECT_THAT(message({.num_heads = 2, .qk_attn_weights_einsum_cls = PlainEinsum{}}),
              testing::HasSubstr("given one einsum class"));
  const EinsumCls flat = [](const Scope&, std::string_view, const Variable& lhs, const Variable&) {
    return reshape(lhs, {lhs.value().size()});
  };
  EXPECT_THAT(message({.num_heads = 2,
                       .qk_attn_weights_einsum_cls = flat,
                       .attn_weights_value_einsum_cls = flat}),
              testing::HasSubstr("einsum_cls gave [36], expected scores of rank 4"));
  EXPECT_THROW((Attention{.num_heads = 2}.init(Rng(0), Tensor::ones(DType::f32, {6}))),
               ContractError);
}

}  // namespace
}  // namespace octavo::nn
