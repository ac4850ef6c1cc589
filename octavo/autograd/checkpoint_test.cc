// Recomputation: the same bits, and less that is kept.
#include "octavo/autograd/checkpoint.h"

#include "octavo/autograd/dot_general.h"
#include "octavo/autograd/dropout.h"
#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/fp8_testing.h"
#include "octavo/autograd/memory_testing.h"
#include "octavo/autograd/norm.h"
#include "octavo/autograd/shape.h"

namespace octavo::testing {
namespace {

using Inputs = std::span<const Variable>;

// x, kernels, and the state of one FP8 product between them.
Variable block(Inputs in) {
  const Variable h = gelu(matmul(rms_norm(in[0], {}), in[1]));
  const Variable y =
      fp8::fp8_scaled_dot_general(dropout(h, 0.25, Rng(11)), in[2], ops::matmul_dims(2),
                                  {in[3], in[4], in[5], in[6], in[7], in[8]});
  return in[0] + y;
}

std::vector<Tensor> block_inputs() {
  std::mt19937 random(1);
  const MetaState state;
  const auto& [s, h] = state;
  return {grid(random, {24, 16}, DType::f32),
          grid(random, {16, 32}, DType::f32),
          grid(random, {32, 16}, DType::f32),
          s[0],
          s[1],
          s[2],
          Tensor::from({3, 0, 0, 0}, {4}),
          h[1],
          h[2]};
}

TEST(Checkpoint, GivesTheSameBitsFp8StateIncluded) {
  std::mt19937 random(2);
  const std::vector<Tensor> inputs = block_inputs();
  const Tensor g = grid(random, {24, 16}, DType::f32);
  // A block before and after: its cotangents come from rules and go to rules.
  const auto net = [](const VariableFunction& f) {
    return [f](Inputs in) {
      std::vector<Variable> inner(in.begin(), in.end());
      inner[0] = silu(in[0]);
      return scale(f(inner), 0.5);
    };
  };
  const ValueAndVjp plain = value_and_vjp(net(block), inputs, g);
  const ValueAndVjp again = value_and_vjp(net(checkpoint(block)), inputs, g);
  const ValueAndVjp nested = value_and_vjp(net(checkpoint(checkpoint(block))), inputs, g);
  expect_bits(again.value, plain.value);
  ASSERT_EQ(plain.grads.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(same_bits(again.grads[i], plain.grads[i])) << "input " << i;
    EXPECT_TRUE(same_bits(nested.grads[i], plain.grads[i])) << "input " << i;
  }
  // The state did move.
  EXPECT_EQ(plain.grads[3].item(), 1.0f / (448.0f / 3));
}

TEST(Checkpoint, AccumulatesStateByMaximum) {
  const std::string owg = "_overwrite_with_gradient/";
  std::vector<Tensor> inputs = block_inputs();
  Variables variables;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    variables.set((i < 3 ? "params/" : owg) + std::to_string(i), inputs[i]);
  }
  // Two uses of the same state.
  const auto loss = [&](const VariableFunction& f) {
    return [&, f](const Variables& v) {
      std::vector<Variable> in;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        in.push_back(v.at((i < 3 ? "params/" : owg) + std::to_string(i)));
      }
      in[0] = f(in);
      return sum(f(in));
    };
  };
  const ValueAndGrad plain = value_and_grad(loss(block))(variables);
  const ValueAndGrad again = value_and_grad(loss(checkpoint(block)))(variables);
  for (const auto& [path, gradient] : plain.grads) {
    EXPECT_TRUE(same_bits(again.grads.value(path), gradient.value())) << path;
  }
}

TEST(Checkpoint, RunsStateRulesThatNoCotangentReaches) {
  // in_q's codes get none; its state is updated all the same.
  const auto f = [](Inputs in) {
    return fp8::in_q(DType::f32, DType::f8_e4m3, in[0], in[1], in[2]).q;
  };
  const auto run = [](const VariableFunction& inner) {
    return value_and_vjp(
               [&](Inputs in) {
                 const Variable q = inner(in);
                 return record("codes", q.value().astype(DType::f32), std::span(&q, 1),
                               [](const Tensor&) { return std::vector<Cotangent>(1); });
               },
               std::vector{Tensor::from({2}, {1}), Tensor::from({1}, {1}),
                           Tensor::from({0, 0}, {2})},
               Tensor::ones(DType::f32, {1}))
        .grads[2];
  };
  expect_bits(run(f), Tensor::from({2, 0}, {2}));
  expect_bits(run(checkpoint(f)), run(f));
}

