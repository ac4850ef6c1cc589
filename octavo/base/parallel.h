// Independent items on several threads, taken in order from one counter.
#pragma once

#include <cstddef>
#include <functional>

#include "octavo/base/error.h"

namespace octavo {

// Calls work(worker, item) for every item in [0, count), with worker in [0, threads). The first
// failure stops the taking of further items and is returned (of several, the one with the lowest
// item). An exception counts as fatal: it is rethrown after all workers stopped.
Result<void> parallel_for(std::size_t count, int threads,
                          const std::function<Result<void>(int worker, std::size_t item)>& work);

}  // namespace octavo
