// What layers take and give.
#pragma once

#include <cstddef>

#include "octavo/base/thread_pool.h"
#include "octavo/nn/arena.h"

namespace octavo::nn {

// (rows, cols) f32, row-major without gaps, in the arena of the step: one row per token.
struct Value {
  float* data;
  std::size_t rows, cols;

  // (cols), unchecked.
  float* row(std::size_t i) const { return data + i * cols; }
};

// How activations meet weights. Weights that are wide (bf16, f32) take bf16 where fp8 is asked for.
enum class ActivationType : unsigned char { fp8, bf16, f32 };

// One run of a model over some tokens.
struct Step {
  Arena& arena;
  ActivationType activations = ActivationType::fp8;
  const Context& context = default_context();

  // New, not initialized.
  Value value(std::size_t rows, std::size_t cols) const {
    return {arena.floats(rows * cols), rows, cols};
  }
};

}  // namespace octavo::nn
