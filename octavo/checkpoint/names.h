// What a tensor's name says: which module it belongs to, and what part that plays.
#pragma once

#include <optional>
#include <string_view>

#include "octavo/tensor/shape.h"

namespace octavo {

inline constexpr std::string_view kWeightSuffix = ".weight";

// "model.layers.0.mlp.gate_proj" of "model.layers.0.mlp.gate_proj.weight"; other parameters are
// their own module.
std::string_view module_name(std::string_view tensor);

std::string_view last_segment(std::string_view name);

// "experts" is a segment of "mlp.experts.0", not of "mlp.shared_experts".
bool has_segment(std::string_view name, std::string_view segment);

// The part a tensor plays, as `inspect` names it: "embedding", "head", "norm", "router", "expert",
// "attention", "mlp", "bias", "scale", "other".
std::string_view tensor_role(std::string_view tensor);

// Why the default list leaves a tensor unquantized, or nullopt: output head, embedding, norm,
// router, ... By name alone.
std::optional<std::string_view> default_skip_reason(std::string_view tensor);

// Loaders leave it wide although no list names it: what is no linear layer to them, or is known to
// be wide. Multi-token prediction projections are not among these.
bool is_wide_unasked(std::string_view tensor);

// A fused parameter of an experts container ("...experts.gate_up_proj"): 3-D, one matrix per
// expert.
bool is_fused_expert(std::string_view tensor, const Shape& shape);

}  // namespace octavo
