#include "octavo/checkpoint/quant_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

namespace octavo {
namespace {

constexpr std::array<std::string_view, 4> kSkipKeys = {"modules_to_not_convert", "ignored_layers",
                                                       "ignore", "exclude_modules"};

void read_skip_list(const Json& json, QuantConfig& config) {
  for (const std::string_view key : kSkipKeys) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_array()) continue;
    config.skip_key = key;
    for (const Json& entry : *found) {
      if (entry.is_string()) config.skip.push_back(entry.get<std::string>());
    }
    return;
  }
}

std::string string_member(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::uint64_t number_member(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

const Json* object_member(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_object() ? &*found : nullptr;
}

// [128, 128].
std::optional<BlockSize> block_of_list(const Json& list) {
  if (!list.is_array() || list.size() != 2) return std::nullopt;
  const auto extent = [&](std::size_t i) -> std::uint64_t {
    return list[i].is_number_unsigned() ? list[i].get<std::uint64_t>() : 0;
  };
  if (extent(0) == 0 || extent(1) == 0) return std::nullopt;
  return BlockSize{extent(0), extent(1)};
}

// "128x128", as older compressed-tensors files spell it.
std::optional<BlockSize> block_of_text(std::string_view text) {
  BlockSize block;
  const char* const end = text.data() + text.size();
  const auto [x, rows_error] = std::from_chars(text.data(), end, block.rows);
  if (rows_error != std::errc() || x == end || *x != 'x') return std::nullopt;
  const auto [rest, cols_error] = std::from_chars(x + 1, end, block.cols);
  if (cols_error != std::errc() || rest != end || block.rows == 0 || block.cols == 0)
    return std::nullopt;
  return block;
}

// The weights of one of the config_groups.
struct Scheme {
  std::string name;
  std::string type;
  std::uint64_t bits = 0;
  std::string strategy;
  std::optional<BlockSize> block;
  bool operator==(const Scheme& other) const {  // but for the name
    return type == other.type && bits == other.bits && strategy == other.strategy &&
           block == other.block;
  }
};

std::string to_string(const Scheme& scheme) {
  return fmt::format(
      "{}: {} {} bits, {}{}", scheme.name, scheme.type, scheme.bits, scheme.strategy,
      scheme.block ? fmt::format(" {}x{}", scheme.block->rows, scheme.block->cols) : "");
}

Result<std::vector<Scheme>> read_groups(const Json& groups, std::string_view file) {
  std::vector<Scheme> schemes;
  for (const auto& [name, group] : groups.items()) {
    const Json* const weights = group.is_object() ? object_member(group, "weights") : nullptr;
    if (weights == nullptr) continue;  // null: of activations alone
    Scheme scheme{name,
                  string_member(*weights, "type"),
                  number_member(*weights, "num_bits"),
                  string_member(*weights, "strategy"),
                  {}};
    const auto structure = weights->find("block_structure");
    if (scheme.strategy == "block" && structure != weights->end() && !structure->is_null()) {
      scheme.block = structure->is_string() ? block_of_text(structure->get<std::string>())
                                            : block_of_list(*structure);
      if (!scheme.block) {
        return fail(ErrorCode::bad_model,
                    fmt::format("{}: block_structure of config group {} is neither two numbers "
                                "above 0 nor a text like 128x128",
                                file, name));
      }
    }
    if (const std::uint64_t size = number_member(*weights, "group_size");
        scheme.strategy == "group" && size > 0) {
      scheme.block = BlockSize{1, size};
    }
    schemes.push_back(std::move(scheme));
  }
  return schemes;
}

// One group counts whatever its name is, several where they agree. Others are named, and the
// tensors alone say how each is scaled.
Result<void> read_config_groups(const Json& json, std::string_view file, QuantConfig& config) {
  const Json* const groups = object_member(json, "config_groups");
  if (groups == nullptr) return {};
  OCTAVO_TRY(const std::vector<Scheme> schemes, read_groups(*groups, file));
  if (schemes.empty()) return {};
  const Scheme& first = schemes.front();
  const auto other = std::ranges::find_if(schemes, [&](const Scheme& s) { return !(s == first); });
  if (other != schemes.end()) {
    config.notes.push_back(
        fmt::format("its config_groups differ ({}; {})", to_string(first), to_string(*other)));
  } else {
    config.strategy = first.strategy;
  }
  for (const Scheme& scheme : schemes) {
    if (scheme.block && !config.weight_block_size) config.weight_block_size = scheme.block;
    if ((scheme.type != "float" || scheme.bits != 8) && !scheme.type.empty()) {
      config.notes.push_back(fmt::format("config group {} is {} of {} bits, not FP8", scheme.name,
                                         scheme.type, scheme.bits));
    }
  }
  return {};
}

void read_kv_cache(const Json& json, QuantConfig& config) {
  config.kv_cache = string_member(json, "kv_cache_quant_algo");  // ModelOpt
  const Json* const scheme = object_member(json, "kv_cache_scheme");
  if (scheme == nullptr) return;
  config.kv_cache = fmt::format("{} of {} bits", string_member(*scheme, "type"),
                                number_member(*scheme, "num_bits"));
}

// What ModelOpt's names of whole recipes say of the weights.
void apply_quant_algo(QuantConfig& config) {
  if (config.quant_algo == "FP8") config.strategy = "tensor";
  if (config.quant_algo == "FP8_PER_CHANNEL_PER_TOKEN") config.strategy = "channel";
  if (config.quant_algo == "FP8_PB_WO") {
    config.strategy = "block";
    if (!config.weight_block_size) config.weight_block_size = BlockSize{};
  }
}

// Members that every dialect spells alike.
Result<void> read_members(const Json& json, std::string_view file, QuantConfig& config) {
  config.present = true;
  config.file = std::filesystem::path(file).filename().string();
  config.quant_algo = string_member(json, "quant_algo");
  config.format = string_member(json, "format");
  config.fmt = string_member(json, "fmt");
  config.scale_fmt = string_member(json, "scale_fmt");
  config.activation_scheme = string_member(json, "activation_scheme");
  read_skip_list(json, config);
  read_kv_cache(json, config);
  if (const auto block = json.find("weight_block_size"); block != json.end() && !block->is_null()) {
    config.weight_block_size = block_of_list(*block);
    if (!config.weight_block_size) {
      return fail(
          ErrorCode::bad_model,
          fmt::format("{}: weight_block_size is neither a list of two numbers above 0 nor null",
                      file));
    }
    config.strategy = "block";
  }
  OCTAVO_CHECK(read_config_groups(json, file, config));
  apply_quant_algo(config);
  return {};
}

}  // namespace

Result<QuantConfig> read_quant_config(const Json& config, std::string_view file) {
  QuantConfig result;
  const Json* const text = object_member(config, "text_config");
  const Json* found = object_member(config, "quantization_config");
  if (found == nullptr && text != nullptr) found = object_member(*text, "quantization_config");
  if (found == nullptr) return result;
  OCTAVO_CHECK(read_members(*found, file, result));
  result.quant_method = string_member(*found, "quant_method");
  for (const Json* const level : {found, &config, text}) {
    if (level != nullptr && result.expert_dtype.empty())
      result.expert_dtype = string_member(*level, "expert_dtype");
  }
  return result;
}

Result<QuantConfig> read_hf_quant_config(const Json& json, std::string_view file) {
  QuantConfig result;
  const auto found = json.find("quantization");
  if (found == json.end()) return result;
  if (!found->is_object())
    return fail(ErrorCode::bad_file, fmt::format("{}: quantization is not an object", file));
  OCTAVO_CHECK(read_members(*found, file, result));
  result.quant_method = "modelopt";
  return result;
}

std::string write_quant_config(const BlockRecipe& recipe,
                               const std::vector<std::string>& not_converted) {
  // Two levels deep in config.json, which Transformers indents by two.
  std::string text = fmt::format(
      "{{\n    \"activation_scheme\": \"dynamic\",\n    \"fmt\": \"e4m3\",\n    \"quant_method\": "
      "\"fp8\",\n"
      "    \"weight_block_size\": [\n      {},\n      {}\n    ]",
      recipe.block.rows, recipe.block.cols);
  if (recipe.scale_fmt == ScaleFormat::ue8m0) text += ",\n    \"scale_fmt\": \"ue8m0\"";
  if (!not_converted.empty()) {
    text += ",\n    \"modules_to_not_convert\": [";
    for (std::size_t i = 0; i < not_converted.size(); ++i) {
      text += fmt::format("{}\n      {}", i == 0 ? "" : ",", Json(not_converted[i]).dump());
    }
    text += "\n    ]";
  }
  return text + "\n  }";
}

}  // namespace octavo
