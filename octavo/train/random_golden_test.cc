// Random numbers against jax.random and Flax's Dropout.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "octavo/autograd/dropout.h"
#include "octavo/autograd/random.h"
#include "octavo/nn/initializers.h"
#include "octavo/train/flax_golden_testing.h"

namespace octavo::testing {
namespace {

std::vector<std::uint32_t> words(const Tensor& x) {
  const auto values = x.values<std::uint32_t>();
  return {values.begin(), values.end()};
}

std::vector<std::uint32_t> words(std::span<const Rng> keys) {
  std::vector<std::uint32_t> result;
  for (const Rng& rng : keys) result.insert(result.end(), rng.key.begin(), rng.key.end());
  return result;
}

TEST(RandomGolden, Threefry) {
  const FlaxGolden golden("random");
  const std::vector<std::uint32_t> keys = words(golden.at("threefry_2x32.key")),
                                   counters = words(golden.at("threefry_2x32.counter")),
                                   out = words(golden.at("threefry_2x32.out"));
  for (std::size_t i = 0; i < keys.size(); i += 2) {
    EXPECT_EQ(threefry2x32({keys[i], keys[i + 1]}, {counters[i], counters[i + 1]}),
              (Threefry{out[i], out[i + 1]}));
  }
}

TEST(RandomGolden, Keys) {
  const FlaxGolden golden("random");
  std::vector<std::uint32_t> data;
  std::size_t seen = 0;
  for (const Json& c : golden.cases()) {
    if (c.at("name") == "fold_in") data = c.at("data").get<std::vector<std::uint32_t>>();
  }
  for (const Json& c : golden.cases()) {
    const std::string name = c.at("name");
    if (!name.starts_with("key.")) continue;
    ++seen;
    const Rng rng(c.at("seed").get<std::uint64_t>());
    EXPECT_EQ(words(std::span(&rng, 1)), words(golden.at(name + ".key")));
    for (const std::size_t n : {2, 3, 5}) {
      EXPECT_EQ(words(rng.split(n)), words(golden.at(fmt::format("{}.split_{}", name, n))));
    }
    EXPECT_EQ(words(rng.split(6)), words(golden.at(name + ".split_2x3")));
    std::vector<Rng> folded;
    for (const std::uint32_t d : data) folded.push_back(rng.fold_in(d));
    EXPECT_EQ(words(folded), words(golden.at(name + ".fold_in")));
  }
  EXPECT_EQ(seen, 6u);
}

// Within `units` in the last place.
void expect_near_bits(const Tensor& got, const Tensor& expected, std::int64_t units,
                      const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const std::vector<float> a = got.to_floats(), b = expected.to_floats();
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_LE(std::abs(static_cast<std::int64_t>(std::bit_cast<std::int32_t>(a[i])) -
                       std::bit_cast<std::int32_t>(b[i])),
              units)
        << what << ": " << a[i] << " and " << b[i];
  }
}

// Of a normal draw: see octavo/autograd/random.h.
constexpr std::int64_t kOfNormal = 3;

// Truth values, one byte each, as 0 and 1 in f32.
Tensor as_numbers(const Tensor& truths) {
  std::vector<float> values(truths.size());
  const auto* from = static_cast<const std::uint8_t*>(truths.data());
  std::copy_n(from, values.size(), values.begin());
  return Tensor::from(values, truths.shape());
}

TEST(RandomGolden, Draws) {
  const FlaxGolden golden("random");
  std::size_t seen = 0;
  for (const Json& c : golden.cases()) {
    const std::string name = c.at("name");
    if (!name.starts_with("draw.")) continue;
    ++seen;
    const Rng rng(c.at("seed").get<std::uint64_t>());
    const Shape shape = c.at("shape").get<Shape>();
    expect_same_bits(uniform(rng, shape), golden.at(name + ".uniform"), name);
    expect_same_bits(uniform(rng, shape, -2, 0.5f), golden.at(name + ".uniform_range"), name);
    expect_near_bits(normal(rng, shape), golden.at(name + ".normal"), kOfNormal, name);
    expect_near_bits(truncated_normal(rng, shape, -2, 2), golden.at(name + ".truncated_normal"),
                     kOfNormal, name);
    for (const int percent : {0, 10, 50, 90, 100}) {
      expect_same_bits(bernoulli(rng, static_cast<float>(percent / 100.0), shape),
                       as_numbers(golden.at(fmt::format("{}.bernoulli_{}", name, percent))), name);
    }
  }
  EXPECT_EQ(seen, 6u);
}

// A draw times a deviation. JAX computes that in f32 with three roundings, here it has one, and
// both round the product: six relative errors of 2^-24, which are six units of a product whose
// mantissa is nearly 2.
TEST(RandomGolden, Initializers) {
  constexpr std::int64_t kOfProduct = 6;
  const FlaxGolden golden("random");
  const struct {
    const char* name;
    nn::Initializer initializer;
    std::int64_t of_draw;
  } table[] = {{"lecun_normal.16x32", nn::lecun_normal(), kOfNormal},
               {"lecun_normal.3x4x5", nn::lecun_normal(), kOfNormal},
               {"he_normal.16x32", nn::he_normal(), kOfNormal},
               {"he_normal.3x4x5", nn::he_normal(), kOfNormal},
               {"glorot_uniform.16x32", nn::glorot_uniform(), 0},
               {"glorot_uniform.3x4x5", nn::glorot_uniform(), 0},
               {"normal_0.02", nn::normal(0.02), kOfNormal},
               {"variance_scaling_fan_in_normal_out_axis_0", nn::embedding_normal(), kOfNormal}};
  for (const auto& [name, initializer, of_draw] : table) {
    const Tensor& expected = golden.at(fmt::format("initializer.{}.values", name));
    // Units of a draw may be two of a product: the mantissa of the one may be twice the other's.
    expect_near_bits(initializer(Rng(7), expected.shape(), DType::f32), expected,
                     2 * of_draw + kOfProduct, name);
  }
}

TEST(RandomGolden, Dropout) {
  const FlaxGolden golden("random");
  std::size_t seen = 0;
  for (const Json& c : golden.cases()) {
    const std::string name = c.at("name");
    if (!name.starts_with("dropout.")) continue;
    ++seen;
    const ops::Axes axes =
        c.contains("broadcast_dims") ? c.at("broadcast_dims").get<ops::Axes>() : ops::Axes();
    expect_same_bits(dropout(golden.at(name + ".x"), c.at("rate").get<double>(),
                             Rng(c.at("seed").get<std::uint64_t>()), axes)
                         .value(),
                     golden.at(name + ".direct"), name);
  }
  EXPECT_EQ(seen, 4u);
}

}  // namespace
}  // namespace octavo::testing
