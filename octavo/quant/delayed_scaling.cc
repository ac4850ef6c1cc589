#include "octavo/quant/delayed_scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octavo {

float delayed_scale(float amax, float scale, float fp8_max, int margin, Fp8Semantics semantics) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const bool has_amax = amax > 0.0f && std::isfinite(amax);
  float factor = has_amax ? (fp8_max / amax) / std::ldexp(1.0f, margin) : 1.0f / scale;
  if (semantics == Fp8Semantics::guarded) {
    if (has_amax) factor = std::min(factor, kLargest);
    if (!(factor > 0.0f && std::isfinite(factor))) factor = 1.0f;
  }
  return 1.0f / factor;
}

float history_amax(std::span<const float> history) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float amax : history) {
    if (std::isnan(amax)) return amax;
    largest = std::max(largest, amax);
  }
  return largest;
}

}  // namespace octavo