TEST(Checkpoint, RefusesVariablesThatAreNoInputs) {
  const Tensor x = Tensor::ones(DType::f32, {2});
  EXPECT_EQ(refusal([&] {
              value_and_vjp(
                  [](Inputs in) {
                    const auto f = checkpoint([&in](Inputs x0) { return x0[0] * in[1]; });
                    return f({&in[0], 1});
                  },
                  std::vector{x, x}, x);
            }),
            "checkpoint: given a function that uses a differentiated variable of its "
            "surroundings, expected all of them among its inputs");
}

TEST(Checkpoint, RefusesAFunctionThatGivesAnotherShapeOrType) {
  const Tensor x = Tensor::ones(DType::f32, {2, 3});
  const auto run = [&](const VariableFunction& second) {
    int calls = 0;
    const auto f = [&](Inputs in) { return ++calls == 1 ? scale(in[0], 2) : second(in); };
    return refusal([&] { value_and_vjp(checkpoint(f), std::vector{x}, x); });
  };
  const std::string given = "checkpoint: given a function that gives [2, 3] of F32, then ";
  const std::string expected = ", expected the same for the same inputs";
  EXPECT_EQ(run([](Inputs in) { return reshape(in[0], {3, 2}); }),
            given + "[3, 2] of F32" + expected);
  EXPECT_EQ(run([](Inputs in) { return cast(in[0], DType::bf16); }),
            given + "[2, 3] of BF16" + expected);
  EXPECT_EQ(run([](Inputs in) { return scale(in[0], 2); }), "");
}

TEST(Checkpoint, RecordsNothingInInference) {
  const std::vector<Tensor> inputs = block_inputs();
  const std::vector<Variable> constants(inputs.begin(), inputs.end());
  const Variable y = checkpoint(block)(constants);
  EXPECT_FALSE(y.is_recorded());
  expect_bits(y.value(), block(constants).value());
}

// What a run of three blocks holds when it has gone forward, beyond its start.
std::size_t bytes_kept(const VariableFunction& f) {
  std::size_t kept = 0;
  const std::size_t rows = 256, width = 64;
  const auto net = [&](Inputs in) {
    const std::size_t before = bytes_in_use();
    Variable x = in[0];
    for (int i = 0; i < 3; ++i) {
      const std::array<Variable, 3> inner = {x, in[1], in[2]};
      x = f(inner);
    }
    kept = bytes_in_use() - before;
    return x;
  };
  std::mt19937 random(3);
  value_and_vjp(net,
                std::vector{grid(random, {rows, width}, DType::f32),
                            grid(random, {width, 4 * width}, DType::f32),
                            grid(random, {4 * width, width}, DType::f32)},
                Tensor::ones(DType::f32, {rows, width}));
  return kept;
}

TEST(Checkpoint, KeepsInputsAlone) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's malloc does not say what it holds";
#endif
  const auto mlp = [](Inputs in) {
    return in[0] + matmul(gelu(matmul(rms_norm(in[0], {}), in[1])), in[2]);
  };
  constexpr std::size_t kNarrow = 256 * 64 * sizeof(float), kWide = 4 * kNarrow;
  bytes_kept(mlp);  // grows the buffers of threads
  const std::size_t plain = bytes_kept(mlp), again = bytes_kept(checkpoint(mlp));
  // Of each block: the normalized rows, the wide ones before and after gelu, and the result; the
  // product before the sum is dropped, which would be three narrow tensors more. Records and what
  // malloc adds, two pages at most for each of the 12 tensors, are less than two.
  EXPECT_GE(plain, 3 * (2 * kNarrow + 2 * kWide));
  EXPECT_LT(plain, 3 * (2 * kNarrow + 2 * kWide) + 2 * kNarrow);
  // Checkpointed: the result, which is the next one's input. Records and what malloc adds are less
  // than a narrow tensor.
  EXPECT_GE(again, 3 * kNarrow);
  EXPECT_LT(again, 3 * kNarrow + kNarrow);
}

}  // namespace
}  // namespace octavo::testing
