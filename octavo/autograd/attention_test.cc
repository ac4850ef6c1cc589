#include "octavo/autograd/attention.h"

#include "octavo/autograd/autograd_testing.h"
#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/rope.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/take.h"

namespace octavo::testing {
namespace {

Tensor ids(const std::vector<std::int32_t>& values, Shape shape) {
  return Tensor::from_ids(values, std::move(shape));
}

TEST(Take, GathersRows) {
  const Tensor table = Tensor::from({1, 2, 3, 4, 5, 6}, {3, 2}, DType::bf16);
  expect_bits(take(table, ids({2, 0, 2}, {3, 1})).value(),
              Tensor::from({5, 6, 1, 2, 5, 6}, {3, 1, 2}, DType::bf16));
  EXPECT_EQ(take(table, ids({}, {0, 4})).shape(), (Shape{0, 4, 2}));
  expect_bits(take(Tensor::from({7, 8}, {2}), ids({1}, {})).value(), Tensor::scalar(8));
}

TEST(Take, AddsGradientsOfOneIdInTheOrderOfIds) {
  // In f32, (2^24 + 1) + -2^24 is 0 and (2^24 + -2^24) + 1 is 1.
  const auto gradient = [](std::initializer_list<float> g) {
    return value_and_vjp(
               [](std::span<const Variable> in) { return take(in[0], ids({1, 1, 1}, {3})); },
               std::vector{Tensor::zeros(DType::f32, {3, 1})}, Tensor::from(g, {3, 1}))
        .grads[0];
  };
  expect_bits(gradient({0x1p24f, 1, -0x1p24f}), Tensor::from({0, 0, 0}, {3, 1}));
  expect_bits(gradient({0x1p24f, -0x1p24f, 1}), Tensor::from({0, 1, 0}, {3, 1}));
}

TEST(Take, RoundsGradientsOfBf16Once) {
  const std::vector<std::int32_t> zeros(257);
  std::vector<float> g(257, 0x1p-9f);
  g[0] = 1;
  const auto result = value_and_vjp(
      [&](std::span<const Variable> in) { return take(in[0], ids(zeros, {257})); },
      std::vector{Tensor::zeros(DType::bf16, {1})}, Tensor::from(g, {257}, DType::bf16));
  expect_bits(result.grads[0], Tensor::from({1.5f}, {1}, DType::bf16));
}

TEST(Take, RefusesIdsThatAreNotThereAndPackedTables) {
  const Variable table = Tensor::ones(DType::f32, {3, 2});
  EXPECT_EQ(refusal([&] { take(table, ids({0, 3}, {2})); }),
            "take: given the id 3 at position 1, expected one of 3 rows");
  EXPECT_EQ(refusal([&] { take(table, ids({-1}, {1})); }),
            "take: given the id -1 at position 0, expected one of 3 rows");
  EXPECT_EQ(refusal([&] { take(table, Tensor::ones(DType::f32, {1})); }),
            "take: given a table [3, 2] and ids of F32, expected rank 1 or more and ids of I32");
  EXPECT_EQ(refusal([&] { take(Tensor(DType::f4, {4}), ids({1, 2}, {2})); }),
            "take: given a table of F4, expected elements of whole bytes");
}

TEST(Rope, TurnsHalvesAsPairs) {
  // Quarter turns: cos 0, sin 1 at the first token, none at the second.
  const RopeTables tables = {Tensor::from({0, 0, 1, 1}, {2, 2}),
                             Tensor::from({1, 1, 0, 0}, {2, 2})};
  const Tensor x = Tensor::from({1, 2, 3, 4, 9, 5, 6, 7, 8, 9}, {2, 1, 5});
  const auto result = value_and_vjp(
      [&](std::span<const Variable> in) { return rope(in[0], tables); }, std::vector{x}, x);
  expect_bits(result.value, Tensor::from({-3, -4, 1, 2, 9, 5, 6, 7, 8, 9}, {2, 1, 5}));
  expect_bits(result.grads[0], Tensor::from({3, 4, -1, -2, 9, 5, 6, 7, 8, 9}, {2, 1, 5}));
}

TEST(Rope, TablesAreOfTheAngles) {
  const std::vector<float> frequencies = rope_frequencies(10000, 8);
  EXPECT_EQ(frequencies, (std::vector{1.0f, 0.1f, 0.01f, 0.001f}));
  const RopeTables tables = rope_tables(ids({0, 1, 7, 4095}, {2, 2}), frequencies, 0.5f);
  ASSERT_EQ(tables.cos.shape(), (Shape{2, 2, 4}));
  const std::vector<float> cos = tables.cos.to_floats(), sin = tables.sin.to_floats();
  const float positions[] = {0, 1, 7, 4095};
  for (std::size_t i = 0; i < cos.size(); ++i) {
    const double angle = positions[i / 4] * frequencies[i % 4];
    EXPECT_FLOAT_EQ(cos[i], static_cast<float>(std::cos(angle) / 2));
    EXPECT_FLOAT_EQ(sin[i], static_cast<float>(std::sin(angle) / 2));
  }
}

TEST(Rope, OfPositionsOfEachBatch) {
  std::mt19937 random(1);
  const Tensor x = grid(random, {2, 3, 2, 4}, DType::f32);
  const std::vector<float> frequencies = rope_frequencies(100, 4);
  const Tensor shared = rope(x, rope_tables(ids({5, 6, 7}, {3}), frequencies)).value();
  const Tensor each = rope(x, rope_tables(ids({5, 6, 7, 5, 6, 7}, {2, 3}), frequencies)).value();
  expect_bits(shared, each);
  const Tensor other = rope(x, rope_tables(ids({5, 6, 7, 6, 7, 8}, {2, 3}), frequencies)).value();
  EXPECT_FALSE(same_bits(other, each));
}

TEST(Rope, RefusesOtherTables) {
  const Variable x = Tensor::ones(DType::f32, {2, 3, 1, 4});
  const RopeTables two = rope_tables(ids({0, 1}, {2}), rope_frequencies(10, 4));
  EXPECT_EQ(
      refusal([&] { rope(x, two); }),
      "rope: given x [2, 3, 1, 4] and tables [2, 2] and [2, 2], expected (..., length, heads, "
      "head_dim) and (..., length, half) with 2 * half <= head_dim");
  EXPECT_NE(refusal([&] { rope(x, rope_tables(ids({0, 1, 2}, {3}), rope_frequencies(10, 6))); }),
            "");
  EXPECT_EQ(refusal([&] { rope_frequencies(10, 3); }),
            "rope_frequencies: given the width 3, expected an even one");
}

// softmax(scale q k^T) v, query by query, as the header says it. Positions count from 0 where
// empty.
struct Naive {
  bool is_causal = false;
  std::size_t window = ~std::size_t{0};
  std::vector<std::int32_t> positions = {}, kv_positions = {};  // (batch, length or kv_length)
};

std::vector<double> naive_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    double factor, const Naive& options) {
  const std::vector<double> q = doubles(query), k = doubles(key), v = doubles(value);
  const auto [batch, length, heads, dim] =
      std::tuple(query.shape()[0], query.shape()[1], query.shape()[2], query.shape()[3]);
  const auto [kv_length, kv_heads, width] =
      std::tuple(key.shape()[1], key.shape()[2], value.shape()[3]);
  const auto position = [](const std::vector<std::int32_t>& given, std::size_t at, std::size_t n) {
    return given.empty() ? static_cast<std::int64_t>(at % n) : given[at];
  };
  std::vector<double> out(batch * length * heads * width);
  for (std::size_t row = 0; row < batch * length * heads; ++row) {
    const std::size_t token = row / heads, head = row % heads * kv_heads / heads;
    const std::int64_t at = position(options.positions, token, length);
    double sum = 0;
    for (std::size_t j = 0; j < kv_length; ++j) {
      const std::size_t kv_token = token / length * kv_length + j;
      const std::int64_t other = position(options.kv_positions, kv_token, kv_length);
      if (at < 0 || other < 0 || (options.is_causal && other > at)) continue;
      if (static_cast<std::uint64_t>(std::abs(at - other)) >= options.window) continue;
      const std::size_t kv_row = kv_token * kv_heads + head;
      double score = 0;
      for (std::size_t d = 0; d < dim; ++d) score += q[row * dim + d] * k[kv_row * dim + d];
      const double weight = std::exp(score * factor);
      sum += weight;
      for (std::size_t d = 0; d < width; ++d)
        out[row * width + d] += weight * v[kv_row * width + d];
    }
    for (std::size_t d = 0; sum > 0 && d < width; ++d) out[row * width + d] /= sum;
  }
  return out;
}

// Scores are sums of `dim` products of at most 4, so their errors, absolute, are those of their
// exponentials, relative; weights sum to 1 and values are below 2.
void expect_attention(const Tensor& got, const std::vector<double>& expected, std::size_t dim,
                      std::size_t kv_length) {
  const double terms = 4.0 * static_cast<double>(dim * dim) + static_cast<double>(kv_length) + 16;
  const double bound = 2 * 2 * terms * std::numeric_limits<double>::epsilon();
  const std::vector<double> values = doubles(got);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], bound) << i;
}

