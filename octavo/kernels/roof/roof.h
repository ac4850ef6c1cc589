// What memory allows: loops that do nothing but move bytes, to hold kernels against.
#pragma once

#include <cstddef>

#include "octavo/base/cpu_features.h"

namespace octavo::kernels {

// For each of `steps`: reads `in` lines of 64 bytes and writes `out` lines past the caches. The two
// arrays are aligned to 64 bytes; in and out are 1 to 4.
struct StreamArgs {
  const void* from;
  std::size_t in;
  void* to;
  std::size_t out;
  std::size_t steps;
};

namespace generic {
void stream(const StreamArgs& args);
}
namespace avx512bf16 {
void stream(const StreamArgs& args);
}

// With the widest loads and stores that were built and that this machine has.
void stream(const StreamArgs& args);

}  // namespace octavo::kernels
