#include "octavo/runtime/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "octavo/base/float_mode.h"
#include "octavo/base/threefry.h"

namespace octavo::runtime {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// exp(x) for x <= 0, by additions and products alone: the C library's exp differs between
// processors. Below exp(-700): 0.
double exp_of(double x) {
  if (x < -700) return 0;
  constexpr double kLog2e = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 32 bits: products with k are exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double k = std::floor(x * kLog2e + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2
  // Taylor's series: the first term left out is below 2^-57.
  constexpr std::array<double, 14> kInverseFactorials = [] {
    std::array<double, 14> inverse{1};
    double factorial = 1;
    for (std::size_t n = 1; n < inverse.size(); ++n)
      inverse[n] = 1 / (factorial *= static_cast<double>(n));
    return inverse;
  }();
  double sum = 0;
  for (std::size_t n = kInverseFactorials.size(); n-- > 0;) sum = sum * r + kInverseFactorials[n];
  const auto exponent = static_cast<std::uint64_t>(1023 + static_cast<int>(k));
  return sum * std::bit_cast<double>(exponent << 52);
}

std::optional<std::string> problem_of(const SamplingOptions& options) {
  const auto expected = [](const char* name, double value, const char* what) {
    return fmt::format("{} is {}, but {} is expected", name, value, what);
  };
  // Beyond that a sound logit, below 2^90 or so, would leave the range of F32.
  if (!(options.repetition_penalty >= 1e-6 && options.repetition_penalty <= 1e6))
    return expected("repetition_penalty", options.repetition_penalty,
                    "a number from 1e-06 to 1e+06");
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    return expected("temperature", options.temperature, "a number of at least 0");
  if (!(options.top_p >= 0 && options.top_p <= 1))
    return expected("top_p", options.top_p, "a number from 0 to 1");
  if (!(options.min_p >= 0 && options.min_p <= 1))
    return expected("min_p", options.min_p, "a number from 0 to 1");
  return std::nullopt;
}

}  // namespace

Result<void> check_sampling(const SamplingOptions& options) {
  if (const auto problem = problem_of(options)) return fail(ErrorCode::bad_value, *problem);
  return {};
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  if (const auto problem = problem_of(options)) throw ContractError("sampling: " + *problem);
}

bool Sampler::better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Each token once, however often it occurred.
void Sampler::penalize(std::span<float> logits, std::span<const std::int32_t> history) {
  seen_.assign(history.begin(), history.end());
  std::ranges::sort(seen_);
  const auto repeated = std::ranges::unique(seen_);
  seen_.erase(repeated.begin(), repeated.end());
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const std::int32_t id : seen_) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit < 0 ? logit * penalty : logit / penalty;
  }
}

void Sampler::keep_top_k() {
  if (options_.top_k == 0 || options_.top_k >= candidates_.size()) return;
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(options_.top_k);
  std::nth_element(candidates_.begin(), end, candidates_.end(), better);
  candidates_.erase(end, candidates_.end());
  // Sums must not depend on how the library partitions.
  std::ranges::sort(candidates_, better);
}

// The best, as long as those before them have less than top_p of the weight.
void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  // A heap with the best at the front; those taken gather at the end, the best last.
  const auto worse = [](const Candidate& a, const Candidate& b) { return better(b, a); };
  std::ranges::make_heap(candidates_, worse);
  auto end = candidates_.end();
  double before = 0;
  do {
    std::pop_heap(candidates_.begin(), end, worse);
    --end;
    before += end->weight;
  } while (end != candidates_.begin() && before < options_.top_p * total);
  candidates_.erase(candidates_.begin(), end);
}

void Sampler::keep_min_p() {
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < options_.min_p; });
}

std::int32_t Sampler::draw(std::uint64_t index) const {
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  const auto bits = threefry_bits(options_.seed, index) >> 11;
  const double target = static_cast<double>(bits) * 0x1p-53 * total;  // below total
  double sum = 0;
  for (const Candidate& c : candidates_) {
    sum += c.weight;
    if (target < sum) return c.id;
  }
  return candidates_.back().id;
}

Result<std::int32_t> Sampler::sample(std::span<float> logits, std::span<const std::int32_t> history,
                                     std::uint64_t index) {
  const DefaultFloatMode mode;
  if (options_.repetition_penalty != 1) penalize(logits, history);
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < kInfinity)) {
      return fail(ErrorCode::bad_model,
                  fmt::format("logit {} is {}: the model's weights or scales are damaged "
                              "(octavo verify --full finds where)",
                              i, logits[i]));
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (logits.empty() || logits[best] == -kInfinity)
    return fail(ErrorCode::bad_model, "no logit is above -infinity");
  if (options_.temperature == 0) return static_cast<std::int32_t>(best);

  const float top = logits[best];
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    candidates_.push_back({logits[i], static_cast<std::int32_t>(i), 0});
  keep_top_k();
  for (Candidate& c : candidates_)
    c.weight = exp_of((double{c.logit} - double{top}) / options_.temperature);
  keep_top_p();
  keep_min_p();
  return draw(index);
}

}  // namespace octavo::runtime