struct Qkv {
  Tensor q, k, v;
};

Qkv random_qkv(std::size_t heads, std::size_t kv_heads) {
  std::mt19937 random(5);
  return {grid(random, {2, 5, heads, 4}), grid(random, {2, 6, kv_heads, 4}),
          grid(random, {2, 6, kv_heads, 3})};
}

TEST(Attention, IsSoftmaxOfScoresTimesValues) {
  for (const auto& [heads, kv_heads] : {std::pair(2, 2), std::pair(6, 2), std::pair(3, 1)}) {
    const auto [q, k, v] = random_qkv(heads, kv_heads);
    const Tensor out = dot_product_attention(q, k, v).value();
    EXPECT_EQ(out.shape(), (Shape{2, 5, static_cast<std::uint64_t>(heads), 3}));
    expect_attention(out, naive_attention(q, k, v, 0.5, {}), 4, 6);
    expect_attention(dot_product_attention(q, k, v, {.is_causal = true, .scale = 0.25}).value(),
                     naive_attention(q, k, v, 0.25, {.is_causal = true}), 4, 6);
    expect_attention(dot_product_attention(q, k, v, {.is_causal = true, .window = 2}).value(),
                     naive_attention(q, k, v, 0.5, {.is_causal = true, .window = 2}), 4, 6);
    expect_attention(dot_product_attention(q, k, v, {.window = 1}).value(),
                     naive_attention(q, k, v, 0.5, {.window = 1}), 4, 6);
  }
}

