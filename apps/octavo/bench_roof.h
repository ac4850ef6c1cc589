// The roofs of octavo/kernels/roof, on several threads, ready to be timed.
#pragma once

#include "bench_case.h"
#include "octavo/kernels/roof/roof.h"

namespace octavo::app {

// GB of `bytes` read through, each thread its share.
Timed read_roof(ThreadPool& pool, const void* from, std::size_t bytes);
// The same of the context's own memory, which it allocates.
Timed read_roof(BenchContext& context, int threads);

// GB read and written: `args` of all threads together.
Timed stream_roof(ThreadPool& pool, const kernels::StreamArgs& args);

// GFLOP of about a millisecond.
Timed peak_roof(ThreadPool& pool, const kernels::ArithmeticPeak& peak);

// Whether the pool's threads run at once at this moment: the peak of multiply-adds is at least 0.9
// times as many times that of one thread (1.8 for two). Of one thread: yes.
bool threads_scale(BenchContext& context, int threads);

}  // namespace octavo::app
