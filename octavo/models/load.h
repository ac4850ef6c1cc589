// From a model directory to a model in memory: codes are packed as they come, quantized or
// dequantized on the way where that is asked for; never is a wide copy of the model in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/conversion.h"
#include "octavo/models/llama.h"

namespace octavo::models {

struct LoadOptions {
  std::optional<QuantizeOptions> quantize;  // at load, as quantize_checkpoint would
  bool dequantize = false;                  // FP8 weights to bf16, as dequantize_checkpoint would
  PairingOptions pairing;
  const Context* context = nullptr;  // null: default_context()
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;  // bytes of tensors
};

struct LoadReport {
  std::uint64_t weight_bytes = 0;  // in memory, scales included
  std::uint64_t buffer_bytes = 0;  // the most beside it while loading
  std::size_t fp8_layers = 0;      // linear layers with 8-bit weights
  std::size_t wide_layers = 0;
  std::vector<std::string> notes;  // worth a line each: what was left out, what contradicts
};

struct LoadedModel {
  Llama model;
  LoadReport report;
};

// unsupported: an architecture or format that is not built. bad_model: tensors that are missing,
// unexpected, or contradict the config, by name; scales that do not fit.
Result<LoadedModel> load_model(const Checkpoint& checkpoint, const LoadOptions& options = {});

}  // namespace octavo::models
