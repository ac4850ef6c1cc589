// Implementations of the three products of training that `octavo bench --op training` measures:
// ours, and those of other libraries where this build has them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"

namespace octavo::app {

struct TrainingData {
  std::size_t m, n, k;
  std::vector<float> x;  // (m, k)
  std::vector<float> w;  // (n, k)
  std::vector<float> g;  // (m, n)
};

// Everything from f32 to f32: Y = X W^T, dX = G W, dW = G^T X. Results are owned by run.
struct Training {
  std::function<void()> run;
  float *y, *dx, *dw;
};

struct TrainingPeer {
  std::string kernel;
  std::function<Result<Training>(const TrainingData&, ThreadPool&)> make;
};

// Those in bf16 of oneDNN; without any where the build lacks it (bench_onednn_none.cc).
std::vector<TrainingPeer> onednn_training();

}  // namespace octavo::app
