// FP8 layers against Flax's, tests/golden/flax/make_layers.py: values, gradients and new state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/value_and_grad.h"
#include "octavo/nn/dense.h"
#include "octavo/nn/dense_general.h"
#include "octavo/nn/einsum.h"
#include "octavo/train/flax_golden_testing.h"
#include "octavo/train/train_testing.h"

namespace octavo {
namespace {

using testing::expect_same_bits;
using testing::expect_within;
using testing::FlaxGolden;
using testing::magnitudes;
using testing::relative_rounding;

constexpr const char* kX = "inputs/x";

const FlaxGolden& golden() {
  static const FlaxGolden data("layers");
  return data;
}

struct Case {
  const char* name;
  std::function<Variable(const nn::Scope&, const Variable&, const nn::DotGeneralCls&)> layer;
  enum Recipe { direct, qdq, nanoo } recipe = direct;
};

std::vector<Case> cases() {
  const auto dense = [](nn::Dense layer) {
    return [layer](const nn::Scope& scope, const Variable& x, const nn::DotGeneralCls& cls) {
      nn::Dense with = layer;
      with.dot_general_cls = cls;
      return with(scope, x);
    };
  };
  const auto general = [](nn::DenseGeneral layer) {
    return [layer](const nn::Scope& scope, const Variable& x, const nn::DotGeneralCls& cls) {
      nn::DenseGeneral with = layer;
      with.dot_general_cls = cls;
      return with(scope, x);
    };
  };
  return {
      {"dense", dense({5})},
      {"dense_no_bias", dense({5, false})},
      {"dense_qdq", dense({5}), Case::qdq},
      {"dense_nanoo", dense({5}), Case::nanoo},
      {"dense_dtype_bf16", dense({5, true, DType::bf16})},
      {"dense_dtype_bf16_qdq", dense({5, true, DType::bf16}), Case::qdq},
      {"dense_params_bf16", dense({5, true, DType::bf16, DType::bf16})},
      {"dense_x_bf16", dense({5})},
      {"general_two_features", general({{5, 2}})},
      {"general_two_axes", general({{5, 2}, {-2, -1}})},
      {"general_axis_1", general({{5}, {1}})},
      {"general_axes_1_3", general({{5}, {3, 1}})},
      {"general_batch", general({{5}, {-1}, {0}})},
      {"general_batch_2", general({{5, 2}, {-1}, {0, 1}})},
      {"general_bf16", general({{5, 2}, {-2, -1}, {}, true, DType::bf16})},
      {"dense_dtype_f16", dense({5, true, DType::f16})},
      {"dense_dtype_f16_qdq", dense({5, true, DType::f16}), Case::qdq},
      {"dense_params_f16", dense({5, true, DType::f16, DType::f16})},
      {"dense_x_f16", dense({5})},
  };
}

nn::DotGeneralCls product(Case::Recipe recipe, Fp8Semantics semantics, std::size_t length) {
  if (recipe == Case::nanoo) return nn::NANOOFp8DotGeneralOp{length, semantics};
  if (recipe == Case::direct) return nn::Fp8DotGeneral{length, fp8::kOcp, semantics};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return nn::Fp8DotGeneralOp{{.amax_history_length = length, .semantics = semantics}};
#pragma GCC diagnostic pop
}

// Loss, and gradients by all variables and x (at kX).
struct Outcome {
  Tensor y;
  ValueAndGrad at;
};
using Layer = std::function<Variable(const Variables&, const Variable& x)>;

Outcome outcome_of(const Layer& layer, Variables variables, const Tensor& x, const Tensor& g,
                   Fp8Semantics semantics, bool is_mean = false) {
  Outcome result;
  variables.set(kX, x);
  result.at = value_and_grad_at(
      [&](const Variables& v) {
        const Variable y = layer(v, v.at(kX));
        result.y = y.value();
        const Variable terms = cast(y, DType::f32) * Variable(g);
        return is_mean ? mean(terms) : sum(terms);
      },
      variables, semantics);
  return result;
}

// A product of two codes is larger than what it stands for by half a step of each at most: e4m3 has
// steps of an eighth, a gradient in e5m2 of a quarter.
constexpr double kGrown = (1 + 1.0 / 16) * (1 + 1.0 / 8);
constexpr double kEpsilon = std::numeric_limits<float>::epsilon();

// Few codes of integers: sums of products are exact, so that all is equal to the bit, but for two:
// XLA adds a bias in f32 before it rounds the scaled product, and sums the loss in another order.
TEST(LayersGolden, DirectProductsAreFlaxsToTheBit) {
  for (const Case& c : cases()) {
    if (c.recipe != Case::direct) continue;
    for (int step = 0; step < 3; ++step) {
      const std::string name = std::string(c.name) + "." + std::to_string(step);
      SCOPED_TRACE(name);
      const Variables variables = golden().variables(name + ".variables");
      const Tensor &x = golden().at(name + ".x"), &y = golden().at(name + ".y");
      // Guarded rounds once, Flax after each operation: in f32 that is the same.
      std::vector<Fp8Semantics> all = {Fp8Semantics::flax_exact};
      if (y.dtype() == DType::f32) all.push_back(Fp8Semantics::guarded);
      for (const Fp8Semantics semantics : all) {
        const nn::DotGeneralCls cls = product(c.recipe, semantics, 4);
        const Outcome got =
            outcome_of([&](const Variables& v,
                           const Variable& in) { return c.layer(nn::Scope::apply(v), in, cls); },
                       variables, x, golden().at(name + ".g"), semantics);
        const Outcome bound = outcome_of(
            [&](const Variables& v, const Variable& in) {
              return c.layer(nn::Scope::apply(v), in, nn::PlainDotGeneral{});
            },
            magnitudes(variables), magnitudes(x), magnitudes(golden().at(name + ".g")),
            Fp8Semantics::guarded);
        if (y.dtype() == DType::f32 && variables.contains("params/bias")) {
          // Theirs is rounded once, ours twice, by half an epsilon.
          expect_within(got.y, y, bound.y, 3 * kGrown * kEpsilon / 2, "y");
        } else {
          expect_same_bits(got.y, y, "y");
        }
        expect_within(got.at.value, golden().at(name + ".loss"), bound.at.value,
                      kGrown * static_cast<double>(y.size() + 2) * kEpsilon, "loss");
        expect_same_bits(got.at.grads.value(kX), golden().at(name + ".dx"), "dx");
        for (const auto& [path, expected] : golden().variables(name + ".new_variables")) {
          expect_same_bits(got.at.grads.value(path), expected.value(), path);
        }
      }
    }
  }
}

// Dequantized values are no integers: sums of at most 6 products, in another order.
TEST(LayersGolden, QdqProductsAreFlaxs) {
  for (const Case& c : cases()) {
    if (c.recipe == Case::direct) continue;
    for (int step = 0; step < 3; ++step) {
      const std::string name = std::string(c.name) + "." + std::to_string(step);
      SCOPED_TRACE(name);
      const Variables variables = golden().variables(name + ".variables");
      const Tensor &x = golden().at(name + ".x"), &g = golden().at(name + ".g");
      const auto with = [&](const nn::DotGeneralCls& cls) -> Layer {
        return [&c, cls](const Variables& v, const Variable& in) {
          return c.layer(nn::Scope::apply(v), in, cls);
        };
      };
      const Outcome got = outcome_of(with(product(c.recipe, Fp8Semantics::flax_exact, 4)),
                                     variables, x, g, Fp8Semantics::flax_exact);
      const Outcome bound = outcome_of(with(nn::PlainDotGeneral{}), magnitudes(variables),
                                       magnitudes(x), magnitudes(g), Fp8Semantics::guarded);
      const DType type = got.y.dtype();
      const double unit = type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24;
      // Of theirs and of ours: a product, 5 sums, the bias, and the type of the result.
      const double factor = kGrown * 2 * relative_rounding(8, unit);
      // And of the loss: a product with g, and sums, in f32.
      const double of_loss = factor + kGrown * 2 * relative_rounding(got.y.size());
      expect_within(got.y, golden().at(name + ".y"), bound.y, factor, "y");
      expect_within(got.at.value, golden().at(name + ".loss"), bound.at.value, of_loss, "loss");
      expect_within(got.at.grads.value(kX), golden().at(name + ".dx"), bound.at.grads.value(kX),
                    factor, "dx");
      for (const auto& [path, expected] : golden().variables(name + ".new_variables")) {
        if (collection_of(path) == kOverwriteWithGradient) {
          expect_same_bits(got.at.grads.value(path), expected.value(), path);
        } else {
          expect_within(got.at.grads.value(path), expected.value(), bound.at.grads.value(path),
                        factor, path);
        }
      }
    }
  }
}

// The product alone: Flax keeps its state in the root.
Variables in_module(const Variables& of_root) {
  Variables result;
  for (const auto& [path, variable] : of_root) {
    const std::string_view name = std::string_view(path).substr(kOverwriteWithGradient.size() + 1);
    result.set(
        std::string(kOverwriteWithGradient) + "/Fp8DirectDotGeneralOp_0/" + std::string(name),
        variable);
  }
  return result;
}

void expect_product(const std::string& name, const char* lhs, const char* rhs, const char* d_lhs,
                    const char* d_rhs, Fp8Semantics semantics) {
  SCOPED_TRACE(name);
  const auto at = [&](const char* what) -> const Tensor& { return golden().at(name + "." + what); };
  const Variables state = in_module(golden().variables(name + ".variables"));
  std::vector<std::string> paths;
  std::vector<Tensor> inputs = {at(lhs), at(rhs)};
  for (const auto& [path, variable] : state) {
    paths.push_back(path);
    inputs.push_back(variable.value());
  }
  const ValueAndVjp got = value_and_vjp(
      [&](std::span<const Variable> in) {
        Variables v;
        for (std::size_t i = 0; i < paths.size(); ++i) v.set(paths[i], in[2 + i]);
        return nn::Fp8DotGeneral{4, fp8::kOcp, semantics}(nn::Scope::apply(v), in[0], in[1],
                                                          ops::matmul_dims(2));
      },
      inputs, at("g"));
  expect_same_bits(got.value, at("y"), "y");
  expect_same_bits(got.grads[0], at(d_lhs), d_lhs);
  expect_same_bits(got.grads[1], at(d_rhs), d_rhs);
  const Variables expected = in_module(golden().variables(name + ".new_variables"));
  for (std::size_t i = 0; i < paths.size(); ++i) {
    expect_same_bits(got.grads[2 + i], expected.value(paths[i]), paths[i]);
  }
}

TEST(LayersGolden, TheWorkedExample) {
  for (const char* name : {"worked.0", "worked.1", "worked.2"}) {
    for (const auto semantics : {Fp8Semantics::guarded, Fp8Semantics::flax_exact}) {
      expect_product(name, "lhs", "rhs", "d_lhs", "d_rhs", semantics);
    }
  }
}

// x in f32, random values: each operation of Flax rounds to the kernel's type. In f16 what is not
// scaled yet overflows from the second step on, as it does there.
TEST(LayersGolden, ANarrowKernelAsFlaxRoundsIt) {
  for (const char* name : {"bf16_kernel.0", "bf16_kernel.1", "bf16_kernel.2", "f16_kernel.0",
                           "f16_kernel.1", "f16_kernel.2"}) {
    expect_product(name, "x", "kernel", "dx", "dk", Fp8Semantics::flax_exact);
  }
}

// Guarded: in f16 nothing overflows, all is f32 rounded once.
TEST(LayersGolden, AnF16KernelGuarded) {
  for (const std::string name : {"f16_kernel.0", "f16_kernel.1", "f16_kernel.2"}) {
    SCOPED_TRACE(name);
    const Variables state = in_module(golden().variables(name + ".variables"));
    const auto run = [&](DType type) {
      Variables variables = state;
      for (const char* what : {"x", "kernel", "g"}) {
        const Tensor narrow = golden().at(name + "." + what).astype(DType::f16);
        variables.set(std::string("inputs/") + what, narrow.astype(type));
      }
      Outcome result;
      result.at = value_and_grad_at(
          [&](const Variables& v) {
            const Variable y = nn::Fp8DotGeneral{4}(nn::Scope::apply(v), v.at(kX),
                                                    v.at("inputs/kernel"), ops::matmul_dims(2));
            result.y = y.value();
            return sum(cast(y, DType::f32) * cast(v.at("inputs/g"), DType::f32));
          },
          variables);
      return result;
    };
    const Outcome narrow = run(DType::f16), wide = run(DType::f32);
    expect_same_bits(narrow.y, wide.y.astype(DType::f16), "y");
    for (const char* what : {kX, "inputs/kernel"}) {
      const Tensor gradient = narrow.at.grads.value(what);
      expect_same_bits(gradient, wide.at.grads.value(what).astype(DType::f16), what);
      for (const float v : gradient.to_floats()) EXPECT_TRUE(std::isfinite(v)) << what;
    }
    for (const auto& [path, value] : state) {
      expect_same_bits(narrow.at.grads.value(path), wide.at.grads.value(path), path);
    }
    for (const float v : narrow.y.to_floats()) EXPECT_TRUE(std::isfinite(v));
  }
}

// Sums of 32 or 64 products in another order.
TEST(LayersGolden, Fp8EinsumOfFlaxsTest) {
  const char* equations[] = {"mk,kn->mn", "...k,nk->...n", "...k,kn->...n"};
  for (int i = 0; i < 3; ++i) {
    const std::string name = "einsum." + std::to_string(i);
    SCOPED_TRACE(name);
    const auto at = [&](const char* what) -> const Tensor& {
      return golden().at(name + "." + what);
    };
    const auto loss = [&](bool is_fp8, const Tensor& g) {
      return [&, is_fp8, g](const Variables& v) {
        const Variable &x = v.at(kX), &y = v.at("inputs/y");
        const Variable product =
            is_fp8 ? nn::Fp8Einsum{}.apply(v, equations[i], x, y) : einsum(equations[i], x, y);
        return sum(product * Variable(g));
      };
    };
    Variables variables = nn::Fp8Einsum{}.init(Rng(0), equations[i], at("x"), at("y"));
    variables.set(kX, at("x"));
    variables.set("inputs/y", at("y"));
    const ValueAndGrad got = value_and_grad_at(loss(true, at("g")), variables);
    const ValueAndGrad bound =
        value_and_grad_at(loss(false, magnitudes(at("g"))), magnitudes(variables));
    const double per_sum = kGrown * 64 * kEpsilon;
    const double terms = static_cast<double>(at("g").size());
    expect_within(got.value, at("loss"), bound.value, per_sum + terms * kEpsilon, "loss");
    expect_within(got.grads.value(kX), at("grads.0"), bound.grads.value(kX), per_sum, "dx");
    expect_within(got.grads.value("inputs/y"), at("grads.1"), bound.grads.value("inputs/y"),
                  per_sum, "dy");
    for (const auto& [path, expected] : golden().variables(name + ".new_variables")) {
      expect_same_bits(got.grads.value(path), expected.value(), path);
    }
  }
}

// Flax's kernels and inputs.
TEST(LayersGolden, InjectionOfFlaxsTest) {
  for (const bool is_ocp : {true, false}) {
    const std::string name = is_ocp ? "injection.ocp" : "injection.nanoo";
    SCOPED_TRACE(name);
    const Variables variables = golden().variables(name + ".variables");
    const Tensor &x = golden().at(name + ".x"), &dy = golden().at(name + ".dy");
    const auto with = [](const nn::DotGeneralCls& cls) -> Layer {
      return [cls](const Variables& v, const Variable& in) {
        return nn::DenseGeneral{.features = {64}, .dot_general_cls = cls}.apply(v, in);
      };
    };
    const auto cls = product(is_ocp ? Case::direct : Case::nanoo, Fp8Semantics::flax_exact, 1024);
    const Outcome got = outcome_of(with(cls), variables, x, dy, Fp8Semantics::flax_exact, true);
    const Outcome bound = outcome_of(with(nn::PlainDotGeneral{}), magnitudes(variables),
                                     magnitudes(x), magnitudes(dy), Fp8Semantics::guarded, true);
    const double factor = kGrown * 64 * kEpsilon;
    expect_within(got.y, golden().at(name + ".y"), bound.y, factor, "y");
    expect_within(got.at.value, golden().at(name + ".loss"), bound.at.value,
                  factor + 1024 * kEpsilon, "loss");
    expect_within(got.at.grads.value(kX), golden().at(name + ".dx"), bound.at.grads.value(kX),
                  factor, "dx");
    for (const auto& [path, expected] : golden().variables(name + ".new_variables")) {
      if (collection_of(path) == kOverwriteWithGradient) {
        expect_same_bits(got.at.grads.value(path), expected.value(), path);
      } else {
        expect_within(got.at.grads.value(path), expected.value(), bound.at.grads.value(path),
                      factor, path);
      }
    }
  }
}

}  // namespace
}  // namespace octavo
