// Which tensors hold codes, and which scales belong to them, under every published name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/quant/scale_layout.h"

namespace octavo {

// A quantized weight: codes, and how its scales lie over it.
struct QuantizedWeight {
  std::size_t tensor;  // index into Checkpoint::tensors
  Format format;       // e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, e2m1fn (packed)
  Shape shape;         // logical: two elements a byte where packed
  std::optional<std::size_t>
      scale;  // index into Checkpoint::tensors; none: every scale is 1 (asked for)
  ScaleLayout layout;
};

struct PairingOptions {
  std::optional<BlockSize> block;     // instead of the config's
  bool missing_scale_as_one = false;  // an FP8 weight without a scale has scale 1
  bool u8_as_e4m3 = false;            // U8 with a scale beside it holds E4M3 codes
};

struct Pairing {
  enum class Role : std::uint8_t { plain, weight, scale, activation_scale };
  std::vector<Role> roles;               // by tensor
  std::vector<std::size_t> weight_of;    // by tensor with role `weight`: index into `weights`
  std::vector<QuantizedWeight> weights;  // in the order of Checkpoint::tensors
  std::size_t refused_weights = 0;       // codes with scales that do not fit them or are not read
  std::size_t unpaired_weights = 0;      // FP8 without a scale
  std::size_t unpaired_scales = 0;       // scale without an FP8 weight
  Defects problems;  // in the order of Checkpoint::tensors; a converter stops at the first
};

// Reads scale values only where one weight has them under two names.
Pairing pair_scales(const Checkpoint& checkpoint, const PairingOptions& options);

// Quantized weights, those with problems included.
std::size_t count_quantized(const Pairing& pairing);

// Scale tensors, those without a weight included; not activation scales.
std::size_t count_scales(const Pairing& pairing);

// Scales as f32: `count` of them from element `first` on, of an F32, F16, BF16, F8_E8M0 or U8
// (exponent) tensor.
Result<void> read_scales(const Checkpoint& checkpoint, const CheckpointTensor& scale,
                         std::uint64_t first, std::span<float> to);

// ".weight" becomes ".weight_scale_inv"; any other name gets "_scale_inv" at its end.
std::string scale_name(std::string_view weight);

}  // namespace octavo
