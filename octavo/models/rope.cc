#include "octavo/models/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace octavo::models {
namespace {

float power(float base, float exponent) {
  return static_cast<float>(
      powl(static_cast<long double>(base), static_cast<long double>(exponent)));
}

double logarithm(double x) { return static_cast<double>(logl(static_cast<long double>(x))); }

// base^(2 i / dim).
std::vector<float> periods(float base, std::size_t dim) {
  std::vector<float> periods(dim / 2);
  for (std::size_t i = 0; i < periods.size(); ++i)
    periods[i] = power(base, static_cast<float>(2 * i) / static_cast<float>(dim));
  return periods;
}

std::vector<float> standard(float base, std::size_t dim) {
  std::vector<float> inv_freq = periods(base, dim);
  for (float& f : inv_freq) f = 1.0f / f;
  return inv_freq;
}

std::vector<float> linear(const RopeConfig& rope, std::size_t dim) {
  std::vector<float> inv_freq = standard(static_cast<float>(rope.theta), dim);
  for (float& f : inv_freq) f /= static_cast<float>(rope.factor);
  return inv_freq;
}

// The base grows with the sequence once it is longer than what the model was trained on.
std::vector<float> dynamic(const RopeConfig& rope, std::size_t dim, std::size_t max_positions,
                           std::size_t sequence_length) {
  if (sequence_length <= max_positions) return standard(static_cast<float>(rope.theta), dim);
  const auto d = static_cast<double>(dim);
  const float stretch = static_cast<float>(rope.factor) * static_cast<float>(sequence_length) /
                            static_cast<float>(max_positions) -
                        static_cast<float>(rope.factor - 1);
  const float growth = power(stretch, static_cast<float>(d / (d - 2)));
  return standard(static_cast<float>(rope.theta) * growth, dim);
}

// Short waves stay, long ones are stretched by `factor`, those between are blended.
std::vector<float> llama3(const RopeConfig& rope, std::size_t dim) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const auto longest = static_cast<float>(original / rope.low_freq_factor);
  const auto shortest = static_cast<float>(original / rope.high_freq_factor);
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto span = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  std::vector<float> inv_freq = standard(static_cast<float>(rope.theta), dim);
  for (float& f : inv_freq) {
    // A number divided by a tensor is a reciprocal and a product in PyTorch.
    const float wave = (1.0f / f) * static_cast<float>(2 * std::numbers::pi);
    if (wave > longest) {
      f /= factor;
    } else if (wave >= shortest) {
      const float smooth = ((1.0f / wave) * static_cast<float>(original) - low) / span;
      f = (1.0f - smooth) * f / factor + smooth * f;
    }
  }
  return inv_freq;
}

// The pair of dimensions that turns `rotations` times over the original length.
double correction_dim(const RopeConfig& rope, double rotations, std::size_t dim) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  return static_cast<double>(dim) * logarithm(original / (rotations * 2 * std::numbers::pi)) /
         (2 * logarithm(rope.theta));
}

// Pairs below `low` stay, those above `high` are stretched, with a ramp between.
std::vector<float> yarn(const RopeConfig& rope, std::size_t dim) {
  double low = correction_dim(rope, rope.beta_fast, dim);
  double high = correction_dim(rope, rope.beta_slow, dim);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim) - 1);
  if (low == high) high += 0.001;
  std::vector<float> inv_freq = periods(static_cast<float>(rope.theta), dim);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const float extrapolated = 1.0f / inv_freq[i];
    const float interpolated = 1.0f / (static_cast<float>(rope.factor) * inv_freq[i]);
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float keep = 1.0f - ramp;
    inv_freq[i] = interpolated * (1.0f - keep) + extrapolated * keep;
  }
  return inv_freq;
}

double yarn_attention_scaling(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const auto scale = [&](double mscale) {
    return rope.factor <= 1 ? 1.0 : 0.1 * mscale * logarithm(rope.factor) + 1.0;
  };
  if (rope.mscale != 0 && rope.mscale_all_dim != 0)
    return scale(rope.mscale) / scale(rope.mscale_all_dim);
  return scale(1);
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config, std::size_t sequence_length) {
  const RopeConfig& rope = config.rope;
  switch (rope.type) {
    case RopeType::standard:
      break;
    case RopeType::linear:
      return {linear(rope, config.head_dim), 1};
    case RopeType::dynamic:
      return {dynamic(rope, config.head_dim, config.max_position_embeddings, sequence_length), 1};
    case RopeType::yarn:
      return {yarn(rope, config.head_dim), static_cast<float>(yarn_attention_scaling(rope))};
    case RopeType::llama3:
      return {llama3(rope, config.head_dim), 1};
  }
  return {standard(static_cast<float>(rope.theta), config.head_dim), 1};
}

void rope_cos_sin(const RopeFrequencies& frequencies, std::size_t position, float* cos,
                  float* sin) {
  for (std::size_t i = 0; i < frequencies.inv_freq.size(); ++i) {
    const float angle = static_cast<float>(position) * frequencies.inv_freq[i];
    const auto wide = static_cast<long double>(angle);
    cos[i] = static_cast<float>(cosl(wide)) * frequencies.attention_scaling;
    sin[i] = static_cast<float>(sinl(wide)) * frequencies.attention_scaling;
  }
}

}  // namespace octavo::models
