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

// Where the weights are while the model runs.
enum class WeightPlacement : std::uint8_t {
  automatic,  // packed, unless memory does not hold them
  packed,     // in memory, in the layout of the products
  mapped,     // in their files, as far as those have them in a form that products take
};

struct LoadOptions {
  std::optional<QuantizeOptions> quantize;  // at load, as quantize_checkpoint would
  bool dequantize = false;                  // FP8 weights to bf16, as dequantize_checkpoint would
  bool ignore_kv_scales = false;            // those of the files are not looked at
  PairingOptions pairing;
  WeightPlacement weights = WeightPlacement::automatic;
  Format kv_cache = Format::bf16;     // that memory is also needed for
  std::uint64_t available_bytes = 0;  // for weights, keys and values; 0: available_memory()
  const Context* context = nullptr;   // null: default_context()
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;  // bytes of tensors
};

// What was decided of the placement, and why.
struct PlacementReport {
  std::size_t mapped_weights = 0, packed_weights = 0;
  std::uint64_t mapped_bytes = 0;
  // What was compared where that decided (available_bytes is not 0): all weights packed, with keys
  // and values of kReservedTokens.
  std::uint64_t packed_bytes = 0, kv_bytes = 0, available_bytes = 0;
};

// Tokens whose keys and values are to have room beside packed weights.
inline constexpr std::size_t kReservedTokens = 4096;

// Scales of queries, keys and values in the files (k_scale, v_scale, q_scale, kv_scale of a layer's
// attention). None is used: an fp8 cache computes its own, per token and head.
struct KvScaleReport {
  std::size_t count = 0;
  float least = 0, most = 0;  // where they were looked at
};

struct LoadReport {
  std::uint64_t weight_bytes = 0;  // scales included, in memory or mapped
  std::uint64_t buffer_bytes = 0;  // the most beside it while loading
  std::size_t fp8_layers = 0;      // linear layers with 8-bit weights
  std::size_t wide_layers = 0;
  PlacementReport placement;
  KvScaleReport kv_scales;
  std::vector<std::string> notes;  // worth a line each: what was left out, what contradicts
};

struct LoadedModel {
  Llama model;
  LoadReport report;
};

// unsupported: an architecture or format that is not built. bad_model: tensors that are missing,
// unexpected, or contradict the config, by name; scales that do not fit. bad_value: weights that
// memory does not hold and that cannot stay in files, where placement is automatic.
//
// With mapped weights the files must stay as they are while the model runs:
// octavo/base/file_mapping.h.
Result<LoadedModel> load_model(const Checkpoint& checkpoint, const LoadOptions& options = {});

}  // namespace octavo::models
