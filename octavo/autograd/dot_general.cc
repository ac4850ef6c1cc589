#include "octavo/autograd/dot_general.h"

#include <array>

namespace octavo {

Variable dot_general(const Variable& lhs, const Variable& rhs, const DotDimensionNumbers& dims,
                     std::optional<DType> preferred_element_type) {
  const std::array<Variable, 2> inputs = {lhs, rhs};
  return record(
      "dot_general", ops::dot_general(lhs.value(), rhs.value(), dims, preferred_element_type),
      inputs, [x = lhs.value(), y = rhs.value(), dims](const Tensor& g) -> std::vector<Cotangent> {
        // Codes have no gradient: fp8::in_q, which makes them, lets none through.
        std::vector<Cotangent> gradients(2);
        if (!is_fp8(x.dtype())) {
          gradients[0] = ops::dot_general_transpose_lhs(g, x.shape(), y, dims, x.dtype());
        }
        if (!is_fp8(y.dtype())) {
          gradients[1] = ops::dot_general_transpose_rhs(g, x, y.shape(), dims, y.dtype());
        }
        return gradients;
      });
}

Variable matmul(const Variable& lhs, const Variable& rhs) {
  return dot_general(lhs, rhs, ops::matmul_dims(lhs.rank()));
}

}  // namespace octavo
