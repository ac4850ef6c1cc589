// Memory of one step: given out piece by piece, taken back as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/base/aligned_bytes.h"

namespace octavo::nn {

// After the first steps one block holds all that a step needs, so that decoding allocates nothing.
class Arena {
 public:
  // Aligned to 64 bytes, not initialized, valid until reset().
  std::uint8_t* bytes(std::size_t count);
  float* floats(std::size_t count) {
    return reinterpret_cast<float*>(bytes(count * sizeof(float)));
  }

  // Takes back all. The memory stays, as one block.
  void reset();

  // rewind(m) takes back what was given out since mark() returned m: the temporaries of a layer.
  struct Mark {
    std::size_t block, used;
  };
  Mark mark() const { return at_; }
  void rewind(const Mark& mark) { at_ = mark; }

 private:
  std::size_t reserved() const;  // bytes held

  std::vector<AlignedBytes> blocks_;
  Mark at_{0, 0};  // where the next piece begins
};

}  // namespace octavo::nn
