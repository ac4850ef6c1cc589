#include "octavo/ops/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/ops/kv_cache_testing.h"
#include "octavo/quant/scale_rule.h"

namespace octavo::ops {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::key_codes;
using testing::normal_floats;
using ::testing::StartsWith;
using testing::value_codes;

constexpr Format kFormats[] = {Format::bf16, Format::f32, Format::e4m3fn};

// What a cache holds of one head of one token: codes as f32, and their scale.
struct Stored {
  std::vector<float> codes;
  float scale;
};

Stored expected(Format format, const float* x, std::size_t count) {
  Stored stored{{x, x + count}, 1.0f};
  if (format == Format::f32) return stored;
  if (format == Format::bf16) {
    for (float& value : stored.codes) {
      value = decode<Format::bf16>(
          encode<Format::bf16>(value, Rounding::nearest_even, Overflow::special));
    }
    return stored;
  }
  float amax = 0;
  for (std::size_t i = 0; i < count; ++i) amax = std::max(amax, std::abs(x[i]));
  stored.scale = amax == 0 ? 1.0f : amax / 448.0f;
  for (float& value : stored.codes) {
    value = decode<Format::e4m3fn>(
        encode<Format::e4m3fn>(value / stored.scale, Rounding::nearest_even, Overflow::saturate));
  }
  return stored;
}

std::vector<std::uint32_t> bits(const float* x, std::size_t count) {
  std::vector<std::uint32_t> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = std::bit_cast<std::uint32_t>(x[i]);
  return result;
}

// Every token of every head of every layer is where the layout says, whatever was stored later.
TEST(KvCache, HoldsWhatWasAppended) {
  std::mt19937 random(1);
  for (const Format format : kFormats) {
    for (const std::size_t dim : {1u, 7u, 16u, 80u, 128u}) {
      SCOPED_TRACE(std::string(format_name(format)) + ", heads of " + std::to_string(dim));
      constexpr std::size_t kTokens = 300, kLayers = 2, kHeads = 3;
      const std::size_t width = kHeads * dim, stride = width + 5;
      KvCache cache({kLayers, kHeads, dim, kTokens, format});
      std::vector<std::vector<float>> keys, values;
      for (std::size_t layer = 0; layer < kLayers; ++layer) {
        keys.push_back(normal_floats(random, kTokens * stride));
        values.push_back(normal_floats(random, kTokens * stride));
        std::fill_n(keys[layer].begin() + 3 * static_cast<std::ptrdiff_t>(stride), width, 0.0f);
      }
      // Pieces of all sizes, the layers in turns.
      for (std::size_t at = 0, piece = 1; at < kTokens; at += piece, piece = piece * 3 % 101) {
        const std::size_t count = std::min(piece, kTokens - at);
        for (std::size_t layer = 0; layer < kLayers; ++layer) {
          cache.append(layer, at, count, keys[layer].data() + at * stride,
                       values[layer].data() + at * stride, stride);
        }
      }
      for (std::size_t layer = 0; layer < kLayers; ++layer) {
        for (std::size_t head = 0; head < kHeads; ++head) {
          const std::vector<float> k = key_codes(cache, layer, head, kTokens);
          const std::vector<float> v = value_codes(cache, layer, head, kTokens);
          for (std::size_t token = 0; token < kTokens; ++token) {
            const std::size_t at = token * stride + head * dim;
            const Stored key = expected(format, &keys[layer][at], dim);
            const Stored value = expected(format, &values[layer][at], dim);
            ASSERT_EQ(bits(&k[token * dim], dim), bits(key.codes.data(), dim)) << token;
            ASSERT_EQ(bits(&v[token * dim], dim), bits(value.codes.data(), dim)) << token;
            if (format == Format::e4m3fn) {
              ASSERT_EQ(cache.key_scales(layer, head)[token], key.scale);
              ASSERT_EQ(cache.value_scales(layer, head)[token], value.scale);
            } else {
              ASSERT_EQ(cache.key_scales(layer, head), nullptr);
              ASSERT_EQ(cache.value_scales(layer, head), nullptr);
            }
          }
        }
      }
    }
  }
}

TEST(KvCache, WhatIsNotFiniteStaysInItsHead) {
  constexpr std::size_t kDim = 16, kHeads = 2;
  const float inf = std::numeric_limits<float>::infinity();
  for (const Format format : kFormats) {
    SCOPED_TRACE(format_name(format));
    std::mt19937 random(2);
    KvCache cache({1, kHeads, kDim, 2, format});
    std::vector<float> x = normal_floats(random, 2 * kHeads * kDim);
    x[3] = std::numeric_limits<float>::quiet_NaN();
    x[kHeads * kDim + 5] = -inf;
    cache.append(0, 0, 2, x.data(), x.data(), kHeads * kDim);
    for (std::size_t head = 0; head < kHeads; ++head) {
      const std::vector<float> k = key_codes(cache, 0, head, 2), v = value_codes(cache, 0, head, 2);
      for (std::size_t i = 0; i < 2 * kDim; ++i) {
        const float given = x[i / kDim * kHeads * kDim + head * kDim + i % kDim];
        // E4M3 has no infinity.
        const bool nan = std::isnan(given) || (format == Format::e4m3fn && std::isinf(given));
        EXPECT_EQ(std::isnan(k[i]), nan) << i;
        EXPECT_EQ(std::isnan(v[i]), nan) << i;
        if (format != Format::e4m3fn) {
          EXPECT_EQ(std::isinf(k[i]), std::isinf(given));
        }
      }
    }
  }
}

TEST(KvCache, BytesAreThoseOfTheLayout) {
  const auto bytes = [](Format format, std::size_t dim, std::size_t tokens) {
    return kv_cache_bytes({3, 2, dim, tokens, format});
  };
  // 3 layers x 2 heads x whole pages x (keys, values), an element each.
  EXPECT_EQ(bytes(Format::bf16, 64, 128), 6u * 128 * 2 * 64 * 2);
  EXPECT_EQ(bytes(Format::f32, 64, 129), 6u * 256 * 2 * 64 * 4);
  EXPECT_EQ(bytes(Format::e4m3fn, 64, 1), 6u * 128 * (2 * 64 + 2 * 4));
  // Keys are filled up to pairs of channels, values to strips of 32.
  EXPECT_EQ(bytes(Format::e4m3fn, 33, 128), 6u * 128 * (34 + 64 + 2 * 4));
}

TEST(KvCache, RefusesWhatItCannotBe) {
  const auto message = [](const KvCacheShape& shape) -> std::string {
    try {
      const KvCache cache(shape);
    } catch (const ContractError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message({1, 1, 16, 8, Format::e5m2}),
              AllOf(StartsWith("KvCache: given"), HasSubstr("e5m2"), HasSubstr("expected")));
  EXPECT_THAT(message({0, 1, 16, 8, Format::bf16}), HasSubstr("0 layers"));
  EXPECT_THAT(message({1, 0, 16, 8, Format::bf16}), HasSubstr("0 heads"));
  EXPECT_THAT(message({1, 1, 0, 8, Format::bf16}), HasSubstr("heads of 0"));
  EXPECT_THAT(message({1, 1, 16, 0, Format::bf16}), HasSubstr("0 tokens"));
}

// The capacity counts, not the page that it lies in.
TEST(KvCache, RefusesTokensBeyondItsCapacity) {
  KvCache cache({2, 1, 4, 10, Format::f32});
  const std::vector<float> x(11 * 4);
  const auto message = [&](std::size_t layer, std::size_t position, std::size_t count) {
    try {
      cache.append(layer, position, count, x.data(), x.data(), 4);
    } catch (const ContractError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(1, 0, 10), "");
  EXPECT_EQ(message(1, 10, 0), "");
  EXPECT_THAT(message(0, 9, 2), AllOf(StartsWith("KvCache::append: given"),
                                      HasSubstr("tokens 9 to 11"), HasSubstr("up to 10")));
  EXPECT_THAT(message(0, 11, 0), HasSubstr("tokens 11 to 11"));
  EXPECT_THAT(message(2, 0, 1), HasSubstr("layer 2"));
  EXPECT_NE(message(0, 1, std::numeric_limits<std::size_t>::max()), "");
}

}  // namespace
}  // namespace octavo::ops
