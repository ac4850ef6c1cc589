// Work on rows, by as many threads as it is worth.
#pragma once

#include <algorithm>
#include <cstddef>

#include "octavo/base/float_mode.h"
#include "octavo/base/thread_pool.h"

namespace octavo {

// Fewer elements are not worth a second thread.
inline constexpr std::size_t kAloneElements = 1 << 15;

// body(range) over pieces of [0, rows), with `elements` of work in all. What is computed must not
// depend on the cut.
template <class Body>
void for_rows(const Context& context, std::size_t rows, std::size_t elements, const Body& body) {
  const auto threads = static_cast<std::size_t>(context.pool->threads());
  const int parts = elements < kAloneElements ? 1 : static_cast<int>(std::min(threads, rows));
  context.pool->run(parts, [&](int part) {
    const DefaultFloatMode mode;
    body(split(rows, 1, parts, part));
  });
}

}  // namespace octavo
