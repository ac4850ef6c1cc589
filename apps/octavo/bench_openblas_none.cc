#include "bench_product.h"

namespace octavo::app {

std::vector<ProductKernel> openblas_kernels() { return {}; }

}  // namespace octavo::app
