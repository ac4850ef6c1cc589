#include "octavo/autograd/softmax.h"

#include "octavo/autograd/autograd_testing.h"
#include "octavo/autograd/cross_entropy.h"
#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/shape.h"

namespace octavo::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Each line's exponentials in long double, divided by their sum.
std::vector<double> expected_softmax(const std::vector<double>& line) {
  std::vector<double> result;
  long double sum = 0;
  for (const double x : line) sum += std::exp(static_cast<long double>(x));
  for (const double x : line) {
    result.push_back(static_cast<double>(std::exp(static_cast<long double>(x)) / sum));
  }
  return result;
}

// x - max is rounded: an error of |x - max| epsilons / 2 in its exponential; exp, the sum of n,
// and the division round too.
double softmax_bound(double spread, std::size_t n, double epsilon) {
  return (spread + static_cast<double>(n) + 4) * epsilon;
}

TEST(Softmax, AlongEachAxis) {
  std::mt19937 random(1);
  const Tensor x = grid(random, {2, 5, 3}, DType::f32);
  const Tensor axis1 = softmax(x, 1).value(), same = softmax(x, -2).value();
  expect_bits(axis1, same);
  // Moved to the end it is the same.
  const Variable moved_axis = transpose(x, {0, 2, 1});
  expect_bits(transpose(softmax(moved_axis), {0, 2, 1}).value(), axis1);
  const std::vector<double> rows = doubles(moved_axis.value());
  const std::vector<double> got = doubles(softmax(moved_axis).value());
  for (std::size_t row = 0; row < 6; ++row) {
    const auto expected = expected_softmax({rows.begin() + 5 * row, rows.begin() + 5 * row + 5});
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(got[5 * row + i], expected[i],
                  expected[i] * softmax_bound(4, 5, std::numeric_limits<float>::epsilon()));
    }
  }
  EXPECT_EQ(refusal([&] { softmax(x, 3); }),
            "softmax: given axis 3 of [2, 5, 3], expected one of its axes");
  EXPECT_EQ(refusal([&] { log_softmax(x, -4); }),
            "log_softmax: given axis -4 of [2, 5, 3], expected one of its axes");
}

TEST(Softmax, OfLargeNumbersDoesNotOverflow) {
  const Tensor x = Tensor::from({1000, 1000, -1000, -kInfinity}, {4});
  expect_bits(softmax(x).value(), Tensor::from({0.5f, 0.5f, 0, 0}, {4}));
  const float log2 = std::log(2.0f);
  expect_bits(log_softmax(x).value(), Tensor::from({-log2, -log2, -2000 - log2, -kInfinity}, {4}));
}

TEST(Softmax, OfBf16IsRoundedOnce) {
  std::mt19937 random(2);
  const Tensor x = grid(random, {3, 40}, DType::bf16);
  expect_bits(softmax(x).value(), softmax(x.astype(DType::f32)).value().astype(DType::bf16));
  expect_bits(log_softmax(x).value(),
              log_softmax(x.astype(DType::f32)).value().astype(DType::bf16));
}

Tensor mask_of(std::vector<std::uint8_t> values, Shape shape) {
  Tensor mask(DType::u8, std::move(shape));
  std::ranges::copy(values, mask.mutable_values<std::uint8_t>().begin());
  return mask;
}

TEST(MaskedSoftmax, IsSoftmaxOfWhatIsSeen) {
  std::mt19937 random(3);
  const Tensor x = grid(random, {2, 2, 3}, DType::f32);
  expect_bits(masked_softmax(x, mask_of({1}, {1})).value(), softmax(x).value());
  // (2, 1, 3): one mask for both lines of a matrix.
  const Tensor mask = mask_of({1, 0, 1, 0, 0, 0}, {2, 1, 3});
  const std::vector<float> got = masked_softmax(x, mask).value().to_floats();
  for (std::size_t line = 0; line < 2; ++line) {
    const std::vector<float> v = x.to_floats();
    const Tensor seen = Tensor::from({v[3 * line], v[3 * line + 2]}, {2});
    const std::vector<float> expected = softmax(seen).value().to_floats();
    EXPECT_EQ((std::vector(got.begin() + 3 * line, got.begin() + 3 * line + 3)),
              (std::vector{expected[0], 0.0f, expected[1]}));
  }
  for (std::size_t i = 6; i < 12; ++i) EXPECT_EQ(got[i], 0);  // nothing is seen
  // One value for a whole line.
  const std::vector<float> lines = masked_softmax(x, mask_of({0, 1}, {2, 1})).value().to_floats();
  EXPECT_EQ(lines[0], 0);
  EXPECT_EQ(lines[3], softmax(x).value().to_floats()[3]);
}

