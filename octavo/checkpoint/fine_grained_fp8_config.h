// How a model is to be quantized, or was, in the words of Transformers' FineGrainedFP8Config: what
// a caller passes, and what quantization_config of a checkpoint holds. Differences from the
// original are listed in docs/numerics.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json.h"
#include "octavo/checkpoint/conversion.h"
#include "octavo/quant/block.h"

namespace octavo {

struct FineGrainedFp8Config {
  std::string quant_method = "fp8";                          // any
  std::string activation_scheme = "dynamic";                 // or "static"
  std::optional<BlockSize> weight_block_size = BlockSize{};  // nullopt: one scale per tensor
  bool dequantize = false;                                   // while loading
  std::optional<std::vector<std::string>> modules_to_not_convert{};  // beside the defaults
  std::optional<std::vector<std::string>> modules_to_convert{};      // although defaults skip them
  ScaleFormat scale_fmt = ScaleFormat::float32;
  std::string expert_dtype = "fp8";  // or "fp4"
  bool operator==(const FineGrainedFp8Config&) const = default;
};

// bad_value, the first of: activation_scheme, weight_block_size, scale_fmt, expert_dtype.
Result<void> validate(const FineGrainedFp8Config& config);

// `where` for messages. The skip list may be called ignored_layers. Members of other names (fmt,
// ...) are dropped; absent ones have their defaults. null is a value for weight_block_size and the
// lists, and absence elsewhere. bad_value: as validate(), and values of another type.
Result<FineGrainedFp8Config> read_fine_grained_fp8_config(
    const Json& json, std::string_view where = "quantization_config");

// All members, in the order of their names.
Json to_json(const FineGrainedFp8Config& config);
std::string to_json_string(const FineGrainedFp8Config& config);  // indented by 2, ends the line

// Sets the members that exist and returns the others. null leaves a list as it is. What would not
// be valid changes nothing.
Result<Json> update(FineGrainedFp8Config& config, const Json& members);

// A checkpoint that is quantized, and what its caller asked for: the checkpoint's config, with the
// caller's `dequantize` and the caller's skip list added to its own. Everything else that the
// caller wants differently is not done, and a note says so. bad_value: another quantization method.
struct MergedConfig {
  FineGrainedFp8Config config;
  std::vector<std::string> notes;
};
Result<MergedConfig> merge(const FineGrainedFp8Config& checkpoint,
                           const FineGrainedFp8Config& caller);

// For a wide model that is quantized while it is loaded or written. unsupported: what only a
// checkpoint can bring (static activation scales, one scale per tensor, fp4 experts).
Result<QuantizeOptions> quantize_options(const FineGrainedFp8Config& config);

}  // namespace octavo
