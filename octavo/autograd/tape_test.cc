#include "octavo/autograd/tape.h"

#include "octavo/autograd/autograd_testing.h"
#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/shape.h"

namespace octavo::testing {
namespace {

using ::octavo::accumulate;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::shared_ptr<Tape> new_tape() { return std::make_shared<Tape>(); }

TEST(Tape, RefusesVariablesOfTwoTapes) {
  const auto a = new_tape(), b = new_tape();
  const Variable x = a->watch(Tensor::scalar(1)), y = b->watch(Tensor::scalar(2));
  EXPECT_EQ(refusal([&] { x + y; }),
            "add: given variables of two tapes, expected those of one value_and_grad");
}

TEST(Tape, RefusesInputsAndWantedVariablesOfAnotherTape) {
  const std::string two = "given variables of two tapes, expected those of one value_and_grad";
  const auto tape = new_tape(), other = new_tape();
  const Variable x = tape->watch(Tensor::scalar(1)), foreign = other->watch(Tensor::scalar(2));
  const VectorJacobian rule = [](std::span<const Cotangent> g) { return std::vector{g[0]}; };
  EXPECT_EQ(refusal([&] {
              tape->record("odd", {Tensor::scalar(0)}, std::span(&foreign, 1), rule,
                           RunRule::with_cotangent);
            }),
            "odd: " + two);
  EXPECT_EQ(refusal([&] { tape->backward(x, Tensor::scalar(1), std::vector{x, foreign}); }),
            "backward: " + two);
  // Nothing was spent; constants among those wanted have no cotangent.
  const auto cotangents =
      tape->backward(x, Tensor::scalar(3), std::vector{x, Variable(Tensor::scalar(1))});
  EXPECT_EQ(cotangents[0]->item(), 3);
  EXPECT_EQ(cotangents[1], std::nullopt);
}

TEST(Tape, RefusesASeedOfAnotherShapeOrType) {
  const auto tape = new_tape();
  const Variable x = tape->watch(Tensor::ones(DType::f32, {2, 3}));
  const auto back = [&](const Tensor& seed) {
    return refusal([&] { tape->backward(x, seed, std::vector{x}); });
  };
  EXPECT_EQ(back(Tensor::ones(DType::f32, {3, 2})),
            "backward: given a seed [3, 2] of F32, expected [2, 3] of F32");
  EXPECT_EQ(back(Tensor::ones(DType::bf16, {2, 3})),
            "backward: given a seed [2, 3] of BF16, expected [2, 3] of F32");
  EXPECT_EQ(back(Tensor::ones(DType::f32, {2, 3})), "");
}

TEST(Tape, GoesBackOnce) {
  const auto tape = new_tape();
  const Variable x = tape->watch(Tensor::scalar(3));
  const Variable y = x * x;
  EXPECT_EQ(tape->backward(y, Tensor::scalar(1), std::vector{x})[0]->item(), 6);
  EXPECT_EQ(refusal([&] { tape->backward(y, Tensor::scalar(1), std::vector{x}); }),
            "backward: given a tape that went back before, expected a new one");
  EXPECT_EQ(refusal([&] { y + y; }),
            "add: given a variable of a value_and_grad that has returned, expected its value()");
  EXPECT_EQ((y.value().item()), 9);
}

TEST(Tape, RefusesRulesThatGiveWrongCotangents) {
  const auto back = [](const VectorJacobian& rule) {
    const auto tape = new_tape();
    const Variable x = tape->watch(Tensor::ones(DType::f32, {2, 3}));
    const Variable y = record("odd", {Tensor::scalar(0)}, std::span(&x, 1), rule)[0];
    return refusal([&] { tape->backward(y, Tensor::scalar(1), std::vector{x}); });
  };
  using Given = std::span<const Cotangent>;
  EXPECT_EQ(back([](Given) { return std::vector<Cotangent>(2); }),
            "odd: given a rule with 2 cotangents, expected 1");
  EXPECT_EQ(back([](Given) { return std::vector<Cotangent>{Tensor::ones(DType::f32, {3, 2})}; }),
            "odd: given a cotangent [3, 2] of F32 for input 0, expected [2, 3] of F32");
  EXPECT_EQ(back([](Given) { return std::vector<Cotangent>{Tensor::ones(DType::bf16, {2, 3})}; }),
            "odd: given a cotangent [2, 3] of BF16 for input 0, expected [2, 3] of F32");
  EXPECT_EQ(back([](Given) { return std::vector<Cotangent>(1); }), "");
}

TEST(Tape, RunsRulesLatestFirstAndOnlyThoseOnThePath) {
  const auto tape = new_tape();
  std::string order;
  const auto step = [&](const Variable& x, char name, RunRule run = RunRule::with_cotangent) {
    return record(
        "step", {x.value()}, std::span(&x, 1),
        [&order, name](std::span<const Cotangent> g) {
          order += name;
          return std::vector<Cotangent>{g[0]};
        },
        run)[0];
  };
  const Variable x = tape->watch(Tensor::scalar(1));
  const Variable a = step(x, 'a');
  step(a, 'b');                         // not on the path
  step(a, 'c', RunRule::when_on_path);  // nor this
  const Variable d = step(a, 'd'), e = step(d, 'e');
  tape->backward(e, Tensor::scalar(1), std::vector{x});
  EXPECT_EQ(order, "eda");
}

TEST(Tape, RunsWithoutCotangentWhatAsksForIt) {
  const auto tape = new_tape();
  const Variable x = tape->watch(Tensor::scalar(1));
  const auto state = [](const Variable& v, RunRule run) {
    return record(
        "state", {v.value()}, std::span(&v, 1),
        [](std::span<const Cotangent> g) {
          return std::vector<Cotangent>{Tensor::scalar(g[0] ? 1 : 5)};
        },
        run)[0];
  };
  const auto blocked = [](const Variable& v) {
    return record("blocked", v.value(), std::span(&v, 1),
                  [](const Tensor&) { return std::vector<Cotangent>(1); });
  };
  const Variable y = blocked(state(x, RunRule::when_on_path));
  EXPECT_EQ(tape->backward(y, Tensor::scalar(1), std::vector{x})[0]->item(), 5);

  const auto other = new_tape();
  const Variable z = other->watch(Tensor::scalar(1));
  EXPECT_EQ(other->backward(blocked(state(z, RunRule::with_cotangent)), Tensor::scalar(1),
                            std::vector{z})[0],
            std::nullopt);
}

TEST(Tape, RecordsNothingWithoutOne) {
  const Variable x = Tensor::scalar(2);
  EXPECT_FALSE((x * x + x).is_recorded());
  const auto tape = new_tape();
  EXPECT_TRUE((x * tape->watch(Tensor::scalar(2))).is_recorded());
}

TEST(Tape, StopsAtStopGradient) {
  const Tensor x = Tensor::from({2, 3}, {2});
  const auto result = value_and_vjp(
      [](std::span<const Variable> in) { return in[0] * stop_gradient(in[0] * in[0]); },
      std::vector{x}, Tensor::ones(DType::f32, {2}));
  expect_bits(result.value, Tensor::from({8, 27}, {2}));
  expect_bits(result.grads[0], Tensor::from({4, 9}, {2}));
}

TEST(Accumulate, Sums) {
  expect_bits(accumulate(Tensor::from({1, 2}, {2}), Tensor::from({3, -2}, {2}), Accumulation::sum),
              Tensor::from({4, 0}, {2}));
}

TEST(Accumulate, RefusesTwoShapesOrTypes) {
  const Tensor a = Tensor::ones(DType::f32, {2});
  EXPECT_EQ(refusal([&] { accumulate(a, Tensor::ones(DType::bf16, {2}), Accumulation::sum); }),
            "accumulate: given types F32 and BF16, expected the same");
  EXPECT_EQ(refusal([&] { accumulate(a, Tensor::ones(DType::f32, {1}), Accumulation::maximum); }),
            "accumulate: given shapes [2] and [1], expected the same");
}

TEST(Accumulate, RoundsBf16Once) {
  // 1 + 2^-8 is a tie in bf16, to even: 1. 1 + 3 * 2^-8 is one too: 1 + 2^-6.
  const Tensor a = Tensor::from({1, 1}, {2}, DType::bf16);
  const Tensor b = Tensor::from({0x1p-8f, 0x3p-8f}, {2}, DType::bf16);
  expect_bits(accumulate(a, b, Accumulation::sum),
              Tensor::from({1, 1 + 0x1p-6f}, {2}, DType::bf16));
}

TEST(Accumulate, TakesTheMaximumAndNanWins) {
  const Tensor a = Tensor::from({1, -kInfinity, kNan, 2, -3}, {5});
  const Tensor b = Tensor::from({2, 5, 1, kNan, -4}, {5});
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
    const std::vector<float> m = accumulate(x, y, Accumulation::maximum).to_floats();
    EXPECT_EQ((std::vector{m[0], m[1], m[4]}), (std::vector{2.0f, 5.0f, -3.0f}));
    EXPECT_TRUE(std::isnan(m[2]) && std::isnan(m[3]));
  }
}

TEST(Accumulate, ByTheVariablesOwnWay) {
  const auto gradient = [](Accumulation way) {
    return value_and_vjp(
               [&](std::span<const Variable> in) {
                 const Variable x = with_accumulation(in[0], way);
                 return scale(x, 2) + scale(x, 3) + scale(x, -7);
               },
               std::vector{Tensor::scalar(1)}, Tensor::scalar(1))
        .grads[0]
        .item();
  };
  EXPECT_EQ(gradient(Accumulation::sum), -2);
  EXPECT_EQ(gradient(Accumulation::maximum), 3);
}

TEST(Accumulate, ByMaximumIsForF32) {
  EXPECT_EQ(refusal([] { as_fp32_max_grad(Tensor::scalar(1, DType::bf16)); }),
            "fp32_max_grad: given BF16, expected F32");
}

}  // namespace
}  // namespace octavo::testing
