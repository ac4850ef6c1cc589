#pragma once

#include <chrono>

namespace octavo {

// Of a clock that is never set: only differences mean anything.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace octavo
