// Scales from the largest magnitudes of earlier steps: the recurrences of Flax's fp8_ops, to the
// bit. real = code * scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace octavo {

// What happens where Flax would poison its own state (docs/numerics.md lists each case).
enum class Fp8Semantics : std::uint8_t { guarded, flax_exact };

// With f = (fp8_max / amax) / 2^margin where amax is positive and finite, else 1 / scale: 1 / f, in
// f32, each step rounded (Flax: compute_scale). A margin leaves that many bits of headroom.
// Guarded: f is limited to the normal floats, so that no scale becomes 0 or infinite; a scale that
// is kept is kept at the ends of the range too, and one that is no positive number becomes 1.
float delayed_scale(float amax, float scale, float fp8_max, int margin = 0,
                    Fp8Semantics semantics = Fp8Semantics::guarded);

// The largest, NaN if one is NaN; of none, minus infinity.
float history_amax(std::span<const float> history);

}  // namespace octavo
