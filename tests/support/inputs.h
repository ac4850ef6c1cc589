// Seeded inputs, and what each should become.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/support/reference.h"
#include "tests/support/tensor_file.h"

namespace octavo::tests {

// BF16 values as f32. Each block of 128 x 128 has a magnitude of its own.
std::vector<float> gaussian(const Extent& matrix, std::uint64_t seed);
std::vector<float> heavy_tailed(const Extent& matrix, std::uint64_t seed);

Tensor bf16_weight(const Extent& matrix, std::uint64_t seed);  // gaussian

// Every code that is a number, in random order.
Bytes random_codes(const Extent& matrix, Fp8 format, std::uint64_t seed);

// Scales that are all different, so that a shifted or dropped one shows.
std::vector<float> distinct_scales(std::uint64_t count);      // any f32
std::vector<float> power_of_two_scales(std::uint64_t count);  // 2^-12..2^-1, neighbours different

// An FP8 weight with block scales, and its values.
struct Fp8Weight {
  Tensor codes;
  Tensor scales;  // F32
  std::vector<float> values;
};
Fp8Weight fp8_weight(const Extent& matrix, std::uint64_t seed, std::uint64_t block_rows = 128,
                     std::uint64_t block_cols = 128);
// The same with the given scales.
Fp8Weight fp8_weight(const Extent& matrix, std::uint64_t seed, const std::vector<float>& scales);

// `values` as a tensor of BF16, rounded once.
Tensor as_bf16(const Fp8Weight& weight);

Tensor e8m0_tensor(Dims shape, const std::vector<float>& powers_of_two);

// What `quantize` makes of a tensor of values: F8_E4M3 codes, and F32 or E8M0 scales.
struct QuantizedTensors {
  Tensor codes;
  Tensor scales;
};
QuantizedTensors expected_quantized(const Tensor& wide, const Recipe& recipe);

// config.json of an FP8 model with 128 x 128 blocks.
inline constexpr std::string_view kFp8Config =
    R"({
  "architectures": ["LlamaForCausalLM"],
  "torch_dtype": "bfloat16",
  "quantization_config": {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128]
  }
}
)";
inline constexpr std::string_view kPlainConfig =
    R"({
  "architectures": ["LlamaForCausalLM"],
  "torch_dtype": "bfloat16"
}
)";

}  // namespace octavo::tests
