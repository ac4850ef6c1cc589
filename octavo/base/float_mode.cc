#include "octavo/base/float_mode.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace octavo {

#if defined(__x86_64__)

DefaultFloatMode::DefaultFloatMode() : saved_(_mm_getcsr()) {
  constexpr unsigned kAllMasked = 0x1F80;  // round to nearest, no DAZ, no FTZ, no flags
  _mm_setcsr(kAllMasked);
}

DefaultFloatMode::~DefaultFloatMode() { _mm_setcsr(saved_); }

#else

DefaultFloatMode::DefaultFloatMode() : saved_(static_cast<unsigned>(std::fegetround())) {
  std::fesetround(FE_TONEAREST);
}

DefaultFloatMode::~DefaultFloatMode() { std::fesetround(static_cast<int>(saved_)); }

#endif

}  // namespace octavo
