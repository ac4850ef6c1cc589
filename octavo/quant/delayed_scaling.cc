#include "octavo/quant/delayed_scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/base/larger.h"

namespace octavo {

float delayed_scale(float amax, float scale, float fp8_max, int margin, Fp8Semantics semantics) {
  const bool is_guarded = semantics == Fp8Semantics::guarded;
  const auto is_scale = [](float x) { return x > 0.0f && std::isfinite(x); };
  if (!(amax > 0.0f && std::isfinite(amax))) {
    const float kept = 1.0f / (1.0f / scale);
    // Two reciprocals lose the scales at both ends of the range.
    return is_guarded && !is_scale(kept) ? (is_scale(scale) ? scale : 1.0f) : kept;
  }
  float factor = (fp8_max / amax) / std::ldexp(1.0f, margin);
  if (is_guarded) {
    factor =
        std::clamp(factor, std::numeric_limits<float>::min(), std::numeric_limits<float>::max());
  }
  return 1.0f / factor;
}

float history_amax(std::span<const float> history) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float amax : history) largest = larger(largest, amax);
  return largest;
}

}  // namespace octavo
