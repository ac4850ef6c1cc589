// The floating-point mode that results are defined in: to nearest even, denormals kept.
#pragma once

namespace octavo {

// Sets this thread's mode while it lives, then the former one again, with the former exception
// flags. A program may have set flush-to-zero or another rounding on some of its threads.
class DefaultFloatMode {
 public:
  DefaultFloatMode();
  ~DefaultFloatMode();
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
  unsigned saved_;
};

}  // namespace octavo
