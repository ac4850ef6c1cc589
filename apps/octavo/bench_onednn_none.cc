#include "bench_product.h"
#include "bench_training.h"

namespace octavo::app {

std::vector<ProductKernel> onednn_kernels() { return {}; }

std::vector<TrainingPeer> onednn_training() { return {}; }

}  // namespace octavo::app
