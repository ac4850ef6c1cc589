// One row of activations, or one head of keys or values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/kernels/cast/cast.h"

namespace octavo::ops {

// x (cols) to codes (cols) and scales (ceil(cols / group)), as quantize_activations() does.
void quantize_row(const kernels::CastKernels& cast, const float* x, std::size_t cols,
                  std::size_t group, std::uint8_t* codes, float* scales);

}  // namespace octavo::ops
