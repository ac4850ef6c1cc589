// Attention against its own words, bit for bit, and against f64 within what its roundings allow.
#include "octavo/ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "octavo/base/error.h"
#include "octavo/ops/kv_cache_testing.h"

namespace octavo::ops {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::key_codes;
using testing::normal_floats;
using ::testing::StartsWith;
using testing::value_codes;

struct Case {
  std::size_t kv_heads, group, head_dim;
  Format cache;
  std::size_t tokens, count;  // the last `count` of `tokens` are asked for
  std::optional<std::size_t> window = {};
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.kv_heads << " x " << c.group << " heads of " << c.head_dim << ", "
       << format_name(c.cache) << ", " << c.count << " of " << c.tokens << " tokens";
  if (c.window) *out << ", window " << *c.window;
}

// Queries, keys and values of a sequence, rows by token.
struct Inputs {
  std::size_t heads, q_width, kv_width;
  std::vector<float> q, k, v;

  Inputs(std::mt19937& random, const Case& c, float spread = 1.0f)
      : heads(c.kv_heads * c.group),
        q_width(heads * c.head_dim),
        kv_width(c.kv_heads * c.head_dim),
        q(normal_floats(random, c.tokens * q_width)),
        k(normal_floats(random, c.tokens * kv_width)),
        v(normal_floats(random, c.tokens * kv_width)) {
    for (float& x : q) x *= spread;
  }
};

constexpr std::size_t kLayers = 2, kLayer = 1;

KvCache make_cache(const Case& c) {
  return KvCache({kLayers, c.kv_heads, c.head_dim, c.tokens, c.cache});
}

float score_scale(const Case& c) { return 1.0f / std::sqrt(static_cast<float>(c.head_dim)); }

void append(KvCache& cache, const Inputs& x, std::size_t first, std::size_t count) {
  cache.append(kLayer, first, count, x.k.data() + first * x.kv_width,
               x.v.data() + first * x.kv_width, x.kv_width);
}

// Tokens first .. first + count of the sequence, whose keys and values the cache has: rows of `out`
// as in x.q.
void attend(const Case& c, const KvCache& cache, const Inputs& x, std::size_t first,
            std::size_t count, std::vector<float>& out,
            const Context& context = default_context()) {
  attention({x.q.data() + first * x.q_width, x.q_width, out.data() + first * x.q_width, x.q_width,
             count, first, x.heads, kLayer, score_scale(c), c.window},
            cache, context);
}

std::vector<std::uint32_t> bits(const float* x, std::size_t count) {
  std::vector<std::uint32_t> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = std::bit_cast<std::uint32_t>(x[i]);
  return result;
}

// One kv head of a cache, as its codes say.
struct Head {
  std::vector<float> k, v;  // (tokens, head_dim)
  const float* key_scales;
  const float* value_scales;

