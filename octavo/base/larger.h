// The maximum of largest magnitudes.
#pragma once

#include <cmath>

namespace octavo {

// NaN wins.
template <class T>
T larger(T a, T b) {
  return a >= b || std::isnan(a) ? a : b;
}

}  // namespace octavo