TEST(Attention, SeesNoPadding) {
  const auto [q, k, v] = random_qkv(4, 2);
  const std::vector<std::int32_t> at = {0, 1, 2, 3, 4, 3, 4, 5, -1, -1};
  const std::vector<std::int32_t> kv_at = {0, 1, 2, -1, 3, 4, -1, 1, 2, 3, 4, 5};
  const Tensor out =
      dot_product_attention(
          q, k, v,
          {.is_causal = true, .positions = ids(at, {2, 5}), .kv_positions = ids(kv_at, {2, 6})})
          .value();
  expect_attention(
      out,
      naive_attention(q, k, v, 0.5, {.is_causal = true, .positions = at, .kv_positions = kv_at}), 4,
      6);
  // The last query of the second sequence is padding.
  const std::vector<double> values = doubles(out);
  for (std::size_t i = values.size() - 12; i < values.size(); ++i) EXPECT_EQ(values[i], 0);
  // Whatever stands in the padding, the result has the same bits.
  Tensor other = v.reshape(v.shape()).astype(DType::f32).astype(DType::f64);
  other.mutable_values<double>()[3 * 2 * 3] = 1e9;
  expect_bits(
      dot_product_attention(
          q, k, other,
          {.is_causal = true, .positions = ids(at, {2, 5}), .kv_positions = ids(kv_at, {2, 6})})
          .value(),
      out);
}

TEST(Attention, OfMoreOrFewerLeadingAxes) {
  const auto [q, k, v] = random_qkv(4, 2);
  const Tensor out = dot_product_attention(q, k, v, {.is_causal = true}).value();
  const auto five = [](const Tensor& x) {
    Shape shape = x.shape();
    shape.insert(shape.begin() + 1, 1);
    return x.reshape(shape);
  };
  expect_bits(dot_product_attention(five(q), five(k), five(v), {.is_causal = true}).value(),
              five(out));
  const auto first = [](const Tensor& x) {
    return take(x, Tensor::from_ids(std::vector{0}, {})).value();
  };
  expect_bits(dot_product_attention(first(q), first(k), first(v), {.is_causal = true}).value(),
              first(out));
}