  Head(const Case& c, const KvCache& cache, std::size_t head)
      : k(key_codes(cache, kLayer, head, c.tokens)),
        v(value_codes(cache, kLayer, head, c.tokens)),
        key_scales(cache.key_scales(kLayer, head)),
        value_scales(cache.value_scales(kLayer, head)) {}
  float key_scale(std::size_t token) const { return key_scales ? key_scales[token] : 1.0f; }
  float value_scale(std::size_t token) const { return value_scales ? value_scales[token] : 1.0f; }
};

std::size_t first_seen(const Case& c, std::size_t token) {
  return c.window && *c.window < token + 1 ? token + 1 - *c.window : 0;
}

// Order C of octavo/kernels/gemm/gemm.h over blocks of 128.
template <class A, class B>
float order_c(std::size_t size, float scale, const A& a, const B& b) {
  float total = 0;
  for (std::size_t block = 0; block < size; block += 128) {
    float sum = 0;
    for (std::size_t i = block; i < std::min(size, block + 128); i += 2) {
      const float odd = i + 1 < size ? std::fma(a(i + 1), b(i + 1), sum) : sum;
      sum = std::fma(a(i), b(i), odd);
    }
    total = std::fma(sum, scale, total);
  }
  return total;
}

// What octavo/ops/attention.h says, for one query, with the specifications of row_max and exp_row.
std::vector<float> specified(const Case& c, const Head& head, const float* q, std::size_t token) {
  const kernels::TransformerKernels& kernels = kernels::transformer_kernels(Isa::generic);
  const float scale = static_cast<float>(score_scale(c) * std::numbers::log2e);
  const std::size_t dim = c.head_dim, end = token + 1, first = first_seen(c, token);
  std::vector<float> out(dim), p(kAttentionChunk);
  float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
  for (std::size_t chunk = first / kAttentionChunk * kAttentionChunk; chunk < end;
       chunk += kAttentionChunk) {
    const std::size_t from = std::max(first, chunk) - chunk;
    const std::size_t to = std::min(end - chunk, kAttentionChunk);
    for (std::size_t i = from; i < to; ++i) {
      const float* k = head.k.data() + (chunk + i) * dim;
      p[i] = order_c(
          dim, head.key_scale(chunk + i), [&](std::size_t d) { return q[d]; },
          [&](std::size_t d) { return k[d]; });
    }
    const float former = maximum;
    maximum = std::max(former, kernels.row_max(p.data(), from, to));
    float rescale = former;
    if (sum == 0) {
      rescale = 0;
    } else {
      kernels.exp_row(&rescale, 1, 0, 1, scale, maximum);
    }
    const float added = kernels.exp_row(p.data(), kAttentionChunk, from, to, scale, maximum);
    sum = std::fma(sum, rescale, added);
    for (float& x : out) x *= rescale;
    for (std::size_t i = from; i < to; ++i) p[i] *= head.value_scale(chunk + i);
    for (std::size_t page = 0; page < to; page += kKvPage) {
      const std::size_t stored = std::min(kKvPage, end - chunk - page);
      for (std::size_t d = 0; d < dim; ++d) {
        out[d] += order_c(
            stored, 1.0f, [&](std::size_t i) { return p[page + i]; },
            [&](std::size_t i) { return head.v[(chunk + page + i) * dim + d]; });
      }
    }
  }
  const float inverse = 1.0f / sum;
  for (float& x : out) x *= inverse;
  return out;
}

constexpr double kUnit = 0x1p-24;  // of one f32 rounding
constexpr double kExp2Error = 0x1p-23;

double gamma(std::size_t roundings) {
  const double all = static_cast<double>(roundings) * kUnit;
  return all / (1 - all);
}

struct Exact {
  std::vector<double> out;
  std::vector<double> bound;
};

// Softmax attention in f64 from the cache's own values, and how far f32 may be from it:
//   - A score is a sum of head_dim products and a scale: gamma(head_dim + 2) of the magnitudes.
//   - The exponent (s - max) * scale has three roundings (the scale's own, the difference, the
//     product). All differences on the way from a chunk's maximum to the last one have one sign, so
//     their errors add up to no more than that of the whole; the maxima themselves cancel.
//   - Each chunk adds one exp2 and one product to what came before. What exp2 makes 0 is below
//     2^-126, and a sum is at least 1.
//   - Sums are of positive terms: one rounding for each term at most. Values: a rounding for each
//     term of a page, one for each page, each rescaling, and the value's scale.
//   - In the end a reciprocal and a product.
Exact exact(const Case& c, const Head& head, const float* q, std::size_t token) {
  const std::size_t dim = c.head_dim, end = token + 1, first = first_seen(c, token);
  const std::size_t count = end - first, chunks = count / kAttentionChunk + 2;
  const double scale = score_scale(c);
  std::vector<double> s(count);
  double maximum = -std::numeric_limits<double>::infinity(), score_error = 0, lowest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    double magnitude = 0;
    for (std::size_t d = 0; d < dim; ++d) {
      const double product = static_cast<double>(q[d]) * head.k[(first + i) * dim + d];
      s[i] += product;
      magnitude += std::abs(product);
    }
    s[i] *= head.key_scale(first + i);
    score_error = std::max(score_error, gamma(dim + 2) * magnitude * head.key_scale(first + i));
    maximum = std::max(maximum, s[i]);
    lowest = i == 0 ? s[i] : std::min(lowest, s[i]);
  }
  const double range = maximum - lowest + 2 * score_error;
  const double exponent_error = scale * (score_error + gamma(3) * range);
  const double weight_error =
      std::exp(exponent_error) * std::pow(1 + kExp2Error, static_cast<double>(chunks)) - 1 +
      gamma(chunks);
  double sum = 0;
  Exact result{std::vector<double>(dim), std::vector<double>(dim)};
  std::vector<double> magnitude(dim);
  double largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double weight = std::exp((s[i] - maximum) * scale);
    sum += weight;
    for (std::size_t d = 0; d < dim; ++d) {
      const double value =
          static_cast<double>(head.v[(first + i) * dim + d]) * head.value_scale(first + i);
      result.out[d] += weight * value;
      magnitude[d] += weight * std::abs(value);
      largest = std::max(largest, std::abs(value));
    }
  }
  const std::size_t pages = count / kKvPage + 2;
  const double above = (1 + weight_error) * (1 + gamma(kKvPage + 2 + pages + chunks)) - 1;
  const double below = (1 + weight_error) * (1 + gamma(count + chunks)) - 1;
  const double factor = ((above + below) / (1 - below) + 1) * (1 + gamma(2)) - 1;
  for (std::size_t d = 0; d < dim; ++d) {
    result.out[d] /= sum;
    result.bound[d] = magnitude[d] / sum * factor +
                      static_cast<double>(count) * 0x1p-125 * std::max(1.0, largest);
  }
  return result;
}

