// config.json against the tensors.
#pragma once

#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/pairing.h"

namespace octavo {

// Counts that are no counts, or that the tensors contradict (config_value): layers, heads, experts,
// vocabulary, hidden size; and what the config says of quantization (config_claims_quantized,
// config_lacks_quantization, config_scale_fmt, unsupported_format). Tensors decide; where files are
// lost, nothing is concluded from what is not there.
void check_config(const Survey& survey, const Pairing& pairing, Defects& defects);

}  // namespace octavo
