// generation_config.json: how the makers of a model want it to be run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json.h"
#include "octavo/runtime/sampling.h"

namespace octavo::runtime {

struct GenerationConfig {
  std::vector<std::int32_t> eos_token_ids;
  bool do_sample = false;
  std::optional<double> temperature;
  std::optional<std::size_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<std::size_t> max_new_tokens;
  // What it asks for that is not built, "num_beams 4" each: text will not be what it intends.
  std::vector<std::string> not_built;
};

// bad_model: a value that is none.
Result<GenerationConfig> read_generation_config(const Json& json,
                                                std::string_view file = "generation_config.json");

// As Transformers: without do_sample greedy, with it temperature 1 and the best 50 tokens where
// nothing else is said. The repetition penalty applies to both. Seed 0.
SamplingOptions sampling_options(const GenerationConfig& config);

}  // namespace octavo::runtime
