#include "bench_product.h"

namespace octavo::app {

std::vector<ProductKernel> onednn_kernels() { return {}; }

}  // namespace octavo::app
