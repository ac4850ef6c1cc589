#include "octavo/autograd/dot_general.h"

#include <array>

namespace octavo {

Variable dot_general(const Variable& lhs, const Variable& rhs, const DotDimensionNumbers& dims,
                     std::optional<DType> preferred_element_type) {
  const std::array<Variable, 2> inputs = {lhs, rhs};
  return record(
      "dot_general", ops::dot_general(lhs.value(), rhs.value(), dims, preferred_element_type),
      inputs, [x = lhs.value(), y = rhs.value(), dims](const Tensor& g) -> std::vector<Cotangent> {
        return {ops::dot_general_transpose_lhs(g, x.shape(), y, dims, x.dtype()),
                ops::dot_general_transpose_rhs(g, x, y.shape(), dims, y.dtype())};
      });
}

Variable matmul(const Variable& lhs, const Variable& rhs) {
  return dot_general(lhs, rhs, ops::matmul_dims(lhs.rank()));
}

}  // namespace octavo
