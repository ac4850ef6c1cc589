#include "octavo/models/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "octavo/base/json_reader.h"

namespace octavo::models {
namespace {

// What no model comes near, so that no product of two of them overflows.
constexpr std::size_t kMaxHidden = std::size_t{1} << 20;
constexpr std::size_t kMaxLayers = std::size_t{1} << 14;
constexpr std::size_t kMaxHeads = std::size_t{1} << 14;
constexpr std::size_t kMaxHeadDim = std::size_t{1} << 14;
constexpr std::size_t kMaxIntermediate = std::size_t{1} << 24;
constexpr std::size_t kMaxVocabulary = std::size_t{1} << 28;
constexpr std::size_t kMaxPositions = std::size_t{1} << 30;
constexpr auto kMaxTokenId = std::size_t{std::numeric_limits<std::int32_t>::max()};

// A family and what Transformers takes where its config is silent.
struct FamilyDefaults {
  Family family;
  std::string_view model_type;
  std::string_view architecture;
  std::size_t vocab_size;
  std::size_t intermediate_size;
  std::size_t num_key_value_heads;  // 0: as many as heads
  std::size_t head_dim;             // 0: hidden_size / num_attention_heads
  std::size_t max_position_embeddings;
  bool has_special_tokens;  // bos 1, eos 2
};

constexpr std::array<FamilyDefaults, 4> kFamilies = {{
    {Family::llama, "llama", "LlamaForCausalLM", 32000, 11008, 0, 0, 2048, true},
    {Family::mistral, "mistral", "MistralForCausalLM", 32000, 14336, 8, 0, 131072, true},
    {Family::qwen2, "qwen2", "Qwen2ForCausalLM", 151936, 22016, 32, 0, 32768, false},
    {Family::qwen3, "qwen3", "Qwen3ForCausalLM", 151936, 22016, 32, 128, 32768, false},
}};

struct RopeName {
  RopeType type;
  std::string_view name;
};
constexpr std::array<RopeName, 5> kRopeTypes = {{{RopeType::standard, "default"},
                                                 {RopeType::linear, "linear"},
                                                 {RopeType::dynamic, "dynamic"},
                                                 {RopeType::yarn, "yarn"},
                                                 {RopeType::llama3, "llama3"}}};

template <class Table, class Get>
std::string listed(const Table& table, Get get) {
  std::vector<std::string_view> names;
  for (const auto& row : table) names.push_back(get(row));
  return fmt::format("{}", fmt::join(names, ", "));
}

// By the first of `architectures`, else by model_type; both must mean the same.
const FamilyDefaults* find_family(JsonReader& reader) {
  const std::vector<std::string> architectures =
      reader.texts("architectures").value_or(std::vector<std::string>{});
  const std::string model_type = reader.text("model_type").value_or("");
  if (reader.failed()) return nullptr;
  const std::string supported =
      "supported: " + listed(kFamilies, [](const FamilyDefaults& f) { return f.architecture; });
  const auto by_type = std::ranges::find(kFamilies, model_type, &FamilyDefaults::model_type);
  if (architectures.empty()) {
    if (by_type != kFamilies.end()) return by_type;
    reader.refuse(ErrorCode::unsupported,
                  model_type.empty()
                      ? "neither architectures nor model_type says what model this is; " + supported
                      : fmt::format("model_type {} is not supported; {}", model_type, supported));
    return nullptr;
  }
  const std::string& name = architectures.front();
  const auto found = std::ranges::find(kFamilies, name, &FamilyDefaults::architecture);
  if (found == kFamilies.end()) {
    reader.refuse(ErrorCode::unsupported,
                  fmt::format("architecture {} is not supported; {}", name, supported));
    return nullptr;
  }
  if (!model_type.empty() && by_type != found) {
    reader.refuse(ErrorCode::bad_model,
                  fmt::format("architectures says {}, but model_type is {}", name, model_type));
    return nullptr;
  }
  return found;
}

// A value that may stand in the rotary object or at the top of the config, as older files have it.
template <class Read>
auto either(JsonReader& object, JsonReader& top, const char* key, Read read) {
  const auto inner = read(object);
  const auto outer = read(top);
  if (inner && outer && *inner != *outer) {
    object.refuse(ErrorCode::bad_model,
                  fmt::format("{} is {}, but {} beside it", key, *inner, *outer));
  }
  return inner ? inner : outer;
}

std::optional<RopeType> rope_type(JsonReader& object) {
  const std::optional<std::string> type = object.text("type");
  const std::optional<std::string> rope_type = object.text("rope_type");
  if (type && rope_type && *type != *rope_type) {
    object.refuse(ErrorCode::bad_model,
                  fmt::format("rope_type is {}, but type is {}", *rope_type, *type));
    return std::nullopt;
  }
  const std::optional<std::string>& name = rope_type ? rope_type : type;
  if (!name) {
    // Scaling whose kind is not said must not be taken for none.
    if (object.has("factor"))
      object.refuse(ErrorCode::bad_model, "it has a factor, but no rope_type");
    return RopeType::standard;
  }
  const auto found = std::ranges::find(kRopeTypes, *name, &RopeName::name);
  if (found != kRopeTypes.end()) return found->type;
  object.refuse(ErrorCode::unsupported,
                fmt::format("rope_type {} is not supported; supported: {}", *name,
                            listed(kRopeTypes, [](const RopeName& r) { return r.name; })));
  return std::nullopt;
}

void read_llama3(JsonReader& object, RopeConfig& rope) {
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
    if (!object.has(key))
      object.refuse(ErrorCode::bad_model, fmt::format("rope_type llama3 needs {}", key));
  }
  rope.low_freq_factor = object.number_above("low_freq_factor", 0).value_or(1);
  rope.high_freq_factor = object.number_above("high_freq_factor", 0).value_or(4);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    object.refuse(ErrorCode::bad_model,
                  fmt::format("high_freq_factor {} is not above low_freq_factor {}",
                              rope.high_freq_factor, rope.low_freq_factor));
  }
}

