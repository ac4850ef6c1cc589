#include "octavo/checkpoint/fine_grained_fp8_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "octavo/base/json_reader.h"

namespace octavo {
namespace {

constexpr std::array<std::string_view, 9> kMembers = {"quant_method",
                                                      "activation_scheme",
                                                      "weight_block_size",
                                                      "dequantize",
                                                      "modules_to_not_convert",
                                                      "ignored_layers",
                                                      "modules_to_convert",
                                                      "scale_fmt",
                                                      "expert_dtype"};

// ASCII only: no scheme has other letters.
std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string problem(std::string_view name, std::string_view value, std::string_view expected) {
  return fmt::format("{} is {}, but {} is expected", name, value, expected);
}

// In the order of Transformers. An enumeration of scale formats cannot be wrong.
std::optional<std::string> problem_of(const FineGrainedFp8Config& config) {
  const std::string& scheme = config.activation_scheme;
  if (scheme != "dynamic" && scheme != "static")
    return problem("activation_scheme", scheme, "dynamic or static");
  const std::optional<BlockSize>& block = config.weight_block_size;
  if (block && (block->rows == 0 || block->cols == 0)) {
    return problem("weight_block_size", fmt::format("[{}, {}]", block->rows, block->cols),
                   "two numbers above 0 or null");
  }
  if (config.expert_dtype != "fp8" && config.expert_dtype != "fp4")
    return problem("expert_dtype", config.expert_dtype, "fp8 or fp4");
  return std::nullopt;
}

void read_block(JsonReader& reader, FineGrainedFp8Config& config) {
  if (!reader.contains("weight_block_size")) return;
  config.weight_block_size = std::nullopt;
  const Json* const json = reader.find("weight_block_size");
  const auto extents =
      reader.counts("weight_block_size", 1, std::numeric_limits<std::uint32_t>::max());
  if (!extents) return;
  if (!json->is_array() || extents->size() != 2) {
    reader.refuse(ErrorCode::bad_value,
                  problem("weight_block_size", json->dump(), "two numbers above 0 or null"));
    return;
  }
  config.weight_block_size = BlockSize{(*extents)[0], (*extents)[1]};
}

// The alias counts where the name itself is absent or null.
void read_lists(JsonReader& reader, FineGrainedFp8Config& config) {
  const char* const skip =
      reader.has("modules_to_not_convert") ? "modules_to_not_convert" : "ignored_layers";
  if (auto list = reader.texts(skip)) config.modules_to_not_convert = std::move(list);
  if (auto list = reader.texts("modules_to_convert")) config.modules_to_convert = std::move(list);
}

// Onto what `config` holds already, which is kept where a member is absent.
Result<void> read_members(const Json& json, std::string_view where, FineGrainedFp8Config& config) {
  if (!json.is_object())
    return fail(ErrorCode::bad_value,
                fmt::format("{} is {}, not an object", where, json.type_name()));
  JsonReader reader(json, std::string(where), ErrorCode::bad_value);
  config.quant_method = reader.text("quant_method").value_or(config.quant_method);
  config.activation_scheme =
      lower(reader.text("activation_scheme").value_or(config.activation_scheme));
  if (const auto wrong = problem_of({.activation_scheme = config.activation_scheme}))
    reader.refuse(ErrorCode::bad_value, *wrong);
  read_block(reader, config);
  if (const auto text = reader.text("scale_fmt")) {
    const auto format = scale_format_from_name(*text);
    if (!format) reader.refuse(ErrorCode::bad_value, problem("scale_fmt", *text, "float or ue8m0"));
    config.scale_fmt = format.value_or(config.scale_fmt);
  }
  config.expert_dtype = reader.text("expert_dtype").value_or(config.expert_dtype);
  if (const auto wrong = problem_of({.expert_dtype = config.expert_dtype}))
    reader.refuse(ErrorCode::bad_value, *wrong);
  config.dequantize = reader.flag("dequantize").value_or(config.dequantize);
  read_lists(reader, config);
  return reader.status();
}

std::string block_words(const std::optional<BlockSize>& block) {
  return block ? fmt::format("[{}, {}]", block->rows, block->cols) : "null";
}

Json list_json(const std::optional<std::vector<std::string>>& list) {
  return list ? Json(*list) : Json();
}

}  // namespace

Result<void> validate(const FineGrainedFp8Config& config) {
  if (const auto wrong = problem_of(config)) return fail(ErrorCode::bad_value, *wrong);
  return {};
}

Result<FineGrainedFp8Config> read_fine_grained_fp8_config(const Json& json,
                                                          std::string_view where) {
  FineGrainedFp8Config config;
  OCTAVO_CHECK(read_members(json, where, config));
  return config;
}

Json to_json(const FineGrainedFp8Config& config) {
  const std::optional<BlockSize>& block = config.weight_block_size;
  return {{"quant_method", config.quant_method},
          {"activation_scheme", config.activation_scheme},
          {"weight_block_size", block ? Json{block->rows, block->cols} : Json()},
          {"dequantize", config.dequantize},
          {"modules_to_not_convert", list_json(config.modules_to_not_convert)},
          {"modules_to_convert", list_json(config.modules_to_convert)},
          {"scale_fmt", scale_format_name(config.scale_fmt)},
          {"expert_dtype", config.expert_dtype}};
}

std::string to_json_string(const FineGrainedFp8Config& config) {
  // Names that are no UTF-8 must not throw; others are escaped to ASCII, as Python does.
  return to_json(config).dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

Result<Json> update(FineGrainedFp8Config& config, const Json& members) {
  FineGrainedFp8Config changed = config;
  OCTAVO_CHECK(read_members(members, "update", changed));
  config = std::move(changed);
  Json others = Json::object();
  for (const auto& [key, value] : members.items()) {
    if (std::ranges::find(kMembers, key) == kMembers.end()) others[key] = value;
  }
  return others;
}

Result<MergedConfig> merge(const FineGrainedFp8Config& checkpoint,
                           const FineGrainedFp8Config& caller) {
  if (checkpoint.quant_method != caller.quant_method) {
    return fail(ErrorCode::bad_value,
                fmt::format("the checkpoint's quant_method is {}, but {} was asked for",
                            checkpoint.quant_method, caller.quant_method));
  }
  MergedConfig merged{checkpoint, {}};
  FineGrainedFp8Config& config = merged.config;
  config.dequantize = caller.dequantize;
  if (caller.modules_to_not_convert) {
    if (!config.modules_to_not_convert) config.modules_to_not_convert.emplace();
    for (const std::string& entry : *caller.modules_to_not_convert) {
      if (std::ranges::find(*config.modules_to_not_convert, entry) ==
          config.modules_to_not_convert->end())
        config.modules_to_not_convert->push_back(entry);
    }
  }
  const FineGrainedFp8Config defaults;
  const auto note = [&](std::string_view name, std::string_view theirs, std::string_view asked,
                        bool wanted) {
    if (wanted && theirs != asked) {
      merged.notes.push_back(fmt::format(
          "{} {} was asked for, but the checkpoint is quantized with {}", name, asked, theirs));
    }
  };
  note("weight_block_size", block_words(checkpoint.weight_block_size),
       block_words(caller.weight_block_size),
       caller.weight_block_size != defaults.weight_block_size);
  note("scale_fmt", scale_format_name(checkpoint.scale_fmt), scale_format_name(caller.scale_fmt),
       caller.scale_fmt != defaults.scale_fmt);
  note("activation_scheme", checkpoint.activation_scheme, caller.activation_scheme,
       caller.activation_scheme != defaults.activation_scheme);
  note("expert_dtype", checkpoint.expert_dtype, caller.expert_dtype,
       caller.expert_dtype != defaults.expert_dtype);
  if (caller.modules_to_convert && caller.modules_to_convert != checkpoint.modules_to_convert)
    merged.notes.push_back("modules_to_convert was asked for, but the checkpoint is quantized");
  return merged;
}

Result<QuantizeOptions> quantize_options(const FineGrainedFp8Config& config) {
  OCTAVO_CHECK(validate(config));
  const auto refuse = [](std::string_view what) {
    return fail(ErrorCode::unsupported,
                fmt::format("quantizing with {} is not supported: it needs a checkpoint that is "
                            "quantized so",
                            what));
  };
  if (config.activation_scheme == "static") return refuse("activation_scheme static");
  if (!config.weight_block_size) return refuse("weight_block_size null");
  if (config.expert_dtype == "fp4") return refuse("expert_dtype fp4");
  QuantizeOptions options;
  options.recipe.block = *config.weight_block_size;
  options.recipe.scale_fmt = config.scale_fmt;
  options.scale_dtype = config.scale_fmt == ScaleFormat::ue8m0 ? DType::f8_e8m0 : DType::f32;
  options.not_convert = config.modules_to_not_convert.value_or(std::vector<std::string>{});
  options.convert = config.modules_to_convert.value_or(std::vector<std::string>{});
  return options;
}

}  // namespace octavo
