// Attention, Einsum, Embed and norms against Flax's, tests/golden/flax/make_modules.py.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "octavo/autograd/shape.h"
#include "octavo/autograd/value_and_grad.h"
#include "octavo/nn/attention.h"
#include "octavo/nn/embed.h"
#include "octavo/nn/norms.h"
#include "octavo/train/flax_golden_testing.h"
#include "octavo/train/train_testing.h"

namespace octavo {
namespace {

using testing::expect_same_bits;
using testing::expect_within;
using testing::FlaxGolden;
using testing::relative_rounding;

const FlaxGolden& golden() {
  static const FlaxGolden data("modules");
  return data;
}

// What a case computes: its value, and cotangents of variables and inputs.
struct Outcome {
  Tensor y;
  Variables variables;
  std::vector<Tensor> inputs;
};
using Layer = std::function<Variable(const Variables&, std::span<const Variable> inputs)>;

Outcome outcome_of(const Layer& layer, const Variables& variables,
                   const std::vector<Tensor>& inputs, const Tensor& g, Fp8Semantics semantics) {
  Variables all = variables;
  for (std::size_t i = 0; i < inputs.size(); ++i) all.set("inputs/" + std::to_string(i), inputs[i]);
  Outcome result;
  const Variables grads = value_and_grad_at(
                              [&](const Variables& v) {
                                std::vector<Variable> in;
                                for (std::size_t i = 0; i < inputs.size(); ++i) {
                                  in.push_back(v.at("inputs/" + std::to_string(i)));
                                }
                                const Variable y = layer(v, in);
                                result.y = y.value();
                                return sum(y * Variable(g));
                              },
                              all, semantics)
                              .grads;
  result.variables = grads.without("inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    result.inputs.push_back(grads.value("inputs/" + std::to_string(i)));
  }
  return result;
}

double largest(const Tensor& x) {
  double result = 0;
  for (const float value : x.to_floats()) result = std::max(result, std::fabs(double{value}));
  return result;
}

// Within `factor` of the largest element.
void expect_near(const Tensor& got, const Tensor& expected, double factor,
                 const std::string& what) {
  expect_within(got, expected, Tensor::full(DType::f64, expected.shape(), largest(expected)),
                factor, what);
}

TEST(ModulesGolden, EinsumIsFlaxs) {
  const char* equations[] = {"abc,cde->...dabe", "...k,nk->...n", "bij,bjk->kbi", "ij,jk->i"};
  for (int i = 0; i < 4; ++i) {
    const std::string name = "einsum." + std::to_string(i);
    SCOPED_TRACE(name);
    const Variables variables = golden().variables(name + ".variables");
    const nn::Einsum layer{.shape = variables.at("params/kernel").shape(),
                           .equation = equations[i]};
    const Outcome got = outcome_of(
        [&](const Variables& v, std::span<const Variable> in) { return layer.apply(v, in[0]); },
        variables, {golden().at(name + ".x")}, golden().at(name + ".g"), Fp8Semantics::guarded);
    expect_same_bits(got.y, golden().at(name + ".y"), "y");
    expect_same_bits(got.inputs[0], golden().at(name + ".grads.0"), "dx");
    for (const auto& [path, expected] : golden().variables(name + ".new_variables")) {
      expect_same_bits(got.variables.value(path), expected.value(), path);
    }
  }
}

TEST(ModulesGolden, EmbedIsFlaxs) {
  const nn::Embed layer{.num_embeddings = 7, .features = 4};
  const Outcome got = outcome_of(
      [&](const Variables& v, std::span<const Variable>) {
        const nn::Scope scope = nn::Scope::apply(v);
        return layer.attend(scope, layer(scope, golden().at("embed.ids")));
      },
      golden().variables("embed.variables"), {}, golden().at("embed.g"), Fp8Semantics::guarded);
  expect_same_bits(got.y, golden().at("embed.y"), "y");
  expect_same_bits(got.variables.value("params/embedding"),
                   golden().at("embed.new_variables.params.embedding"), "embedding");
}

// Flax calls the product of "...hqk,...khd->...qhd" as (value, weights): there input_* is the state
// of value and kernel_* that of weights.
Variables exchanged(const Variables& variables) {
  const std::string module = std::string(kOverwriteWithGradient) + "/Fp8Einsum_1/";
  Variables result = variables;
  for (const char* what : {"_scale", "_amax_history"}) {
    result.set(module + "input" + what, variables.at(module + "kernel" + what));
    result.set(module + "kernel" + what, variables.at(module + "input" + what));
  }
  return result;
}

// Everything but softmax is exact, and no code lies so near another that its roundings matter: all
// is equal to the bit save the largest weight, and the largest gradient of a score.
TEST(ModulesGolden, AttentionInFp8IsFlaxs) {
  const std::string newest_of_softmax[] = {"Fp8Einsum_1/input_amax_history",
                                           "Fp8Einsum_0/output_grad_amax_history"};
  // Of theirs and ours: exp, of 2 units in the last place at most, its sum of 3, the quotient; and
  // the gradient's product, sum of 3, difference and product.
  const double of_softmax = 2 * relative_rounding(4 + 2 + 1 + 1 + 2 + 1 + 1);
  for (int step = 0; step < 3; ++step) {
    const std::string name = "attention.fp8." + std::to_string(step);
    for (const auto semantics : {Fp8Semantics::guarded, Fp8Semantics::flax_exact}) {
      SCOPED_TRACE(name);
      const nn::Fp8DotGeneral product{.amax_history_length = 4, .semantics = semantics};
      const nn::Fp8Einsum by_equation{.amax_history_length = 4, .semantics = semantics};
      const nn::MultiHeadDotProductAttention layer{.num_heads = 2,
                                                   .qkv_features = 8,
                                                   .use_bias = false,
                                                   .qkv_dot_general_cls = product,
                                                   .out_dot_general_cls = product,
                                                   .qk_attn_weights_einsum_cls = by_equation,
                                                   .attn_weights_value_einsum_cls = by_equation};
      const Outcome got = outcome_of(
          [&](const Variables& v, std::span<const Variable> in) {
            return layer.apply(v, in[0], {.keys = in[1], .values = in[2]});
          },
          exchanged(golden().variables(name + ".variables")),
          {golden().at(name + ".x.0"), golden().at(name + ".x.1"), golden().at(name + ".x.2")},
          golden().at(name + ".g"), semantics);
      expect_same_bits(got.y, golden().at(name + ".y"), "y");
      for (std::size_t i = 0; i < 3; ++i) {
        expect_same_bits(got.inputs[i], golden().at(name + ".grads." + std::to_string(i)),
                         "input " + std::to_string(i));
      }
      const Variables expected = exchanged(golden().variables(name + ".new_variables"));
      ASSERT_EQ(expected.size(), got.variables.size());
      for (const auto& [path, variable] : expected) {
        const bool is_of_softmax = std::ranges::any_of(
            newest_of_softmax, [&](const std::string& end) { return path.ends_with(end); });
        if (is_of_softmax) {
          expect_near(got.variables.value(path), variable.value(), of_softmax, path);
        } else {
          expect_same_bits(got.variables.value(path), variable.value(), path);
        }
      }
    }
  }
}

// In f64: a wrong definition shows in the first digits. Roundings on the longest way, to a kernel
// of queries, sums of n terms with their products being n. There: 6 features and a bias, a score of
// 4 and its scale, exp of a difference over a sum of 3, a mean of 3 values, 8 features and a bias.
constexpr std::size_t kThere = 7 + 5 + 6 + 3 + 9;
// Back: times g, 6 features, a weight of 4, its softmax (a sum of 3, a difference, a product), 3
// keys and the scale, 6 rows.
constexpr std::size_t kBack = 1 + 6 + 4 + 5 + 4 + 6;
// Of a norm of 8 numbers: two means, a difference, a square, epsilon, a root, a quotient, the scale
// and the bias; on the way back each of its operations has two products at most.
constexpr std::size_t kOfNorm = 3 * (9 + 9 + 1 + 1 + 1 + 1 + 1 + 1 + 1);
// Of theirs and ours. An error of a score is a relative one of weights: scores are below 64
// (checked). The terms of the two longest sums that follow each other, 8 and 6, are taken for no
// larger than what they sum to at most.
constexpr double kInF64 =
    2 * (1 + 64) * (8 * 6) * relative_rounding(kThere + kBack + kOfNorm, 0x1p-53);

TEST(ModulesGolden, AttentionIsFlaxs) {
  for (const std::string kind : {"plain", "causal", "normalize_qk"}) {
    const std::string name = "attention.f64." + kind;
    SCOPED_TRACE(name);
    const nn::EinsumCls checked = [](const nn::Scope&, std::string_view equation,
                                     const Variable& lhs, const Variable& rhs) {
      const Variable result = einsum(equation, lhs, rhs);
      EXPECT_LT(largest(result.value()), 64);
      return result;
    };
    const nn::MultiHeadDotProductAttention layer{.num_heads = 2,
                                                 .qkv_features = 8,
                                                 .normalize_qk = kind == "normalize_qk",
                                                 .param_dtype = DType::f64,
                                                 .qk_attn_weights_einsum_cls = checked,
                                                 .attn_weights_value_einsum_cls = checked};
    nn::AttentionInputs inputs;
    if (kind == "causal") inputs.mask = nn::causal_mask(3);
    const Outcome got = outcome_of(
        [&](const Variables& v, std::span<const Variable> in) {
          inputs.keys = in[1];
          inputs.values = in[2];
          return layer.apply(v, in[0], inputs);
        },
        golden().variables(name + ".variables"),
        {golden().at(name + ".x.0"), golden().at(name + ".x.1"), golden().at(name + ".x.2")},
        golden().at(name + ".g"), Fp8Semantics::guarded);
    expect_near(got.y, golden().at(name + ".y"), kInF64, "y");
    for (std::size_t i = 0; i < 3; ++i) {
      expect_near(got.inputs[i], golden().at(name + ".grads." + std::to_string(i)), kInF64,
                  "input " + std::to_string(i));
    }
    const Variables expected = golden().variables(name + ".new_variables");
    ASSERT_EQ(expected.size(), got.variables.size());
    // The bias of keys moves all scores of a query alike: its gradient is 0, as large as what is
    // lost of the others.
    const double of_keys = largest(expected.value("params/key/kernel"));
    for (const auto& [path, variable] : expected) {
      if (path == "params/key/bias" && kind != "normalize_qk") {
        EXPECT_LE(largest(got.variables.value(path)), kInF64 * of_keys);
      } else {
        expect_near(got.variables.value(path), variable.value(), kInF64, path);
      }
    }
  }
}

TEST(ModulesGolden, NormsAreFlaxs) {
  for (const std::string kind : {"rms", "layer"}) {
    const std::string name = "norm." + kind;
    SCOPED_TRACE(name);
    const Outcome got = outcome_of(
        [&](const Variables& v, std::span<const Variable> in) {
          return kind == "rms" ? nn::RMSNorm{.param_dtype = DType::f64}.apply(v, in[0])
                               : nn::LayerNorm{.param_dtype = DType::f64}.apply(v, in[0]);
        },
        golden().variables(name + ".variables"), {golden().at(name + ".x")},
        golden().at(name + ".g"), Fp8Semantics::guarded);
    expect_near(got.y, golden().at(name + ".y"), kInF64, "y");
    expect_near(got.inputs[0], golden().at(name + ".grads.0"), kInF64, "dx");
    for (const auto& [path, expected] : golden().variables(name + ".new_variables")) {
      expect_near(got.variables.value(path), expected.value(), kInF64, path);
    }
  }
}

}  // namespace
}  // namespace octavo
