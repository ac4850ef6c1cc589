// What a model says of its quantization: config.json's quantization_config (at the top or in
// text_config), or hf_quant_config.json. Read leniently, since tensors decide; written strictly.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json.h"
#include "octavo/quant/block.h"

namespace octavo {

struct QuantConfig {
  bool present = false;
  std::string file;          // where it stands: "config.json", "hf_quant_config.json"
  std::string quant_method;  // "fp8", "compressed-tensors", "modelopt", ...
  std::string quant_algo;    // ModelOpt's: "FP8", "FP8_PB_WO", ...
  std::string format;        // compressed-tensors': "float-quantized", ...
  // What shares a scale, where it is said: "tensor", "channel", "block", "group".
  std::string strategy;
  std::optional<BlockSize> weight_block_size;  // absent or null: nullopt; 1 x N of groups of N
  std::string fmt;                             // of the codes: "e4m3", "e5m2"
  std::string scale_fmt;                       // "", "float", "ue8m0"
  std::string activation_scheme;               // "dynamic", "static"
  std::string expert_dtype;                    // "fp4", "fp8"; here or beside it in config.json
  std::string kv_cache;                        // what is said of the KV cache, in words
  std::vector<std::string> skip;  // modules that were not converted, entries as written
  std::string skip_key;  // where they were found: modules_to_not_convert, ignored_layers, ignore,
                         // exclude_modules
  std::vector<std::string> notes;  // what in it is ambiguous or not ours, one phrase each
};

// `file` for messages. bad_model: a block size that is no pair of positive numbers.
Result<QuantConfig> read_quant_config(const Json& config, std::string_view file);

// hf_quant_config.json (ModelOpt): {"quantization": {"quant_algo", "exclude_modules"}}. bad_file
// where that is no object.
Result<QuantConfig> read_hf_quant_config(const Json& json, std::string_view file);

// The value written by `quantize`, as JSON text: what DeepSeek, Transformers, vLLM and SGLang read,
// nothing else in it.
std::string write_quant_config(const BlockRecipe& recipe,
                               const std::vector<std::string>& not_converted);

}  // namespace octavo