void read_yarn(JsonReader& object, bool original_given, std::size_t max_positions,
               RopeConfig& rope) {
  if (!object.has("factor")) {
    if (!original_given) {
      object.refuse(ErrorCode::bad_model,
                    "rope_type yarn needs factor or original_max_position_embeddings");
    }
    rope.factor = static_cast<double>(max_positions) /
                  static_cast<double>(rope.original_max_position_embeddings);
  }
  // 0 stands for "not given" in all of these.
  const auto beta = [&](const char* key, double fallback) {
    const double value = object.number_from(key, 0).value_or(0);
    return value == 0 ? fallback : value;
  };
  rope.beta_fast = beta("beta_fast", 32);
  rope.beta_slow = beta("beta_slow", 1);
  if (rope.beta_fast < rope.beta_slow) {
    object.refuse(ErrorCode::bad_model, fmt::format("beta_fast {} is below beta_slow {}",
                                                    rope.beta_fast, rope.beta_slow));
  }
  rope.mscale = object.number_from("mscale", 0).value_or(0);
  rope.mscale_all_dim = object.number_from("mscale_all_dim", 0).value_or(0);
  rope.attention_factor = object.number_above("attention_factor", 0);
  rope.truncate = object.flag("truncate").value_or(true);
}

// `object`: rope_scaling or rope_parameters; `top`: the config, for what older files keep beside
// it.
Result<RopeConfig> read_rope_object(const Json& json, const std::string& where, JsonReader& top,
                                    const ModelConfig& config) {
  JsonReader object(json, where);
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      object.refuse(ErrorCode::unsupported,
                    fmt::format("rotary parameters by layer type ({}) are not supported", key));
    }
  }
  RopeConfig rope;
  rope.type = rope_type(object).value_or(RopeType::standard);
  rope.theta = either(object, top, "rope_theta", [](JsonReader& r) {
                 return r.number_above("rope_theta", 1);
               }).value_or(10000);
  const auto partial = either(object, top, "partial_rotary_factor", [](JsonReader& r) {
    return r.number_above("partial_rotary_factor", 0);
  });
  if (partial && *partial != 1) {
    object.refuse(ErrorCode::unsupported,
                  fmt::format("partial_rotary_factor {} is not supported; these architectures "
                              "rotate whole heads",
                              *partial));
  }
  if (rope.type != RopeType::standard) {
    if (!object.has("factor") && rope.type != RopeType::yarn) {
      object.refuse(ErrorCode::bad_model,
                    fmt::format("rope_type {} needs factor", to_string(rope.type)));
    }
    rope.factor = object.number_above("factor", 0).value_or(1);
  }
  if (rope.type == RopeType::dynamic && config.head_dim == 2)
    object.refuse(ErrorCode::bad_model, "rope_type dynamic needs a head_dim above 2");
  if (rope.type == RopeType::yarn || rope.type == RopeType::llama3) {
    const auto original =
        either(object, top, "original_max_position_embeddings", [](JsonReader& r) {
          return r.count("original_max_position_embeddings", 1, kMaxPositions);
        });
    rope.original_max_position_embeddings = original.value_or(config.max_position_embeddings);
    if (rope.type == RopeType::llama3) read_llama3(object, rope);
    if (rope.type == RopeType::yarn)
      read_yarn(object, original.has_value(), config.max_position_embeddings, rope);
  }
  OCTAVO_CHECK(object.status());
  OCTAVO_CHECK(top.status());
  return rope;
}

