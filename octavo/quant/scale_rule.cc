#include "octavo/quant/scale_rule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "octavo/formats/convert.h"

namespace octavo {
namespace {

constexpr float kDeepgemmFloor = 1e-4f;

constexpr std::array<std::pair<ScaleRule, std::string_view>, 3> kRules = {{
    {ScaleRule::transformers, "transformers"},
    {ScaleRule::deepseek, "deepseek"},
    {ScaleRule::deepgemm, "deepgemm"},
}};

}  // namespace

std::string_view rule_name(ScaleRule rule) { return kRules[static_cast<std::size_t>(rule)].second; }

std::optional<ScaleRule> rule_from_name(std::string_view name) {
  for (const auto& [rule, rule_text] : kRules) {
    if (rule_text == name) return rule;
  }
  return std::nullopt;
}

std::string_view scale_format_name(ScaleFormat format) {
  return format == ScaleFormat::ue8m0 ? "ue8m0" : "float";
}

std::optional<ScaleFormat> scale_format_from_name(std::string_view name) {
  if (name == "float") return ScaleFormat::float32;
  if (name == "ue8m0") return ScaleFormat::ue8m0;
  return std::nullopt;
}

kernels::ScaleOp scale_op(ScaleRule rule, ScaleFormat format) {
  const bool divide = rule == ScaleRule::deepseek && format == ScaleFormat::float32;
  return divide ? kernels::ScaleOp::divide : kernels::ScaleOp::multiply;
}

BlockScale compute_scale(float amax, ScaleRule rule, ScaleFormat format, float largest) {
  if (rule == ScaleRule::deepgemm) amax = std::max(amax, kDeepgemmFloor);
  // PyTorch divides a number by a tensor as number * reciprocal, so Transformers' M / amax is
  // rounded twice.
  const float q = rule == ScaleRule::transformers ? largest * (1.0f / amax) : largest / amax;

  BlockScale result{1.0f, 1.0f};
  if (amax > 0 && std::isinf(q)) {
    result.factor = std::numeric_limits<float>::max();
    result.scale = 1.0f / result.factor;
  } else if (amax > 0 && rule == ScaleRule::transformers) {
    result.factor = q;
    result.scale = 1.0f / q;
  } else if (amax > 0) {
    result.scale = amax / largest;
    result.factor = 1.0f / result.scale;
  }
  if (format == ScaleFormat::ue8m0) {
    result.scale = ue8m0_value(ue8m0_round_up(result.scale));
    result.factor = 1.0f / result.scale;
  }
  if (scale_op(rule, format) == kernels::ScaleOp::divide) result.factor = result.scale;
  return result;
}

std::uint8_t ue8m0_round_up(float x) {
  const std::uint8_t code =
      encode<Format::e8m0fnu>(x, Rounding::away_from_zero, Overflow::saturate);
  return std::max<std::uint8_t>(code, 1);  // 2^-127 is denormal in f32; codes end at 254
}

float ue8m0_value(std::uint8_t code) { return decode<Format::e8m0fnu>(code); }

std::optional<std::uint8_t> ue8m0_exact(float x) {
  const std::uint8_t code = encode<Format::e8m0fnu>(x, Rounding::toward_zero, Overflow::special);
  if (traits(Format::e8m0fnu).is_nan(code) || ue8m0_value(code) != x) return std::nullopt;
  return code;
}

}  // namespace octavo
