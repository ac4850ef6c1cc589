// The type that a layer computes in.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "octavo/autograd/elementwise.h"

namespace octavo::nn {

// `dtype` if it is given, else what the layer's inputs and parameters promote to, as Flax's
// promote_dtype: integers do not count, and integers alone give f32.
// ContractError: a dtype that is no floating-point type to compute in.
DType compute_type(std::string_view layer, std::optional<DType> dtype,
                   std::initializer_list<DType> operands);

}  // namespace octavo::nn
