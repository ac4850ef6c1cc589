#include "octavo/autograd/random.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "octavo/autograd/compute_internal.h"

namespace octavo {
namespace {

constexpr std::size_t kLanes = 64;

// Words of the key's stream from `first`.
std::array<std::uint32_t, kLanes> stream(const Rng& rng, std::uint64_t first) {
  std::array<std::uint32_t, kLanes> a, b;
  for (std::size_t i = 0; i < kLanes; ++i) {
    const Threefry counter = threefry_words(first + i);
    a[i] = counter[0];
    b[i] = counter[1];
  }
  threefry2x32(rng.key, a, b);
  for (std::size_t i = 0; i < kLanes; ++i) a[i] ^= b[i];
  return a;
}

// In [0, 1): the mantissa is random.
float unit(std::uint32_t bits) { return std::bit_cast<float>(bits >> 9 | 0x3F80'0000u) - 1.0f; }

// What a number costs against an addition (for_pieces).
constexpr std::size_t kDrawCost = 16;

// Each element from its bits, row-major.
template <class F>
Tensor generate(const Rng& rng, const Shape& shape, const F& f) {
  Tensor result(DType::f32, shape);
  const auto to = result.mutable_values<float>();
  for_pieces(to.size(), kDrawCost, [&](std::size_t i, std::size_t end) {
    for (; i < end; i += kLanes) {
      const auto bits = stream(rng, i);
      const std::size_t count = std::min(kLanes, end - i);
      for (std::size_t lane = 0; lane < count; ++lane) to[i + lane] = f(unit(bits[lane]));
    }
  });
  return result;
}

// One rounding, as XLA compiles it.
float in_range(float unit, float low, float high) {
  return std::max(low, std::fma(unit, high - low, low));
}

// The inverse of erf, relative error about 2^-22 (M. Giles, "Approximating the erfinv function").
float inverse_erf(float x) {
  constexpr float kCentral[] = {2.81022636e-08f,  3.43273939e-07f, -3.5233877e-06f,
                                -4.39150654e-06f, 0.00021858087f,  -0.00125372503f,
                                -0.00417768164f,  0.246640727f,    1.50140941f};
  constexpr float kTail[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f,
                             -0.00367342844f,  0.00573950773f,  -0.0076224613f,
                             0.00943887047f,   1.00167406f,     2.83297682f};
  const float w = -std::log1p(-x * x);
  const bool is_central = w < 5.0f;
  const float t = is_central ? w - 2.5f : std::sqrt(w) - 3.0f;
  const auto& terms = is_central ? kCentral : kTail;
  float p = terms[0];
  for (int i = 1; i < 9; ++i) p = std::fma(p, t, terms[i]);
  return std::fabs(x) == 1.0f ? x * std::numeric_limits<float>::infinity() : p * x;
}

}  // namespace

Rng Rng::fold_in(std::uint32_t data) const { return Rng(threefry2x32(key, threefry_words(data))); }

Rng Rng::fold_in(std::string_view name) const {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return fold_in(hash);
}

std::vector<Rng> Rng::split(std::size_t count) const {
  std::vector<Rng> keys;
  for (std::uint64_t i = 0; i < count; ++i) keys.emplace_back(threefry2x32(key, threefry_words(i)));
  return keys;
}

Tensor uniform(const Rng& rng, const Shape& shape, float low, float high) {
  return generate(rng, shape, [&](float u) { return in_range(u, low, high); });
}

Tensor normal(const Rng& rng, const Shape& shape) {
  const float low = std::nextafter(-1.0f, 0.0f);
  return generate(rng, shape, [&](float u) {
    return std::numbers::sqrt2_v<float> * inverse_erf(in_range(u, low, 1.0f));
  });
}

Tensor truncated_normal(const Rng& rng, const Shape& shape, float low, float high) {
  const float a = std::erf(low / std::numbers::sqrt2_v<float>);
  const float b = std::erf(high / std::numbers::sqrt2_v<float>);
  return generate(rng, shape, [&](float u) {
    const float x = std::numbers::sqrt2_v<float> * inverse_erf(in_range(u, a, b));
    return std::min(std::max(x, std::nextafter(low, std::numeric_limits<float>::infinity())),
                    std::nextafter(high, -std::numeric_limits<float>::infinity()));
  });
}

Tensor bernoulli(const Rng& rng, float probability, const Shape& shape) {
  return generate(rng, shape, [&](float u) { return u < probability ? 1.0f : 0.0f; });
}

}  // namespace octavo