// rope_parameters, rope_scaling (older), or neither. Where both are given they must agree.
Result<RopeConfig> read_rope(JsonReader& top, std::string_view file, const ModelConfig& config) {
  std::optional<RopeConfig> found;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* const json = top.find(key);
    if (json == nullptr || json->empty()) continue;
    const std::string where = fmt::format("{}: {}", file, key);
    if (!json->is_object())
      return fail(ErrorCode::bad_model, where + " is neither an object nor null");
    OCTAVO_TRY(const RopeConfig rope, read_rope_object(*json, where, top, config));
    if (found && *found != rope) {
      return fail(ErrorCode::bad_model,
                  fmt::format("{}: rope_parameters and rope_scaling say different things; leave "
                              "one of them",
                              file));
    }
    found = rope;
  }
  if (found) return *found;
  return read_rope_object(Json::object(), std::string(file), top, config);
}

// Mistral: all layers. Qwen: where use_sliding_window says so, the layers from max_window_layers
// on, or those that layer_types names. Llama: none, whatever its config says.
void read_windows(JsonReader& reader, ModelConfig& config) {
  const std::size_t layers = config.num_hidden_layers;
  config.sliding_window.assign(layers, std::nullopt);
  if (config.family == Family::llama) return;
  const bool mistral = config.family == Family::mistral;
  std::optional<std::size_t> window = reader.count("sliding_window", 1, kMaxPositions);
  if (!reader.contains("sliding_window")) window = 4096;
  if (!mistral && !reader.flag("use_sliding_window").value_or(false)) window = std::nullopt;
  const std::size_t first = mistral ? 0 : reader.count("max_window_layers", 28, 0, kMaxPositions);
  for (std::size_t i = first; i < layers; ++i) config.sliding_window[i] = window;

  const auto types = reader.texts("layer_types");
  if (!types) return;
  if (types->size() != layers) {
    reader.refuse(ErrorCode::bad_model, fmt::format("layer_types has {} entries, but "
                                                    "num_hidden_layers is {}",
                                                    types->size(), layers));
    return;
  }
  for (std::size_t i = 0; i < layers; ++i) {
    const std::string& type = (*types)[i];
    const bool sliding = type == "sliding_attention";
    if (!sliding && type != "full_attention") {
      reader.refuse(ErrorCode::unsupported,
                    fmt::format("layer_types[{}] {} is not supported; supported: full_attention, "
                                "sliding_attention",
                                i, type));
    } else if (sliding && !window) {
      reader.refuse(ErrorCode::bad_model,
                    fmt::format("layer_types[{}] is {}, but no sliding window is in use", i, type));
    } else if (mistral && !sliding && window) {
      reader.refuse(ErrorCode::bad_model,
                    fmt::format("layer_types[{}] is {}, but sliding_window is for all layers in "
                                "this architecture",
                                i, type));
    } else {
      config.sliding_window[i] = sliding ? window : std::nullopt;
    }
  }
}

