// The type that a layer computes in.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "octavo/autograd/elementwise.h"

namespace octavo::nn {

// `dtype` if it is given, else what the layer's inputs and parameters promote to, as Flax's
// promote_dtype: integers do not count, and integers alone give f32.
// ContractError, which `layer` begins: a dtype other than f32, bf16, f16 and f64.
DType compute_type(std::string_view layer, std::optional<DType> dtype,
                   std::initializer_list<DType> operands);

}  // namespace octavo::nn
