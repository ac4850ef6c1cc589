// `octavo info --op gemm`: the plan for one product, and why.
#pragma once

#include <cstdint>
#include <string>

#include "octavo/base/error.h"

namespace octavo::app {

struct PlanQuestion {
  std::string op;  // "gemm", or "gemv": one row
  std::uint64_t m = 1, n = 4096, k = 4096;
  std::string weights = "e4m3fn";
  std::string activations = "bf16";
  int threads = 0;  // 0: all allowed ones
};

// bad_value: a format that has no plan.
Result<void> print_plan(const PlanQuestion& question, bool as_json);

}  // namespace octavo::app
