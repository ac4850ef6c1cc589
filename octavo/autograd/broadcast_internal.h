// numpy's broadcasting: axes are matched from the last, and size 1 repeats.
#pragma once

#include "octavo/tensor/tensor.h"

namespace octavo {

// ContractError: neither equal nor 1.
Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b);

// The element of `from` behind element i of `to`, which from broadcasts to.
class BroadcastIndex {
 public:
  BroadcastIndex(const Shape& from, const Shape& to);
  std::size_t operator()(std::size_t i) const {
    if (is_repeated_) return i % size_;
    std::size_t index = 0;
    for (std::size_t axis = to_.size(); axis-- > 0;) {
      index += i % to_[axis] * strides_[axis];
      i /= to_[axis];
    }
    return index;
  }

 private:
  Shape to_, strides_;  // strides_: elements of from; 0 along repeated axes
  std::size_t size_;    // of from
  bool is_repeated_;    // from is whole trailing axes of to
};

// The sum over axes that were repeated, in the order of elements.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace octavo