// The queries of a call that are looked at: all, or some of many.
std::vector<std::size_t> some_tokens(const Case& c, std::mt19937& random, std::size_t most) {
  std::vector<std::size_t> tokens{c.tokens - 1, c.tokens - c.count};
  for (std::size_t i = 0; i < most; ++i) tokens.push_back(c.tokens - 1 - random() % c.count);
  std::ranges::sort(tokens);
  tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
  return tokens;
}

void expect_as_specified(const Case& c, std::mt19937& random, float spread = 1.0f) {
  SCOPED_TRACE(::testing::PrintToString(c));
  const Inputs x(random, c, spread);
  KvCache cache = make_cache(c);
  append(cache, x, 0, c.tokens);
  std::vector<float> out(x.q.size(), -77.0f);
  attend(c, cache, x, c.tokens - c.count, c.count, out);
  const auto untouched = static_cast<std::ptrdiff_t>((c.tokens - c.count) * x.q_width);
  EXPECT_TRUE(std::all_of(out.begin(), out.begin() + untouched,
                          [](float value) { return value == -77.0f; }));
  const std::vector<std::size_t> tokens = some_tokens(c, random, 5);
  for (std::size_t kv = 0; kv < c.kv_heads; ++kv) {
    const Head head(c, cache, kv);
    for (const std::size_t token : tokens) {
      for (std::size_t i = 0; i < c.group; ++i) {
        const std::size_t at = token * x.q_width + (kv * c.group + i) * c.head_dim;
        const float* q = x.q.data() + at;
        const std::vector<float> words = specified(c, head, q, token);
        ASSERT_EQ(bits(&out[at], c.head_dim), bits(words.data(), c.head_dim))
            << "token " << token << ", head " << kv * c.group + i;
        if (i > 1) continue;
        const Exact f64 = exact(c, head, q, token);
        for (std::size_t d = 0; d < c.head_dim; ++d) {
          ASSERT_LE(std::abs(out[at + d] - f64.out[d]), f64.bound[d])
              << "token " << token << ", head " << kv * c.group + i << ", channel " << d;
        }
      }
    }
  }
}

