// From the largest magnitude of a block to its scale, by the rules that published checkpoints were
// made with. One meaning of scale everywhere: real value = code x scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "octavo/kernels/cast/cast.h"

namespace octavo {

// The largest value of e4m3fn.
inline constexpr float kE4m3Max = 448.0f;

// M = the largest value of the codes (448 of e4m3fn), amax the block's largest magnitude, all in
// f32:
enum class ScaleRule : std::uint8_t {
  transformers,  // q = M * (1 / amax), s = 1 / q, code = w * q   (Transformers' Fp8Quantize; every
                 // step rounded)
  deepseek,      // s = amax / M, code = w / s              (DeepSeek-V3 weight_quant)
  deepgemm,  // amax >= 1e-4, s = amax / M, code = w * (1 / s)   (DeepGEMM per_block_cast_to_fp8)
};

// What values scales may have: scale_fmt of config.json.
enum class ScaleFormat : std::uint8_t {
  float32,  // "float": any f32
  ue8m0,    // a power of two, rounded up from the rule's scale; codes are computed for the rounded
            // scale
};

// The names of options and config.json: "transformers", "deepseek", "deepgemm"; nullopt for others.
std::string_view rule_name(ScaleRule rule);
std::optional<ScaleRule> rule_from_name(std::string_view name);
std::string_view scale_format_name(
    ScaleFormat format);  // "float", "ue8m0": config.json's scale_fmt
std::optional<ScaleFormat> scale_format_from_name(std::string_view name);

// What a block stores, and what its codes are computed with: code = round(clamp(w op factor)).
struct BlockScale {
  float scale;
  float factor;
};

// w / factor for `deepseek` with float scales, else w * factor: dividing by a power of two and
// multiplying by its reciprocal are the same.
kernels::ScaleOp scale_op(ScaleRule rule, ScaleFormat format);

// amax is finite and >= 0. Two guards beyond the originals: where M / amax overflows, q is the
// largest float (and s = 1 / q, by every rule); a block of zeros has scale 1, or under `deepgemm`
// its floor's scale.
BlockScale compute_scale(float amax, ScaleRule rule, ScaleFormat format, float largest = kE4m3Max);

// UE8M0 ("variant C"): the exponent byte of the next power of two >= x, within 1..254. x is
// positive and finite, or zero.
std::uint8_t ue8m0_round_up(float x);
float ue8m0_value(std::uint8_t code);  // 2^(code - 127), NaN for 255

// The byte of an f32 that is a power of two within 2^-127..2^127; nothing is rounded.
std::optional<std::uint8_t> ue8m0_exact(float x);

}  // namespace octavo
