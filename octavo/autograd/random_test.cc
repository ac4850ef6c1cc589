// The bits of jax.random and of Flax's Dropout: values printed by jax 0.10.2 and flax 0.12.8 on a
// CPU.
#include "octavo/autograd/random.h"

#include <bit>

#include "octavo/autograd/autograd_testing.h"
#include "octavo/autograd/dropout.h"

namespace octavo::testing {
namespace {

struct Keys {
  std::uint64_t seed;
  std::array<Threefry, 3> folded;  // jax.random.fold_in(key, 0), 1, 2^32 - 1
  std::array<Threefry, 3> split;   // jax.random.split(key, 3)
};

TEST(Random, KeysAreThoseOfJax) {
  const Keys cases[] = {
      {0,
       {{{1797259609, 2579123966}, {928981903, 3453687069}, {743310391, 3789761811}}},
       {{{1797259609, 2579123966}, {928981903, 3453687069}, {4146024105, 2718843009}}}},
      {42,
       {{{1832780943, 270669613}, {64467757, 2916123636}, {2398536845, 3890976714}}},
       {{{1832780943, 270669613}, {64467757, 2916123636}, {2465931498, 255383827}}}},
      {4294967295,
       {{{2973345818, 897673333}, {3461607691, 1112781462}, {3708439410, 3860806197}}},
       {{{2973345818, 897673333}, {3461607691, 1112781462}, {3122495753, 3444035234}}}}};
  for (const Keys& c : cases) {
    const Rng rng(c.seed);
    const std::vector<Rng> split = rng.split(3);
    ASSERT_EQ(split.size(), 3u);
    const std::uint32_t data[] = {0, 1, 4294967295};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(rng.fold_in(data[i]).key, c.folded[i]) << c.seed;
      EXPECT_EQ(split[i].key, c.split[i]) << c.seed;
    }
  }
  EXPECT_NE(Rng(1).fold_in("a").key, Rng(1).fold_in("b").key);
}

TEST(Random, UniformIsJaxsToTheBit) {
  expect_bits(uniform(Rng(42), {2, 4}),
              Tensor::from({0x1.f47048p-2f, 0x1.5c0e6p-1f, 0x1.3b87fp-1f, 0x1.1f3d8p-1f,
                            0x1.cd75c8p-2f, 0x1.2bf69cp-1f, 0x1.326b6p-4f, 0x1.8cde48p-1f},
                           {2, 4}));
  expect_bits(uniform(Rng(42), {2, 4}, -2, 0.5f),
              Tensor::from({-0x1.8e73a6p-1f, -0x1.33b82p-2f, -0x1.d6585p-2f, -0x1.31e64p-1f,
                            -0x1.bf2cc6p-1f, -0x1.12177ap-1f, -0x1.d01f38p+0f, -0x1.fd44cp-5f},
                           {2, 4}));
}

TEST(Random, BernoulliIsJaxsToTheBit) {
  expect_bits(bernoulli(Rng(42), 0.3f, {2, 8}),
              Tensor::from({0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {2, 8}));
  expect_bits(bernoulli(Rng(42), 0, {9}), Tensor::zeros(DType::f32, {9}));
  expect_bits(bernoulli(Rng(42), 1, {9}), Tensor::ones(DType::f32, {9}));
}

// In units in the last place.
std::int64_t distance(float a, float b) {
  return std::abs(static_cast<std::int64_t>(std::bit_cast<std::int32_t>(a)) -
                  std::bit_cast<std::int32_t>(b));
}

void expect_near_jax(const Tensor& got, const std::vector<float>& jax) {
  const std::vector<float> values = got.to_floats();
  ASSERT_EQ(values.size(), jax.size());
  for (std::size_t i = 0; i < jax.size(); ++i) {
    EXPECT_LE(distance(values[i], jax[i]), 3) << values[i] << " and " << jax[i];  // see random.h
  }
}

TEST(Random, NormalsAreJaxsUpToTheLogarithm) {
  expect_near_jax(normal(Rng(42), {2, 4}),
                  {-0x1.cfbe2ap-6f, 0x1.de57dp-2f, 0x1.2eccc2p-2f, 0x1.3a7648p-3f, -0x1.fc09d6p-4f,
                   0x1.bc4234p-3f, -0x1.70dd72p+0f, 0x1.830012p-1f});
  expect_near_jax(truncated_normal(Rng(42), {2, 4}, -2, 2),
                  {-0x1.baa368p-6f, 0x1.c70bc4p-2f, 0x1.20a462p-2f, 0x1.2c0c6ap-3f, -0x1.e4cfdep-4f,
                   0x1.a7bf1cp-3f, -0x1.50ca9p+0f, 0x1.6df238p-1f});
  expect_near_jax(truncated_normal(Rng(42), {2, 4}, -1, 0.5f),
                  {-0x1.a27de6p-3f, 0x1.ac75f2p-5f, -0x1.0ace08p-5f, -0x1.b47928p-4f,
                   -0x1.06b5dp-2f, -0x1.2bfa68p-4f, -0x1.b1a21ep-1f, 0x1.71d4a8p-3f});
}

// Means of n numbers of deviation d stray by d / sqrt(n); five times that once in two million.
TEST(Random, NormalsHaveTheirMoments) {
  constexpr std::size_t kCount = 100'000;
  const std::vector<double> x = doubles(normal(Rng(3), {kCount}));
  double sum = 0, squares = 0;
  for (const double v : x) {
    sum += v;
    squares += v * v;
  }
  EXPECT_LT(std::fabs(sum / kCount), 5 / std::sqrt(kCount));
  EXPECT_LT(std::fabs(squares / kCount - 1), 5 * std::sqrt(2.0 / kCount));
  const Tensor narrow = truncated_normal(Rng(3), {kCount}, -0.5f, 0.25f);
  for (const float v : narrow.values<float>()) ASSERT_TRUE(v > -0.5f && v < 0.25f);
}

// -2, -1.75, ... 1.75
Tensor quarters(DType dtype) {
  std::vector<float> values;
  for (int i = -8; i < 8; ++i) values.push_back(static_cast<float>(i) / 4);
  return Tensor::from(values, {2, 8}, dtype);
}

ValueAndVjp dropped(const Tensor& x, double rate) {
  return value_and_vjp([&](std::span<const Variable> in) { return dropout(in[0], rate, Rng(42)); },
                       std::vector{x}, Tensor::ones(x.dtype(), x.shape()));
}

TEST(Dropout, IsFlaxsToTheBit) {
  const ValueAndVjp f32 = dropped(quarters(DType::f32), 0.1);
  const float one = 0x1.1c71c8p+0f;
  expect_bits(f32.value,
              Tensor::from({-0x1.1c71c8p+1f, -0x1.f1c71ep+0f, -0x1.aaaaacp+0f, -0x1.638e3ap+0f,
                            -0x1.1c71c8p+0f, -0x1.aaaaacp-1f, -0x1.1c71c8p-1f, -0x1.1c71c8p-2f, 0,
                            0x1.1c71c8p-2f, 0x1.1c71c8p-1f, 0x1.aaaaacp-1f, 0, 0x1.638e3ap+0f,
                            0x1.aaaaacp+0f, 0x1.f1c71ep+0f},
                           {2, 8}));
  expect_bits(f32.grads[0], Tensor::from({one, one, one, one, one, one, one, one, one, one, one,
                                          one, 0, one, one, one},
                                         {2, 8}));
  const ValueAndVjp bf16 = dropped(quarters(DType::bf16), 0.1);
  expect_bits(bf16.value,
              Tensor::from({-0x1.1cp+1f, -0x1.f2p+0f, -0x1.acp+0f, -0x1.64p+0f, -0x1.1cp+0f,
                            -0x1.acp-1f, -0x1.1cp-1f, -0x1.1cp-2f, 0, 0x1.1cp-2f, 0x1.1cp-1f,
                            0x1.acp-1f, 0, 0x1.64p+0f, 0x1.acp+0f, 0x1.f2p+0f},
                           {2, 8}, DType::bf16));
  expect_bits(dropped(quarters(DType::f32), 0.5).value,
              Tensor::from({-4, 0, 0, 0, -2, 0, -1, 0, 0, 0, 1, 0, 0, 0, 3, 0}, {2, 8}));
  expect_bits(dropout(quarters(DType::f32), 0.5, Rng(42), {0}).value(),
              Tensor::from({-4, 0, 0, 0, -2, 0, -1, 0, 0, 0, 0, 0, 2, 0, 3, 0}, {2, 8}));
}

TEST(Dropout, OfNothingAndOfAll) {
  const Tensor x = quarters(DType::f32);
  expect_bits(dropped(x, 0).value, x);
  expect_bits(dropped(x, 0).grads[0], Tensor::ones(DType::f32, {2, 8}));
  expect_bits(dropped(x, 1).value, Tensor::zeros(DType::f32, {2, 8}));
  expect_bits(dropped(x, 1).grads[0], Tensor::zeros(DType::f32, {2, 8}));
}

TEST(Dropout, RefusesOtherTypesAtEveryRate) {
  const Tensor x = Tensor::ones(DType::i32, {2});
  for (const double rate : {0.0, 0.5, 1.0}) {
    EXPECT_EQ(refusal([&] { dropout(x, rate, Rng(1)); }),
              "dropout: given elements of I32, expected F32, BF16, F16 or F64");
  }
}

TEST(Dropout, RefusesOtherRates) {
  EXPECT_EQ(refusal([] { dropout(Tensor::scalar(1), 1.5, Rng(1)); }),
            "dropout: given the rate 1.5, expected 0 to 1");
  EXPECT_EQ(refusal([] { dropout(Tensor::scalar(1), 0.5, Rng(1), {0}); }),
            "dropout: given axis 0 of [], expected one of its axes");
}

}  // namespace
}  // namespace octavo::testing