// Contexts around the borders of pages and chunks, and of rows that are worked on together.
TEST(Attention, IsAsSpecifiedAndNearF64) {
  std::mt19937 random(1);
  for (const Case& c : std::vector<Case>{
           {1, 1, 16, Format::f32, 1, 1},
           {2, 3, 16, Format::f32, 2, 2},
           {1, 8, 64, Format::bf16, 127, 127},
           {2, 1, 80, Format::e4m3fn, 128, 3},
           {1, 2, 128, Format::e4m3fn, 129, 129},
           {3, 5, 16, Format::bf16, 257, 60},
           {1, 48, 16, Format::f32, 33, 20},
           {1, 71, 16, Format::bf16, 140, 2},
           {1, 4, 128, Format::bf16, 1023, 1},
           {1, 7, 64, Format::f32, 1024, 9},
           {1, 6, 80, Format::e4m3fn, 1025, 30},
           {2, 1, 64, Format::f32, 2048, 2},
           {1, 3, 128, Format::e4m3fn, 2049, 5},
           {1, 2, 80, Format::bf16, 2500, 60},
       }) {
    expect_as_specified(c, random);
  }
}

TEST(Attention, WindowsCutTheGridAndNeverShiftIt) {
  std::mt19937 random(2);
  for (const Case& c : std::vector<Case>{
           {1, 2, 16, Format::f32, 50, 50, 1},
           {1, 3, 64, Format::bf16, 300, 300, 24},
           {2, 2, 80, Format::e4m3fn, 300, 300, 128},
           {1, 4, 16, Format::f32, 1100, 110, 77},
           {1, 1, 128, Format::e4m3fn, 2300, 60, 1024},
           {1, 2, 64, Format::bf16, 2100, 100, 1100},
           {1, 2, 16, Format::f32, 300, 100, 300},
           {1, 2, 16, Format::f32, 300, 100, std::numeric_limits<std::size_t>::max()},
       }) {
    expect_as_specified(c, random);
  }
}

// Scores that are far apart: most weights become 0, maxima grow from chunk to chunk.
TEST(Attention, HoldsForScoresOfAnySize) {
  std::mt19937 random(3);
  for (const float spread : {0.0f, 1e-3f, 30.0f, 1000.0f}) {
    expect_as_specified({1, 2, 64, Format::f32, 2100, 3}, random, spread);
    expect_as_specified({1, 2, 16, Format::e4m3fn, 1500, 100, 1200}, random, spread);
  }
}

TEST(Attention, RandomSizes) {
  std::mt19937 random(4);
  constexpr std::size_t kDims[] = {16, 64, 80, 128};
  constexpr Format kCaches[] = {Format::f32, Format::bf16, Format::e4m3fn};
  for (std::size_t i = 0; i < 16; ++i) {
    Case c{1 + random() % 2, 1 + i % 8, kDims[i % 4], kCaches[i % 3], 1 + random() % 400, 1};
    c.count = 1 + random() % c.tokens;
    if (random() % 3 == 0) c.window = 1 + random() % 300;
    expect_as_specified(c, random);
  }
}

// In each way the last tokens are fed; every output must have the same bits.
TEST(Attention, BitsDoNotDependOnHowTokensAreFed) {
  std::mt19937 random(5);
  for (const Case& c : std::vector<Case>{{2, 3, 16, Format::f32, 290, 290},
                                         {1, 8, 64, Format::bf16, 140, 140},
                                         {1, 2, 80, Format::e4m3fn, 1100, 110},
                                         {1, 2, 16, Format::e4m3fn, 1100, 110, 500}}) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const Inputs x(random, c);
    const auto fed = [&](std::size_t piece, const Context& context) {
      KvCache cache = make_cache(c);
      std::vector<float> out(x.q.size());
      append(cache, x, 0, c.tokens - c.count);
      for (std::size_t at = c.tokens - c.count; at < c.tokens; at += piece) {
        const std::size_t count = std::min(piece, c.tokens - at);
        append(cache, x, at, count);
        attend(c, cache, x, at, count, out, context);
      }
      return bits(out.data(), out.size());
    };
    const std::vector<std::uint32_t> whole = fed(c.count, default_context());
    for (const std::size_t piece : {1u, 7u, 64u}) {
      EXPECT_EQ(fed(piece, default_context()), whole) << piece;
    }
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      EXPECT_EQ(fed(c.count, Context{&pool}), whole) << threads;
    }
  }
}

