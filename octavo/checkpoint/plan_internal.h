// What both plans do.
#pragma once

#include "octavo/checkpoint/conversion.h"

namespace octavo {

// unsupported: the tensors are quantized by a method whose codes are none of ours (GPTQ, AWQ, ...),
// so that copying them beside a new config would give something that only looks like a model.
Result<void> check_quant_method(const Checkpoint& checkpoint, const Pairing& pairing);

// Side files that would contradict the result.
void leave_out_stale_files(const Checkpoint& checkpoint, ConversionPlan& plan);

}  // namespace octavo