TEST(Attention, OfNoBatchesIsEmpty) {
  const Tensor q = Tensor::zeros(DType::f32, {0, 5, 4, 3}),
               k = Tensor::zeros(DType::f32, {0, 6, 2, 3});
  const Tensor v = Tensor::zeros(DType::f32, {0, 6, 2, 7});
  const Tensor of_q = ids({}, {0, 5}), of_k = ids({}, {0, 6});
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.positions = of_q},
        AttentionOptions{.kv_positions = of_k},
        AttentionOptions{.positions = of_q, .kv_positions = of_k},
        AttentionOptions{.positions = ids({0, 1, 2, 3, 4}, {5}), .kv_positions = of_k}}) {
    const ValueAndVjp result = value_and_vjp(
        [&](std::span<const Variable> in) {
          return dot_product_attention(in[0], in[1], in[2], options);
        },
        std::vector{q, k, v}, Tensor::zeros(DType::f32, {0, 5, 4, 7}));
    EXPECT_EQ(result.value.shape(), (Shape{0, 5, 4, 7}));
    EXPECT_EQ(result.grads[0].shape(), q.shape());
    EXPECT_EQ(result.grads[2].shape(), v.shape());
  }
}

TEST(Attention, OfBf16HasScoresInF32) {
  const auto [q, k, v] = random_qkv(2, 2);
  const auto narrow = [](const Tensor& x) { return x.astype(DType::bf16); };
  const Tensor out = dot_product_attention(narrow(q), narrow(k), narrow(v)).value();
  EXPECT_EQ(out.dtype(), DType::bf16);
  const auto wide = [&](const Tensor& x) { return narrow(x).astype(DType::f64); };
  const std::vector<double> expected = naive_attention(wide(q), wide(k), wide(v), 0.5, {});
  // Weights and result are rounded to bf16, an eighth of a thousandth each: 2^-9 of what is below
  // 2. What f32 rounds is less than one more.
  const std::vector<double> got = doubles(out);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 3 * 2 * 0x1p-9);
}

TEST(Attention, DropsWeightsOfAllHeadsAlike) {
  const auto [q, k, v] = random_qkv(2, 2);
  const Rng rng(9);
  // Zero scores: each weight is 1 / 6, kept ones are 1 / 3. Of values 1 that counts what is kept.
  const Tensor ones = Tensor::ones(DType::f64, v.shape());
  const Tensor zeros = Tensor::zeros(DType::f64, q.shape());
  const std::vector<double> out = doubles(
      dot_product_attention(zeros, k, ones, {.dropout_rate = 0.5, .dropout_rng = rng}).value());
  const std::vector<float> kept = bernoulli(rng, 0.5, {1, 1, 5, 6}).to_floats();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t row = i / 6 % 5;  // heads * width
    double count = 0;
    for (std::size_t j = 0; j < 6; ++j) count += kept[row * 6 + j];
    EXPECT_NEAR(out[i], count / 3, 6 * std::numeric_limits<double>::epsilon());
  }
  EXPECT_EQ(refusal([&] { dot_product_attention(q, k, v, {.dropout_rate = 0.5}); }),
            "dot_product_attention: given a dropout_rate without dropout_rng, expected both");
}

TEST(Attention, RefusesOtherShapes) {
  const auto [q, k, v] = random_qkv(3, 2);
  EXPECT_EQ(refusal([&] { dot_product_attention(q, k, v); }),
            "dot_product_attention: given query [2, 5, 3, 4], key [2, 6, 2, 4] and value [2, 6, 2, "
            "3], expected (..., length, heads, dim), (..., kv_length, kv_heads, dim) and (..., "
            "kv_length, kv_heads, value_dim) with kv_heads dividing heads");
  const Qkv fits = random_qkv(2, 2);
  EXPECT_EQ(refusal([&] {
              dot_product_attention(fits.q, fits.k, fits.v, {.positions = ids({0, 1}, {2})});
            }),
            "dot_product_attention: given positions [2] of I32 for [2, 5, 2, 4], expected [5] or "
            "[2, 5] of I32");
}

}  // namespace
}  // namespace octavo::testing
