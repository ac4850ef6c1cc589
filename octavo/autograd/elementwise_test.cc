#include "octavo/autograd/elementwise.h"

#include "octavo/autograd/autograd_testing.h"
#include "octavo/autograd/broadcast_internal.h"
#include "octavo/autograd/shape.h"

namespace octavo::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Element i of `to` reads this element of `from`, axis by axis.
std::size_t index_in(const Shape& from, const Shape& to, std::size_t i) {
  const Shape at = unravel(i, to);
  std::size_t index = 0;
  for (std::size_t axis = 0; axis < from.size(); ++axis) {
    const std::uint64_t coordinate = at[to.size() - from.size() + axis];
    index = index * from[axis] + (from[axis] == 1 ? 0 : coordinate);
  }
  return index;
}

TEST(Broadcast, FollowsNumpysRules) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    // Sizes of 1 to 3; each operand has size 1 on some axes and may lack leading ones.
    Shape to(random() % 5);
    for (auto& size : to) size = 1 + random() % 3;
    const auto operand = [&] {
      Shape shape = to;
      for (auto& size : shape) size = random() % 3 == 0 ? 1 : size;
      shape.erase(shape.begin(),
                  shape.begin() + static_cast<std::ptrdiff_t>(random() % (shape.size() + 1)));
      return shape;
    };
    const Tensor a = integers(random, operand()), b = integers(random, operand());
    const Shape shape = broadcast_shape("test", a.shape(), b.shape());
    const Tensor sum = add(a, b).value(), difference = sub(a, b).value();
    const Tensor wide = broadcast_to(a, to).value();
    ASSERT_EQ(sum.shape(), shape);
    ASSERT_EQ(wide.shape(), to);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const float x = a.values<float>()[index_in(a.shape(), shape, i)];
      const float y = b.values<float>()[index_in(b.shape(), shape, i)];
      ASSERT_EQ(sum.values<float>()[i], x + y)
          << to_string(a.shape()) << " + " << to_string(b.shape());
      ASSERT_EQ(difference.values<float>()[i], x - y);
    }
    std::vector<float> back(a.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const std::size_t at = index_in(a.shape(), to, i);
      ASSERT_EQ(wide.values<float>()[i], a.values<float>()[at]);
      back[at] += wide.values<float>()[i];
    }
    expect_bits(sum_to(wide, a.shape()), Tensor::from(back, a.shape()));
  }
}

TEST(Broadcast, RefusesOtherSizes) {
  const Variable x = Tensor::ones(DType::f32, {2, 3}), y = Tensor::ones(DType::f32, {2});
  EXPECT_EQ(refusal([&] { mul(x, y); }),
            "mul: given [2, 3] and [2], expected shapes that broadcast");
  EXPECT_EQ(refusal([&] { broadcast_to(x, {3}); }),
            "broadcast_to: given [2, 3], expected one that broadcasts to [3]");
}

TEST(Broadcast, OfNoElements) {
  const Variable x = Tensor::ones(DType::f32, {0, 3}), y = Tensor::ones(DType::f32, {3});
  EXPECT_EQ(add(x, y).shape(), (Shape{0, 3}));
  expect_bits(sum(x, {0}).value(), Tensor::zeros(DType::f32, {3}));
}

TEST(Elements, PromoteAsInJax) {
  using enum DType;
  EXPECT_EQ(promoted(f32, f32), f32);
  EXPECT_EQ(promoted(bf16, bf16), bf16);
  EXPECT_EQ(promoted(bf16, f32), f32);
  EXPECT_EQ(promoted(bf16, f16), f32);
  EXPECT_EQ(promoted(f32, f64), f64);
}

