#include "octavo/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace octavo {

Result<void> parallel_for(std::size_t count, int threads,
                          const std::function<Result<void>(int worker, std::size_t item)>& work) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> stop = false;
  std::mutex mutex;
  std::size_t failed_item = count;
  std::optional<Error> error;
  std::exception_ptr exception;

  const auto run = [&](int worker) {
    while (!stop.load()) {
      const std::size_t item = next.fetch_add(1);
      if (item >= count) return;
      try {
        Result<void> result = work(worker, item);
        if (result) continue;
        const std::lock_guard lock(mutex);
        if (item < failed_item) {
          failed_item = item;
          error = std::move(result).error();
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        exception = std::current_exception();
      }
      stop.store(true);
    }
  };

  {
    const auto extra =
        static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(threads), count)) - 1;
    std::vector<std::jthread> pool;
    for (int worker = 1; worker <= extra; ++worker) pool.emplace_back(run, worker);
    run(0);
  }
  if (exception) std::rethrow_exception(exception);
  if (error) return std::unexpected(std::move(*error));
  return {};
}

}  // namespace octavo
