#pragma once

#include "octavo/autograd/tape.h"

namespace octavo {

// A tape that forgets, whatever happens: its rules may hold variables, which hold it.
struct TapeScope {
  std::shared_ptr<Tape> tape = std::make_shared<Tape>();

  TapeScope() = default;
  ~TapeScope() { tape->drop(); }
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;
};

}  // namespace octavo