void read_sizes(JsonReader& reader, const FamilyDefaults& defaults, ModelConfig& config) {
  config.hidden_size = reader.count("hidden_size", 4096, 1, kMaxHidden);
  config.num_hidden_layers = reader.count("num_hidden_layers", 32, 1, kMaxLayers);
  config.num_attention_heads = reader.count("num_attention_heads", 32, 1, kMaxHeads);
  config.intermediate_size =
      reader.count("intermediate_size", defaults.intermediate_size, 1, kMaxIntermediate);
  config.vocab_size = reader.count("vocab_size", defaults.vocab_size, 1, kMaxVocabulary);
  config.max_position_embeddings =
      reader.count("max_position_embeddings", defaults.max_position_embeddings, 1, kMaxPositions);
  config.num_nextn_predict_layers = reader.count("num_nextn_predict_layers", 0, 0, kMaxLayers);

  const std::size_t heads = config.num_attention_heads;
  // null means as many as heads in every family, absence does not.
  const std::size_t kv_default =
      defaults.num_key_value_heads == 0 || reader.contains("num_key_value_heads")
          ? heads
          : defaults.num_key_value_heads;
  config.num_key_value_heads = reader.count("num_key_value_heads", kv_default, 1, kMaxHeads);
  if (heads % config.num_key_value_heads != 0) {
    reader.refuse(ErrorCode::bad_model,
                  fmt::format("num_key_value_heads {} does not divide num_attention_heads {}",
                              config.num_key_value_heads, heads));
  }
  if (!reader.has("head_dim") && defaults.head_dim == 0 && config.hidden_size % heads != 0) {
    reader.refuse(ErrorCode::bad_model,
                  fmt::format("hidden_size {} is no multiple of num_attention_heads {}, and there "
                              "is no head_dim",
                              config.hidden_size, heads));
  }
  const std::size_t head_dim =
      defaults.head_dim == 0 ? config.hidden_size / heads : defaults.head_dim;
  config.head_dim = reader.count("head_dim", 1, kMaxHeadDim).value_or(head_dim);
  if (config.head_dim == 0 || config.head_dim % 2 != 0) {
    reader.refuse(ErrorCode::bad_model,
                  fmt::format("heads have {} dimensions, but rotary positions need an even number",
                              config.head_dim));
  }
}

void read_switches(JsonReader& reader, ModelConfig& config) {
  config.tie_word_embeddings = reader.flag("tie_word_embeddings").value_or(false);
  const double eps = reader.number_from("rms_norm_eps", 0).value_or(1e-6);
  config.rms_norm_eps = static_cast<float>(eps);
  if (!std::isfinite(config.rms_norm_eps)) {
    reader.refuse(ErrorCode::bad_model,
                  fmt::format("rms_norm_eps is {}, which is beyond the range of f32", eps));
  }
  const std::string activation = reader.text("hidden_act").value_or("silu");
  if (activation != "silu" && activation != "swish") {
    reader.refuse(ErrorCode::unsupported,
                  fmt::format("hidden_act {} is not supported; supported: silu", activation));
  }
  config.qk_norm = config.family == Family::qwen3;
  config.qkv_bias = config.family == Family::qwen2;
  if (config.family == Family::llama || config.family == Family::qwen3)
    config.qkv_bias = config.o_bias = reader.flag("attention_bias").value_or(false);
  if (config.family == Family::llama) config.mlp_bias = reader.flag("mlp_bias").value_or(false);
}

void read_end_tokens(JsonReader& reader, bool has_defaults, ModelConfig& config) {
  if (const auto eos = reader.counts("eos_token_id", 0, kMaxTokenId)) {
    for (const std::size_t id : *eos) config.eos_token_ids.push_back(static_cast<std::int32_t>(id));
  } else if (has_defaults && !reader.contains("eos_token_id")) {
    config.eos_token_ids = {2};
  }
}

}  // namespace

std::string_view to_string(Family family) {
  return std::ranges::find(kFamilies, family, &FamilyDefaults::family)->model_type;
}

std::string_view to_string(RopeType type) {
  return std::ranges::find(kRopeTypes, type, &RopeName::type)->name;
}

Result<ModelConfig> read_model_config(const Json& config, std::string_view file) {
  JsonReader reader(config, std::string(file));
  const FamilyDefaults* const defaults = find_family(reader);
  OCTAVO_CHECK(reader.status());
  ModelConfig result;
  result.family = defaults->family;
  result.architecture = defaults->architecture;
  read_sizes(reader, *defaults, result);
  read_switches(reader, result);
  read_end_tokens(reader, defaults->has_special_tokens, result);
  OCTAVO_CHECK(reader.status());
  read_windows(reader, result);
  OCTAVO_CHECK(reader.status());
  OCTAVO_TRY(result.rope, read_rope(reader, file, result));
  return result;
}

}  // namespace octavo::models
