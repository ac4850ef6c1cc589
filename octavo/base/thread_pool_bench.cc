// What a parallel call costs: empty, and with a meeting of all threads in it; one after another,
// and after pauses of the caller. Medians, in microseconds.
//
//     thread_pool_bench [THREADS]
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "octavo/base/machine.h"
#include "octavo/base/thread_pool.h"

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void keep_busy(double microseconds) {
  const auto start = Clock::now();
  while (microseconds_since(start) < microseconds) {
  }
}

struct Quantiles {
  double median, p90, largest;
};

template <class Call>
Quantiles measure(int samples, double pause, const Call& call) {
  std::vector<double> times;
  for (int i = 0; i < samples; ++i) {
    keep_busy(pause);
    const auto start = Clock::now();
    call();
    times.push_back(microseconds_since(start));
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 9 / 10], times.back()};
}

int run(int threads) {
  ThreadPool pool(threads);
  const int parts = pool.threads();
  fmt::print("{} threads; microseconds: median, 90 %, largest\n", parts);
  const auto empty = [&] { pool.run(parts, [](int) {}); };
  // No part leaves before all have begun, each on a thread of its own.
  const auto meeting = [&] {
    std::atomic<int> begun = 0;
    pool.run(parts, [&](int) {
      ++begun;
      while (begun < parts) {
      }
    });
  };
  const auto report = [](const char* call, double pause, const Quantiles& time) {
    fmt::print("{:<8} after {:>5} us {:8.2f} {:8.2f} {:8.2f}\n", call, pause, time.median, time.p90,
               time.largest);
  };
  for (const double pause : {0.0, 20.0, 1000.0, 20000.0}) {
    const int samples = pause < 100 ? 10000 : pause < 10000 ? 500 : 50;
    report("empty", pause, measure(samples, pause, empty));
    report("meeting", pause, measure(samples, pause, meeting));
  }
  return 0;
}

}  // namespace
}  // namespace octavo

int main(int argc, char** argv) {
  return octavo::run(argc > 1 ? std::atoi(argv[1]) : octavo::allowed_threads().threads);
}
