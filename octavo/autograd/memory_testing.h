// What a program holds, for tests of what is kept for the backward pass.
#pragma once

#include <malloc.h>

#include <cstddef>

namespace octavo {

// Bytes that malloc holds for this program, of the main thread and of large blocks: tensors and
// records. A sanitizer's malloc does not say.
inline std::size_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace octavo
