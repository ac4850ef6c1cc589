#include "octavo/runtime/generation_config.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "octavo/base/json_reader.h"

namespace octavo::runtime {
namespace {

constexpr auto kMaxTokenId = std::size_t{std::numeric_limits<std::int32_t>::max()};

// Members that change the text and are not built, with the value that changes nothing.
struct NotBuilt {
  const char* key;
  double neutral;
};
constexpr std::array<NotBuilt, 13> kNotBuilt = {{
    {"num_beams", 1},
    {"no_repeat_ngram_size", 0},
    {"typical_p", 1},
    {"top_h", 0},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"penalty_alpha", 0},
    {"min_new_tokens", 0},
    {"min_length", 0},
    {"guidance_scale", 1},
    {"bad_words_ids", 0},
    {"suppress_tokens", 0},
    {"sequence_bias", 0},
}};

bool is_neutral(const Json& value, double neutral) {
  return value.is_number() ? value.get<double>() == neutral : value.empty();
}

// A number from 0 to 1.
std::optional<double> share(JsonReader& reader, const char* key) {
  const std::optional<double> value = reader.number_from(key, 0);
  if (value && *value > 1) {
    reader.refuse(ErrorCode::bad_model,
                  fmt::format("{} is {}, but a number from 0 to 1 is expected", key, *value));
  }
  return value;
}

}  // namespace

Result<GenerationConfig> read_generation_config(const Json& json, std::string_view file) {
  JsonReader reader(json, std::string(file));
  GenerationConfig config;
  for (const std::size_t id :
       reader.counts("eos_token_id", 0, kMaxTokenId).value_or(std::vector<std::size_t>{}))
    config.eos_token_ids.push_back(static_cast<std::int32_t>(id));
  config.do_sample = reader.flag("do_sample").value_or(false);
  config.temperature = reader.number_from("temperature", 0);
  config.top_k = reader.count("top_k", 0, std::numeric_limits<std::int32_t>::max());
  config.top_p = share(reader, "top_p");
  config.min_p = share(reader, "min_p");
  config.repetition_penalty = reader.number_above("repetition_penalty", 0);
  config.max_new_tokens =
      reader.count("max_new_tokens", 1, std::numeric_limits<std::int32_t>::max());
  OCTAVO_CHECK(reader.status());
  if (const auto sampling = check_sampling(sampling_options(config)); !sampling)
    return fail(ErrorCode::bad_model, fmt::format("{}: {}", file, sampling.error().message));
  for (const auto& [key, neutral] : kNotBuilt) {
    const Json* const value = reader.find(key);
    if (value == nullptr || is_neutral(*value, neutral)) continue;
    const bool plain = value->is_number() || value->is_boolean();
    config.not_built.push_back(plain ? fmt::format("{} {}", key, value->dump()) : key);
  }
  return config;
}

SamplingOptions sampling_options(const GenerationConfig& config) {
  SamplingOptions options;
  options.repetition_penalty = config.repetition_penalty.value_or(1);
  if (!config.do_sample) return options;
  options.temperature = config.temperature.value_or(1);
  options.top_k = config.top_k.value_or(50);
  options.top_p = config.top_p.value_or(1);
  options.min_p = config.min_p.value_or(0);
  return options;
}

}  // namespace octavo::runtime
