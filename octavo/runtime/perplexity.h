// How well a model predicts a text: exp of the mean negative log-likelihood of its tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "octavo/base/error.h"
#include "octavo/runtime/engine.h"

namespace octavo::runtime {

struct PerplexityOptions {
  std::size_t context = 1024;                    // tokens of a window; windows follow one another
  std::optional<std::int32_t> first_token = {};  // put before every window (BOS), not predicted
  const std::atomic<bool>* interrupt = nullptr;
  std::function<void(std::size_t done, std::size_t total)> on_progress = {};  // tokens
};

struct Perplexity {
  double perplexity = 0;
  double negative_log_likelihood = 0;  // sum over `predicted` tokens, natural logarithm
  std::size_t predicted = 0;           // all but the first of each window
};

// bad_value: fewer than two tokens, a context below 2. bad_model: logits that are no numbers.
// interrupted. The same bits for any number of threads and any instruction set.
Result<Perplexity> perplexity(Engine& engine, std::span<const std::int32_t> tokens,
                              const PerplexityOptions& options = {});

}  // namespace octavo::runtime