// A sequence goes back and on with other tokens: nothing is left of those that were there.
TEST(Attention, SequencesMayGoBackAndBeWrittenAgain) {
  std::mt19937 random(6);
  for (const Format format : {Format::f32, Format::bf16, Format::e4m3fn}) {
    for (const std::size_t back : {0u, 100u, 128u}) {
      const Case c{1, 2, 16, format, 260, 260};
      SCOPED_TRACE(std::string(format_name(format)) + " back to " + std::to_string(back));
      const Inputs former(random, c), later(random, c);
      Inputs mixed = later;
      std::copy_n(former.k.begin(), back * former.kv_width, mixed.k.begin());
      std::copy_n(former.v.begin(), back * former.kv_width, mixed.v.begin());
      KvCache cache = make_cache(c), fresh = make_cache(c);
      append(cache, former, 0, c.tokens);
      std::vector<float> got(later.q.size()), expected(later.q.size());
      append(fresh, mixed, 0, c.tokens);
      attend(c, fresh, mixed, back, c.tokens - back, expected);
      for (std::size_t at = back; at < c.tokens; at += 9) {
        const std::size_t count = std::min<std::size_t>(9, c.tokens - at);
        append(cache, later, at, count);
        attend(c, cache, later, at, count, got);
      }
      EXPECT_EQ(bits(got.data(), got.size()), bits(expected.data(), expected.size()));
    }
  }
}

TEST(Attention, MayWriteOverItsQueries) {
  std::mt19937 random(7);
  const Case c{2, 3, 80, Format::bf16, 150, 150};
  Inputs x(random, c);
  KvCache cache = make_cache(c);
  append(cache, x, 0, c.tokens);
  std::vector<float> expected(x.q.size());
  attend(c, cache, x, 0, c.tokens, expected);
  attend(c, cache, x, 0, c.tokens, x.q);
  EXPECT_EQ(bits(x.q.data(), x.q.size()), bits(expected.data(), expected.size()));
}

// A key that is NaN reaches those who see it, and no others.
TEST(Attention, NanKeysReachWhoSeesThem) {
  std::mt19937 random(8);
  const Case c{1, 2, 16, Format::bf16, 200, 200, 40};
  Inputs x(random, c);
  constexpr std::size_t kBad = 90;
  x.k[kBad * x.kv_width + 3] = std::numeric_limits<float>::quiet_NaN();
  KvCache cache = make_cache(c);
  append(cache, x, 0, c.tokens);
  std::vector<float> out(x.q.size());
  attend(c, cache, x, 0, c.tokens, out);
  for (std::size_t token = 0; token < c.tokens; ++token) {
    EXPECT_EQ(std::isnan(out[token * x.q_width]), token >= kBad && token < kBad + 40) << token;
  }
}

// Bits of which all NaN are one.
std::vector<std::uint32_t> bits_or_nan(const float* x, std::size_t count) {
  std::vector<std::uint32_t> result = bits(x, count);
  for (std::size_t i = 0; i < count; ++i) {
    if (std::isnan(x[i])) result[i] = 0x7FC0'0000;
  }
  return result;
}

