// The next token from logits: greedy or drawn at random, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "octavo/base/error.h"

namespace octavo::runtime {

// In the order in which they apply, which is Transformers'.
struct SamplingOptions {
  double repetition_penalty = 1;  // of tokens that occurred, prompt included; 1: none
  double temperature = 0;         // 0: greedy, and the following say nothing
  std::size_t top_k = 0;          // 0: all
  double top_p = 1;               // 1: all
  double min_p = 0;               // relative to the best; 0: all
  std::uint64_t seed = 0;
  bool operator==(const SamplingOptions&) const = default;
};

// bad_value: which option, its value and what is expected.
Result<void> check_sampling(const SamplingOptions& options);

// Holds memory for one sequence's choices, no state: a choice depends on its arguments and the
// options alone.
class Sampler {
 public:
  // ContractError: options that check_sampling() refuses.
  explicit Sampler(const SamplingOptions& options);

  const SamplingOptions& options() const { return options_; }

  // `logits` (vocabulary) are overwritten. `history`: tokens so far, prompt included. `index`: how
  // many were chosen before in this sequence, the counter of the random numbers. Among equal logits
  // the lowest id is the best. bad_model: no logit is a number, one is NaN or +infinity.
  Result<std::int32_t> sample(std::span<float> logits, std::span<const std::int32_t> history,
                              std::uint64_t index);

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
    double weight;  // exp((logit - best) / temperature)
  };
  static bool better(const Candidate& a, const Candidate& b);

  void penalize(std::span<float> logits, std::span<const std::int32_t> history);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  std::int32_t draw(std::uint64_t index) const;

  SamplingOptions options_;
  std::vector<std::int32_t> seen_;
  std::vector<Candidate> candidates_;
};

}  // namespace octavo::runtime
