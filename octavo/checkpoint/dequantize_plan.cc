#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "octavo/checkpoint/config_check.h"
#include "octavo/checkpoint/plan_internal.h"

namespace octavo {
namespace {

std::string torch_dtype(DType dtype) {
  return dtype == DType::bf16  ? "\"bfloat16\""
         : dtype == DType::f16 ? "\"float16\""
                               : "\"float32\"";
}

// Without what speaks of quantization, and with the dtype under the key or keys that it already
// has.
std::string config_for(const Checkpoint& checkpoint, DType dtype) {
  std::string text = checkpoint.config_text;
  if (text.empty()) return text;
  bool named = false;
  for (const std::vector<std::string>& path : {std::vector<std::string>{}, {"text_config"}}) {
    for (const std::string_view key : {"quantization_config", "expert_dtype"})
      text = remove_json_member(text, path, key);
    const Json* object = &checkpoint.config;
    if (!path.empty()) {
      const auto nested = object->find(path[0]);
      if (nested == object->end() || !nested->is_object()) continue;
      object = &*nested;
    }
    for (const std::string_view key : {"torch_dtype", "dtype"}) {
      if (!object->contains(key)) continue;
      text = set_json_member(text, path, key, torch_dtype(dtype));
      named = true;
    }
  }
  return named ? text : set_json_member(text, {}, "torch_dtype", torch_dtype(dtype));
}

std::string_view format_words(Format format) {
  switch (format) {
    case Format::e2m1fn:
      return "FP4";
    case Format::e5m2:
      return "FP8 E5M2";
    case Format::e4m3fnuz:
      return "FP8 E4M3FNUZ";
    case Format::e5m2fnuz:
      return "FP8 E5M2FNUZ";
    default:
      return "FP8 E4M3";
  }
}

PlannedTensor decide(const Checkpoint& checkpoint, const Pairing& pairing, std::size_t source) {
  using Role = Pairing::Role;
  switch (pairing.roles[source]) {
    case Role::scale:
      return {source, Action::drop, "scale", false};
    case Role::activation_scale:
      return {source, Action::drop, "activation scale", false};
    case Role::weight: {
      const QuantizedWeight& weight = pairing.weights[pairing.weight_of[source]];
      const std::string how =
          weight.scale ? "blocks of " + to_string(weight.layout.block) : "scale 1";
      return {source, Action::dequantize, fmt::format("{}, {}", format_words(weight.format), how),
              false};
    }
    case Role::plain:
      break;
  }
  return {source, Action::keep,
          fmt::format("dtype {}", dtype_name(checkpoint.tensors[source].info.dtype)), false};
}

}  // namespace

Result<ConversionPlan> plan_dequantize(const Checkpoint& checkpoint,
                                       const DequantizeOptions& options) {
  OCTAVO_CHECK(check_asked_quant_method(checkpoint, options.quant_method));
  ConversionPlan plan;
  plan.pairing = pair_scales(checkpoint, options.pairing);
  if (!plan.pairing.problems.empty())
    return std::unexpected(to_error(plan.pairing.problems.front()));
  std::size_t without_scale = 0;
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i)
    plan.tensors.push_back(decide(checkpoint, plan.pairing, i));
  for (const QuantizedWeight& weight : plan.pairing.weights) without_scale += weight.scale ? 0 : 1;
  if (without_scale > 0) {
    plan.warnings.push_back(
        fmt::format("{} weights without a scale were taken as code x 1 (--missing-scale-as-one)",
                    without_scale));
  }
  if (plan.pairing.weights.empty())
    plan.warnings.emplace_back("no tensor of it is quantized: everything is copied");
  if (!plan.pairing.weights.empty() && !checkpoint.quantization.weight_block_size &&
      !options.pairing.block) {
    const bool blocks = std::ranges::any_of(plan.pairing.weights, [](const QuantizedWeight& w) {
      return w.layout.block == BlockSize{} && w.layout.grid_rows * w.layout.grid_cols > 1;
    });
    if (blocks)
      plan.warnings.emplace_back(
          "no weight_block_size in the config: 128x128 was taken, which fits every scale");
  }
  OCTAVO_CHECK(check_quant_method(checkpoint, plan.pairing));
  // The list decides nothing here, so that one that cannot be read is a warning too.
  const auto skip_list = skip_list_warnings(checkpoint, plan.pairing);
  if (skip_list) {
    std::ranges::copy(*skip_list, std::back_inserter(plan.warnings));
  } else {
    plan.warnings.push_back(skip_list.error().message);
  }
  plan.config_text =
      plan.pairing.weights.empty() ? checkpoint.config_text : config_for(checkpoint, options.dtype);
  if (!plan.pairing.weights.empty()) leave_out_stale_files(checkpoint, plan);
  return plan;
}

}  // namespace octavo
