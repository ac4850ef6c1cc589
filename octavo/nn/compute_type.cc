#include "octavo/nn/compute_type.h"

#include <fmt/format.h>

#include "octavo/base/error.h"

namespace octavo::nn {
namespace {

bool is_computed_in(DType dtype) { return is_wide_float(dtype) || dtype == DType::f64; }

}  // namespace

DType compute_type(std::string_view layer, std::optional<DType> dtype,
                   std::initializer_list<DType> operands) {
  if (dtype && !is_computed_in(*dtype)) {
    throw ContractError(fmt::format("{}: given the dtype {}, expected F32, BF16, F16 or F64", layer,
                                    dtype_name(*dtype)));
  }
  if (dtype) return *dtype;
  std::optional<DType> type;
  for (const DType operand : operands) {
    if (is_computed_in(operand)) type = type ? promoted(*type, operand) : operand;
  }
  return type.value_or(DType::f32);
}

}  // namespace octavo::nn