TEST(MaskedSoftmax, NeverReadsWhatIsMasked) {
  const Tensor x = Tensor::from({1, std::numeric_limits<float>::quiet_NaN(), kInfinity}, {3});
  expect_bits(masked_softmax(x, mask_of({1, 0, 0}, {3})).value(), Tensor::from({1, 0, 0}, {3}));
}

TEST(MaskedSoftmax, RefusesOtherMasks) {
  const Variable x = Tensor::ones(DType::f32, {2, 3});
  EXPECT_EQ(refusal([&] { masked_softmax(x, Tensor::ones(DType::f32, {2, 3})); }),
            "masked_softmax: given a mask [2, 3] of F32, expected U8 that broadcasts to [2, 3]");
  EXPECT_EQ(refusal([&] { masked_softmax(x, mask_of({1, 1, 1}, {3, 1, 1})); }),
            "masked_softmax: given a mask [3, 1, 1] of U8, expected U8 that broadcasts to [2, 3]");
}

TEST(CrossEntropy, IsTheNegativeLogSoftmaxOfTheLabel) {
  std::mt19937 random(4);
  const Tensor logits = grid(random, {2, 2, 5}, DType::f32);
  const std::vector<std::int32_t> labels = {4, 0, 2, 2};
  const Tensor ids = Tensor::from_ids(labels, {2, 2});
  const std::vector<float> loss =
      softmax_cross_entropy_with_integer_labels(logits, ids).value().to_floats();
  const std::vector<double> x = doubles(logits);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto p = expected_softmax({x.begin() + 5 * i, x.begin() + 5 * i + 5});
    const double expected = -std::log(p[static_cast<std::size_t>(labels[i])]);
    EXPECT_NEAR(loss[i], expected,
                softmax_bound(4, 5, std::numeric_limits<float>::epsilon()) * (1 + expected));
  }
}

TEST(CrossEntropy, OfLargeLogitsDoesNotOverflow) {
  const Tensor logits = Tensor::from({1e4f, -1e4f, 0, 1e4f, -1e4f, 0}, {2, 3});
  const auto result = value_and_vjp(
      [](std::span<const Variable> in) {
        return softmax_cross_entropy_with_integer_labels(in[0],
                                                         Tensor::from_ids(std::vector{0, 1}, {2}));
      },
      std::vector{logits}, Tensor::ones(DType::f32, {2}));
  expect_bits(result.value, Tensor::from({0, 2e4f}, {2}));
  expect_bits(result.grads[0], Tensor::from({0, 0, 0, 1, -1, 0}, {2, 3}));
}

TEST(CrossEntropy, RefusesWrongLabels) {
  const Variable logits = Tensor::ones(DType::f32, {2, 3});
  const auto message = [&](std::vector<std::int32_t> ids, Shape shape) {
    return refusal(
        [&] { softmax_cross_entropy_with_integer_labels(logits, Tensor::from_ids(ids, shape)); });
  };
  EXPECT_EQ(message({0, 3}, {2}),
            "softmax_cross_entropy_with_integer_labels: given the label 3, expected one of 3 "
            "classes");
  EXPECT_EQ(message({0, -1}, {2}),
            "softmax_cross_entropy_with_integer_labels: given the label -1, expected one of 3 "
            "classes");
  EXPECT_EQ(message({0, 1, 2}, {3}),
            "softmax_cross_entropy_with_integer_labels: given logits [2, 3] and labels [3] of I32, "
            "expected (..., classes) and (...) of I32");
}

}  // namespace
}  // namespace octavo::testing
