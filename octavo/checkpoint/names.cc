#include "octavo/checkpoint/names.h"

#include <algorithm>
#include <array>

namespace octavo {
namespace {

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_embedding(std::string_view module) {
  constexpr std::array<std::string_view, 5> kNames = {"embed", "wte", "wpe", "embeddings",
                                                      "embedding"};
  const std::string_view last = last_segment(module);
  return is_one_of(last, kNames) || last.starts_with("embed_") || last.ends_with("_embedding") ||
         last.ends_with("_embeddings");
}

bool is_head(std::string_view module) {
  constexpr std::array<std::string_view, 5> kNames = {"lm_head", "head", "output_layer",
                                                      "embed_out", "score"};
  const std::string_view last = last_segment(module);
  return is_one_of(last, kNames) || module == "output" || module == "model.output";
}

bool is_norm(std::string_view module) {
  constexpr std::array<std::string_view, 5> kNames = {"ln", "ln_1", "ln_2", "ln_f", "LayerNorm"};
  const std::string_view last = last_segment(module);
  return is_one_of(last, kNames) || last.ends_with("norm") ||
         (last.starts_with("norm") && last.size() == 5);  // norm1, norm2
}

bool is_router(std::string_view module) {
  constexpr std::array<std::string_view, 6> kNames = {
      "gate",        "router",       "shared_expert_gate",
      "router_gate", "gate_network", "e_score_correction_bias"};
  return is_one_of(last_segment(module), kNames) || has_segment(module, "router");
}

bool is_mtp_projection(std::string_view module) { return last_segment(module) == "eh_proj"; }

}  // namespace

std::string_view last_segment(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == name.npos ? name : name.substr(dot + 1);
}

bool has_segment(std::string_view name, std::string_view segment) {
  for (std::size_t at = name.find(segment); at != name.npos; at = name.find(segment, at + 1)) {
    const bool begins = at == 0 || name[at - 1] == '.';
    const std::size_t end = at + segment.size();
    if (begins && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

std::string_view module_name(std::string_view tensor) {
  if (tensor.ends_with(kWeightSuffix)) tensor.remove_suffix(kWeightSuffix.size());
  return tensor;
}

std::string_view tensor_role(std::string_view tensor) {
  const std::string_view module = module_name(tensor);
  if (tensor.ends_with("_scale_inv") || tensor.ends_with("_scale") || tensor.ends_with(".scale"))
    return "scale";
  if (is_embedding(module)) return "embedding";
  if (is_head(module)) return "head";
  if (is_norm(module)) return "norm";
  if (is_router(module)) return "router";
  if (tensor.ends_with(".bias")) return "bias";
  if (has_segment(module, "experts") || has_segment(module, "shared_expert") ||
      has_segment(module, "shared_experts")) {
    return "expert";
  }
  if (has_segment(module, "self_attn") || has_segment(module, "attn") ||
      has_segment(module, "attention"))
    return "attention";
  if (has_segment(module, "mlp") || has_segment(module, "ffn") ||
      has_segment(module, "feed_forward"))
    return "mlp";
  return "other";
}

std::optional<std::string_view> default_skip_reason(std::string_view tensor) {
  const std::string_view module = module_name(tensor);
  if (is_head(module)) return "output head";
  if (is_embedding(module)) return "embedding";
  if (is_norm(module)) return "norm";
  if (is_router(module)) return "router";
  if (module.ends_with("indexer.weights_proj")) return "indexer weight projection";
  if (has_segment(module, "compressor")) return "compressor";
  // Multi-token prediction: published FP8 models keep it wide.
  if (is_mtp_projection(module)) return "multi-token prediction projection";
  return std::nullopt;
}

bool is_wide_unasked(std::string_view tensor) {
  return default_skip_reason(tensor).has_value() && !is_mtp_projection(module_name(tensor));
}

bool is_fused_expert(std::string_view tensor, const Shape& shape) {
  return shape.size() == 3 && has_segment(tensor, "experts") && !tensor.ends_with("bias");
}

}  // namespace octavo