TEST(Elements, RoundBf16Once) {
  // 1 + 2^-7 times itself is 1 + 2^-6 + 2^-14, above the tie of 1 + 2^-6 and its neighbour by
  // nothing that bf16 keeps.
  const Tensor x = Tensor::from({1 + 0x1p-7f}, {1}, DType::bf16);
  expect_bits(mul(x, x).value(), Tensor::from({1 + 0x1p-6f}, {1}, DType::bf16));
  // Of bf16 and f32 the result is f32, and the gradient of each has its type.
  const Tensor y = Tensor::from({1 + 0x1p-20f}, {1});
  const auto result = value_and_vjp([](std::span<const Variable> in) { return in[0] * in[1]; },
                                    std::vector{x, y}, Tensor::ones(DType::f32, {1}));
  EXPECT_EQ(result.value.dtype(), DType::f32);
  expect_bits(result.grads[0], y.astype(DType::bf16));
  expect_bits(result.grads[1], x.astype(DType::f32));
}

TEST(Elements, SumsOfBf16AreRoundedOnce) {
  // Rounded at each step, 1 + 2^-9 + ... would stay 1.
  std::vector<float> values(257, 0x1p-9f);
  values[0] = 1;
  expect_bits(sum(Tensor::from(values, {257}, DType::bf16)).value(),
              Tensor::scalar(1.5, DType::bf16));
}

TEST(Elements, MeanDivides) {
  // 1 / 3 is rounded: 5 * (1 / 3) is not 5 / 3.
  const Tensor x = Tensor::from({1, 1, 3}, {3});
  const auto result = value_and_vjp([](std::span<const Variable> in) { return mean(in[0]); },
                                    std::vector{x}, Tensor::scalar(5));
  expect_bits(result.value, Tensor::scalar(5.0f / 3.0f));
  expect_bits(result.grads[0], Tensor::full(DType::f32, {3}, 5.0f / 3.0f));
}

TEST(Max, SharesItsGradientAmongTies) {
  const auto gradient = [](const Tensor& x, const ops::Axes& axes, const Tensor& g) {
    return value_and_vjp([&](std::span<const Variable> in) { return max(in[0], axes); },
                         std::vector{x}, g)
        .grads[0];
  };
  const Tensor x = Tensor::from({1, 3, 3, 2, 2, 2}, {2, 3});
  expect_bits(gradient(x, {1}, Tensor::from({1, 6}, {2})),
              Tensor::from({0, 0.5f, 0.5f, 2, 2, 2}, {2, 3}));
  expect_bits(gradient(x, {0}, Tensor::from({1, 1, 1}, {3})),
              Tensor::from({0, 1, 1, 1, 0, 0}, {2, 3}));
}

TEST(Max, OfNanIsNan) {
  for (const auto& values : {std::vector{1.0f, kNan, 2.0f}, {kNan, 1.0f, 2.0f}}) {
    EXPECT_TRUE(std::isnan(max(Tensor::from(values, {3}), {0}).value().item()));
  }
  EXPECT_EQ(max(Tensor::from({-1, -3}, {2}), {0}).value().item(), -1);
}

TEST(Reductions, RefuseAxesThatAreNotThere) {
  const Variable x = Tensor::ones(DType::f32, {2, 3});
  EXPECT_EQ(refusal([&] { sum(x, {2}); }),
            "sum: given axis 2 of [2, 3], expected each once, below the rank");
  EXPECT_EQ(refusal([&] { max(x, {0, 0}); }),
            "max: given axis 0 of [2, 3], expected each once, below the rank");
}

TEST(Activations, AtZeroAndAtTheEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from({0, -0.0f, kInfinity, -kInfinity, kNan, 100, -100}, {7});
  const std::vector<float> r = relu(x).value().to_floats();
  EXPECT_EQ((std::vector(r.begin(), r.begin() + 3)), (std::vector{0.0f, 0.0f, kInfinity}));
  EXPECT_EQ(r[3], 0);
  EXPECT_TRUE(std::isnan(r[4]));
  const auto at_zero = value_and_vjp([](std::span<const Variable> in) { return relu(in[0]); },
                                     std::vector{Tensor::scalar(0)}, Tensor::scalar(1));
  EXPECT_EQ(at_zero.grads[0].item(), 0);
  const std::vector<float> s = silu(x).value().to_floats();
  EXPECT_EQ((std::vector{s[0], s[2], s[5]}), (std::vector{0.0f, kInfinity, 100.0f}));
}

}  // namespace
}  // namespace octavo::testing
