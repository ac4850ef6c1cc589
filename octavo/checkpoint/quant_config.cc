#include "octavo/checkpoint/quant_config.h"

#include <fmt/format.h>

#include <array>

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

}  // namespace

Result<QuantConfig> read_quant_config(const Json& config, std::string_view file) {
  QuantConfig result;
  const Json* found = nullptr;
  const auto look = [&](const Json& json) {
    if (!json.is_object()) return;
    const auto member = json.find("quantization_config");
    if (member != json.end() && member->is_object()) found = &*member;
  };
  if (const auto text = config.find("text_config"); text != config.end()) look(*text);
  look(config);
  if (found == nullptr) return result;

  result.present = true;
  result.quant_method = string_member(*found, "quant_method");
  result.scale_fmt = string_member(*found, "scale_fmt");
  read_skip_list(*found, result);
  if (const auto block = found->find("weight_block_size");
      block != found->end() && !block->is_null()) {
    const auto extent = [&](std::size_t i) -> std::uint64_t {
      const Json& value = (*block)[i];
      return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
    };
    if (!block->is_array() || block->size() != 2 || extent(0) == 0 || extent(1) == 0) {
      return fail(
          ErrorCode::bad_model,
          fmt::format("{}: weight_block_size is neither a list of two numbers above 0 nor null",
                      file));
    }
    result.weight_block_size = BlockSize{extent(0), extent(1)};
  }
  return result;
}

Result<QuantConfig> read_hf_quant_config(const Json& json, std::string_view file) {
  QuantConfig result;
  const auto found = json.find("quantization");
  if (found == json.end()) return result;
  if (!found->is_object())
    return fail(ErrorCode::bad_model, fmt::format("{}: quantization is not an object", file));
  result.present = true;
  result.quant_method = "modelopt";
  read_skip_list(*found, result);
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
