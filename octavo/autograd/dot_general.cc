#include "octavo/autograd/dot_general.h"

#include <array>

namespace octavo {

Variable dot_general(const Variable& lhs, const Variable& rhs, const DotDimensionNumbers& dims,
                     std::optional<DType> preferred_element_type) {
  const std::array<Variable, 2> inputs = {lhs, rhs};
  // Codes have no gradient: fp8::in_q, which makes them, lets none through.
  const bool is_lhs_wanted = lhs.is_recorded() && !is_fp8(lhs.dtype());
  const bool is_rhs_wanted = rhs.is_recorded() && !is_fp8(rhs.dtype());
  return record("dot_general",
                ops::dot_general(lhs.value(), rhs.value(), dims, preferred_element_type), inputs,
                [=, x = lhs.value(), y = rhs.value()](const Tensor& g) {
                  std::vector<Cotangent> gradients(2);
                  if (is_lhs_wanted) {
                    gradients[0] = ops::dot_general_transpose_lhs(g, x.shape(), y, dims, x.dtype());
                  }
                  if (is_rhs_wanted) {
                    gradients[1] = ops::dot_general_transpose_rhs(g, x, y.shape(), dims, y.dtype());
                  }
                  return gradients;
                });
}

Variable matmul(const Variable& lhs, const Variable& rhs) {
  return dot_general(lhs, rhs, ops::matmul_dims(lhs.rank()));
}

}  // namespace octavo
