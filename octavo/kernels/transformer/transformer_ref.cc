// The specification of the transformer kernels, in plain scalar code.
#include <bit>
#include <cmath>
#include <limits>

#include "octavo/kernels/transformer/transformer_internal.h"

namespace octavo::kernels::generic {
namespace {

constexpr std::size_t kLanes = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float canonical(float x) { return std::isnan(x) ? std::bit_cast<float>(kCanonicalNan) : x; }

// The 16 virtual lanes of a reduction.
struct Lanes {
  explicit Lanes(float initial) {
    for (float& x : lane) x = initial;
  }
  float& of(std::size_t element) { return lane[element % kLanes]; }

  template <class Join>
  float joined(Join&& join) {
    for (std::size_t step = kLanes / 2; step > 0; step /= 2) {
      for (std::size_t l = 0; l < step; ++l) lane[l] = join(lane[l], lane[l + step]);
    }
    return canonical(lane[0]);
  }
  float sum() {
    return joined([](float lower, float upper) { return lower + upper; });
  }

  float lane[kLanes];
};

// exp2(t + d), where d is a correction that t is too short to hold.
float exp2(float t, float d) {
  if (t < kExp2Min) return 0.0f;
  if (t >= kExp2Max) return kInfinity;
  if (std::isnan(t)) return t;
  const float n = std::nearbyint(t);
  const float r = (t - n) + d;
  float p = kExp2[5];
  for (int k = 4; k >= 0; --k) p = std::fma(r, p, kExp2[k]);
  p = std::fma(r, p, 1.0f);
  return std::ldexp(p, static_cast<int>(n));
}

float exp_of(float x) {
  const float t = x * kLog2e;
  return exp2(t, std::fma(x, kLog2eRest, std::fma(x, kLog2e, -t)));
}

float softmax_term(float x, float scale, float max) {
  return canonical(exp2((x - max) * scale, 0.0f));
}

}  // namespace

void rms_norm(const RmsNormArgs& a) {
  for (std::size_t row = 0; row < a.rows; ++row) {
    const float* x = a.x + row * a.x_stride;
    float* y = a.y + row * a.y_stride;
    Lanes lanes(0.0f);
    for (std::size_t i = 0; i < a.cols; ++i) lanes.of(i) = std::fma(x[i], x[i], lanes.of(i));
    const float inv = 1.0f / std::sqrt(lanes.sum() / static_cast<float>(a.cols) + a.eps);
    for (std::size_t i = 0; i < a.cols; ++i) y[i] = canonical((x[i] * inv) * a.weight[i]);
  }
}

void rope(const RopeArgs& a) {
  for (std::size_t head = 0; head < a.heads; ++head) {
    float* lower = a.x + head * a.head_dim;
    float* upper = lower + a.half;
    for (std::size_t i = 0; i < a.half; ++i) {
      const float x = lower[i], y = upper[i];
      lower[i] = canonical(std::fma(x, a.cos[i], -(y * a.sin[i])));
      upper[i] = canonical(std::fma(y, a.cos[i], x * a.sin[i]));
    }
  }
}

void add(float* x, const float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = canonical(x[i] + y[i]);
}

void scale(float* x, float factor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) x[i] = canonical(x[i] * factor);
}

void silu_mul(const float* gate, const float* up, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gate[i] < kSiluMin ? kSiluMin : gate[i];
    y[i] = canonical((g / (1.0f + exp_of(-g))) * up[i]);
  }
}

float row_max(const float* x, std::size_t begin, std::size_t end) {
  const auto larger = [](float lower, float upper) { return upper > lower ? upper : lower; };
  Lanes lanes(-kInfinity);
  bool any_nan = false;
  for (std::size_t i = begin; i < end; ++i) {
    any_nan = any_nan || std::isnan(x[i]);
    lanes.of(i) = larger(lanes.of(i), x[i]);
  }
  return any_nan ? std::bit_cast<float>(kCanonicalNan) : lanes.joined(larger);
}

float exp_row(float* x, std::size_t n, std::size_t begin, std::size_t end, float scale, float max) {
  Lanes lanes(0.0f);
  for (std::size_t i = 0; i < n; ++i) {
    const bool inside = begin <= i && i < end;
    x[i] = inside ? softmax_term(x[i], scale, max) : 0.0f;
    if (inside) lanes.of(i) += x[i];
  }
  return lanes.sum();
}

float sum_exp(const float* x, std::size_t n, float scale, float max) {
  Lanes lanes(0.0f);
  for (std::size_t i = 0; i < n; ++i) lanes.of(i) += softmax_term(x[i], scale, max);
  return lanes.sum();
}

}  // namespace octavo::kernels::generic
