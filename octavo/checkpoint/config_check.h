// What a model's config says of its quantization against its tensors, which decide; and against
// what the user says it is.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/pairing.h"

namespace octavo {

// By headers alone.
struct ConfigFact {
  enum class Kind : std::uint8_t {
    claims_quantized,    // config says quantized, no tensor is
    lacks_quantization,  // tensors are quantized, config is silent
    block_size,          // weights with scales that are no blocks of the declared size
    strategy,            // the same of "tensor", "channel", ...
    fmt,                 // codes of another format
    scale_fmt,           // scales that are powers of two by dtype, and config says float
    activation_scheme,   // static without activation scales
    expert_dtype,        // fp4, and no tensor is
    kv_cache,            // quantized KV cache: worth knowing, scales or not
    config,              // the config by itself: groups that differ, ...
  };
  Kind kind;
  bool contradicts;     // the tensors say otherwise
  std::string message;  // one printable line that names the file
};

std::vector<ConfigFact> check_config(const Checkpoint& checkpoint, const Pairing& pairing);

// Values of quant_method whose FP8 weights are read, for messages: "fp8, mxfp8, ...".
std::string supported_quant_methods();

// bad_value: `asked` (empty: nothing was) is no method that is read, or not the config's.
Result<void> check_asked_quant_method(const Checkpoint& checkpoint, std::string_view asked);

// unsupported_format: the tensors are quantized by a method whose codes are none of ours (GPTQ,
// AWQ, ...), so that copying them beside a new config would give something that only looks like a
// model.
std::optional<Defect> foreign_codes(const Checkpoint& checkpoint, const Pairing& pairing);
Result<void> check_quant_method(const Checkpoint& checkpoint, const Pairing& pairing);

}  // namespace octavo