// NaN and infinities of tokens that a query does not see change no bit of it; of those that it
// sees, none depends on how the tokens come.
TEST(Attention, WhatIsNotSeenIsNotSeenWhateverItHolds) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const struct {
    std::size_t token, channel;
    bool key;
    float value;
  } bad[] = {{37, 3, false, kNan}, {150, 20, false, kInf}, {151, 1, false, -kInf},
             {200, 5, true, kNan}, {260, 0, true, kInf},   {1100, 8, false, kNan}};
  std::mt19937 random(8);
  for (const Format format : {Format::bf16, Format::f32, Format::e4m3fn}) {
    for (const std::optional<std::size_t> window :
         {std::optional<std::size_t>(), std::optional<std::size_t>(45)}) {
      const Case c{2, 3, 17, format, 1160, 1160, window};
      SCOPED_TRACE(::testing::PrintToString(c));
      const Inputs clean(random, c);
      Inputs x = clean;
      for (const auto& b : bad) {
        (b.key ? x.k : x.v)[b.token * x.kv_width + b.channel] = b.value;
      }
      const auto run = [&](const Inputs& in, std::size_t piece) {
        KvCache cache = make_cache(c);
        std::vector<float> out(in.q.size());
        for (std::size_t first = 0; first < c.tokens; first += piece) {
          const std::size_t count = std::min(piece, c.tokens - first);
          append(cache, in, first, count);
          attend(c, cache, in, first, count, out);
        }
        return out;
      };
      const std::vector<float> expected = run(clean, c.tokens), got = run(x, c.tokens);
      std::size_t same = 0;
      for (std::size_t token = 0; token < c.tokens; ++token) {
        const bool sees_bad = std::ranges::any_of(bad, [&](const auto& b) {
          return b.token <= token && b.token >= first_seen(c, token);
        });
        if (sees_bad) continue;
        ++same;
        ASSERT_EQ(bits(&got[token * x.q_width], x.q_width),
                  bits(&expected[token * x.q_width], x.q_width))
            << "token " << token;
      }
      EXPECT_GT(same, window ? 900u : 36u);
      // Token 1110 sees the value of 1100, and in a window nothing else that is bad.
      EXPECT_TRUE(std::isnan(got[1110 * x.q_width + 8]));
      EXPECT_EQ(std::isnan(got[1110 * x.q_width + 9]), !window);
      for (const std::size_t piece : {1, 7, 512}) {
        EXPECT_EQ(bits_or_nan(run(x, piece).data(), got.size()),
                  bits_or_nan(got.data(), got.size()))
            << "pieces of " << piece;
      }
    }
  }
}

// Tokens of a longer sequence before stay in the cache until others come.
TEST(Attention, WhatWasStoredBeforeIsNotSeen) {
  std::mt19937 random(12);
  const Case c{1, 2, 16, Format::bf16, 300, 300};
  Inputs x(random, c);
  KvCache fresh = make_cache(c), used = make_cache(c);
  append(fresh, x, 0, 290);
  std::vector<float> expected(x.q.size()), got(x.q.size());
  attend(c, fresh, x, 0, 290, expected);
  Inputs other = x;
  for (const std::size_t token : {100, 280, 299}) {
    other.v[token * x.kv_width] = std::numeric_limits<float>::quiet_NaN();
  }
  append(used, other, 0, 300);
  append(used, x, 100, 190);  // from the middle of a page on
  attend(c, used, x, 0, 290, got);
  EXPECT_EQ(bits(got.data(), 290 * x.q_width), bits(expected.data(), 290 * x.q_width));
}

TEST(Attention, RefusesWhatDoesNotFit) {
  std::mt19937 random(9);
  const Case c{2, 2, 16, Format::f32, 10, 10};
  const Inputs x(random, c);
  KvCache cache = make_cache(c);
  append(cache, x, 0, c.tokens);
  std::vector<float> out(x.q.size());
  const AttentionArgs good{x.q.data(), x.q_width, out.data(), x.q_width, 10,
                           0,          x.heads,   kLayer,     1.0f,      {}};
  const auto message = [&](auto change) {
    AttentionArgs args = good;
    change(args);
    try {
      attention(args, cache);
    } catch (const ContractError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message([](AttentionArgs&) {}), "");
  EXPECT_EQ(message([](AttentionArgs& a) { a.count = 0, a.position = 10; }), "");
  EXPECT_THAT(message([](AttentionArgs& a) { a.heads = 3; }),
              AllOf(StartsWith("attention: given 3 heads"), HasSubstr("a multiple of 2 heads")));
  EXPECT_THAT(message([](AttentionArgs& a) { a.heads = 0; }), HasSubstr("given 0 heads"));
  EXPECT_THAT(message([](AttentionArgs& a) { a.layer = 2; }), HasSubstr("a layer below 2"));
  EXPECT_THAT(message([](AttentionArgs& a) { a.position = 1; }), HasSubstr("tokens up to 10"));
  EXPECT_THAT(message([](AttentionArgs& a) { a.position = 11, a.count = 0; }),
              HasSubstr("tokens up to 10"));
  EXPECT_THAT(message([](AttentionArgs& a) { a.window = 0; }), HasSubstr("a window of at least 1"));
  EXPECT_THROW(attention(good, cache, Context{nullptr}), ContractError);
}

}  // namespace
}  // namespace octavo::ops
