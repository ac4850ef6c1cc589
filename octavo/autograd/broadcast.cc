#include <fmt/format.h>

#include <algorithm>

#include "octavo/autograd/broadcast_internal.h"
#include "octavo/autograd/compute_internal.h"
#include "octavo/base/error.h"

namespace octavo {

Shape broadcast_shape(const char* operation, const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::uint64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::uint64_t of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      throw ContractError(fmt::format("{}: given {} and {}, expected shapes that broadcast",
                                      operation, to_string(a), to_string(b)));
    }
    shape[shape.size() - 1 - i] = of_a == 1 ? of_b : of_a;
  }
  return shape;
}

BroadcastIndex::BroadcastIndex(const Shape& from, const Shape& to)
    : to_(to), strides_(to.size()), size_(1), is_repeated_(true) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t axis = to.size() - 1 - i;
    const std::uint64_t size = from[from.size() - 1 - i];
    strides_[axis] = size == 1 ? 0 : size_;
    is_repeated_ &=
        size == to[axis] || std::all_of(from.begin(), from.end() - static_cast<std::ptrdiff_t>(i),
                                        [](std::uint64_t s) { return s == 1; });
    size_ *= size;
  }
  if (size_ == 0) size_ = 1;
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return compute(x.dtype(), shape, [&]<class T>(std::span<T> to) {
    const Values<T> from(x);
    const BroadcastIndex index(shape, x.shape());
    std::ranges::fill(to, T(0));
    for (std::size_t i = 0; i < from.size(); ++i) to[index(i)] += from[i];
  });
}

}  // namespace octavo
