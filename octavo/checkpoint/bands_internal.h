// The work of a conversion, cut into bands that fit in a worker's memory and are independent of
// each other.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "octavo/base/file.h"
#include "octavo/checkpoint/conversion.h"

namespace octavo {

// Where one planned tensor is written: offsets are in the output file.
struct OutputTensor {
  const PlannedTensor* planned;
  const CheckpointTensor* source;
  const QuantizedWeight* codes;     // of a source that is quantized, else null
  Shape shape;                      // logical
  TensorInfo main;                  // codes or values
  std::optional<TensorInfo> scale;  // where the action is `quantize`
};

// A band is at most this many elements; 17 bytes each (source, codes, f32 of a quantized source,
// two f32 for the error), two bits of what is not finite and at worst 8 bytes of scales stay under
// 64 MB.
inline constexpr std::uint64_t kMaxBandElements = std::uint64_t{1} << 21;

struct Band {
  std::size_t output;   // which OutputTensor
  std::uint64_t slice;  // matrix of a batch
  std::uint64_t row;
  std::uint64_t rows;
  std::uint64_t col;
  std::uint64_t cols;
  std::uint64_t bytes;  // of the source, for progress; `keep`: the byte range [row, row + rows)
};

// Calls `take` for each band of a tensor, until one fails. `quantize`: whole blocks of the recipe,
// or a single block that is larger than a band. `dequantize`: any window.
Result<void> cut_bands(const OutputTensor& output, std::size_t index, const BlockSize& block,
                       const std::function<Result<void>(const Band&)>& take);

struct BandResult {
  kernels::DequantizeCounts counts{};
  QuantizationError error;
  std::uint64_t non_finite = 0;
};

// What both directions share; the settings that only one of them has are neutral for the other.
struct BandSettings {
  const Checkpoint& checkpoint;
  const kernels::CastKernels& kernels;
  BlockRecipe recipe;             // quantize
  bool allow_non_finite = false;  // quantize: elements; dequantize: scales
  bool measure_error = false;     // quantize
  DType dequantized = DType::bf16;
  bool can_clamp = false;  // the command has --clamp
  bool clamp = false;
};

// Buffers of one worker, reused from band to band.
struct Scratch {
  std::vector<std::byte> source;  // bytes as in the file
  std::vector<float> wide;        // a quantized source as f32
  std::vector<std::byte> output;  // codes, or dequantized values
  std::vector<float> scales;
  std::vector<float> source_scales;
  std::vector<float> left;  // for the error: source and result as f32
  std::vector<float> right;
};

Result<BandResult> convert_band(const BandSettings& settings, const OutputTensor& output,
                                const Band& band, const File& to, Scratch& scratch);

}  // namespace octavo
