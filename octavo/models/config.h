// What config.json says of a model: the families that are built, every default as Transformers has
// it. Whether the tensors agree is for the loader to say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json.h"

namespace octavo::models {

enum class Family : std::uint8_t { llama, mistral, qwen2, qwen3 };

enum class RopeType : std::uint8_t { standard /* "default" */, linear, dynamic, yarn, llama3 };

std::string_view to_string(Family family);  // as model_type spells it
std::string_view to_string(RopeType type);  // as rope_type spells it

// Rotary positions. All dimensions of a head are rotated in these families.
struct RopeConfig {
  RopeType type = RopeType::standard;
  double theta = 10000;
  double factor = 1;                                 // linear, dynamic, yarn, llama3
  std::size_t original_max_position_embeddings = 0;  // yarn, llama3
  double low_freq_factor = 0, high_freq_factor = 0;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  double mscale = 0, mscale_all_dim = 0;             // yarn; 0: not given
  std::optional<double> attention_factor{};          // yarn
  bool truncate = true;                              // yarn
  bool operator==(const RopeConfig&) const = default;
};

struct ModelConfig {
  Family family = Family::llama;
  std::string architecture;  // "LlamaForCausalLM"
  std::size_t hidden_size = 0;
  std::size_t num_hidden_layers = 0;
  std::size_t num_attention_heads = 0;
  std::size_t num_key_value_heads = 0;  // divides num_attention_heads
  std::size_t head_dim = 0;             // even
  std::size_t intermediate_size = 0;
  std::size_t vocab_size = 0;
  std::size_t max_position_embeddings = 0;
  float rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  // By layer: how many positions a token sees, itself included. nullopt: all before it.
  std::vector<std::optional<std::size_t>> sliding_window;
  RopeConfig rope;
  std::vector<std::int32_t> eos_token_ids;
  std::size_t num_nextn_predict_layers = 0;  // extra layers after the last one, not built
};

// `file` for messages. unsupported: an architecture, activation or rotary type that is not built,
// by name. bad_model: a value that is none, or values that contradict each other.
Result<ModelConfig> read_model_config(const Json& config, std::string_view file = "config.json");

}  // namespace octavo::models
