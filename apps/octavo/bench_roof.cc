#include "bench_roof.h"

#include <fmt/format.h>

#include <cstring>

#include "octavo/base/steady_seconds.h"

namespace octavo::app {
namespace {

constexpr std::size_t kPeakSteps = 200'000;
constexpr double kLeastScaling = 0.9;

// Keeps what a roof computes alive.
void use(std::uint64_t value) { asm volatile("" : : "r"(value) : "memory"); }
void use(float value) { asm volatile("" : : "r"(value) : "memory"); }

BenchCase roof_case(const char* name, const char* kernel, const char* unit, int threads,
                    std::function<Timed(BenchContext&)> roof) {
  return {"roof",
          0,
          0,
          0,
          name,
          threads,
          kernel,
          unit,
          "",
          [roof = std::move(roof)](BenchContext& context) -> Result<PreparedCase> {
            return PreparedCase{{}, roof(context), {}};
          }};
}

}  // namespace

Timed read_roof(ThreadPool& pool, const void* from, std::size_t bytes) {
  const std::size_t steps = bytes / kernels::kReadStep;
  const auto run = [&pool, from, steps] {
    pool.run(pool.threads(), [&](int part) {
      const Range range = split(steps, 1, pool.threads(), part);
      use(kernels::widest_roof_kernels().read(
          static_cast<const std::byte*>(from) + range.begin * kernels::kReadStep,
          (range.end - range.begin) * kernels::kReadStep));
    });
  };
  return {run, 1e-9 * static_cast<double>(steps * kernels::kReadStep)};
}

Timed read_roof(BenchContext& context, int threads) {
  AlignedBytes& memory = context.read_memory;
  if (memory.size() != context.memory_bytes) {
    memory = AlignedBytes(context.memory_bytes);
    std::memset(memory.data(), 1, memory.size());
  }
  return read_roof(context.pool(threads), memory.data(), memory.size());
}

Timed stream_roof(ThreadPool& pool, const kernels::StreamArgs& args) {
  const auto run = [&pool, args] {
    pool.run(pool.threads(), [&](int part) {
      const Range range = split(args.steps, 1, pool.threads(), part);
      const auto* from = static_cast<const std::byte*>(args.from) + 64 * args.in * range.begin;
      auto* to = static_cast<std::byte*>(args.to) + 64 * args.out * range.begin;
      kernels::widest_roof_kernels().stream({from, args.in, to, args.out, range.end - range.begin});
    });
  };
  return {run, 1e-9 * static_cast<double>(64 * (args.in + args.out) * args.steps)};
}

Timed peak_roof(ThreadPool& pool, const kernels::ArithmeticPeak& peak) {
  const auto run = [&pool, peak] {
    pool.run(pool.threads(), [&](int) { use(peak.run(kPeakSteps, 0.5f, 1.0f)); });
  };
  const std::size_t flops = kPeakSteps * peak.chains * peak.lanes * peak.flops_per_lane;
  return {run, 1e-9 * static_cast<double>(flops) * pool.threads()};
}

bool threads_scale(BenchContext& context, int threads) {
  if (threads == 1) return true;
  const kernels::ArithmeticPeak& peak = kernels::widest_roof_kernels().fma;
  const auto rate = [&](int count) {
    const Timed timed = peak_roof(context.pool(count), peak);
    timed.run();  // wakes the threads
    constexpr int kCalls = 4;
    const double start = steady_seconds();
    for (int i = 0; i < kCalls; ++i) timed.run();
    return kCalls * timed.work / (steady_seconds() - start);
  };
  return rate(threads) >= kLeastScaling * threads * rate(1);
}

std::vector<BenchCase> roof_cases(const BenchContext& context) {
  const char* widest = kernels::widest_roof_kernels().name;
  const kernels::RoofKernels& level = kernels::roof_kernels(context.isa);
  std::vector<BenchCase> cases;
  for (const int threads : context.request.threads) {
    cases.push_back(roof_case("read", widest, "GB/s", threads,
                              [threads](BenchContext& c) { return read_roof(c, threads); }));
    cases.push_back(roof_case("copy", widest, "GB/s", threads, [threads](BenchContext& c) {
      read_roof(c, threads);  // allocates
      const std::size_t half = c.memory_bytes / 2 / 64 * 64;
      std::uint8_t* memory = c.read_memory.data();
      return stream_roof(c.pool(threads), {memory, 1, memory + half, 1, half / 64});
    }));
    cases.push_back(roof_case(
        "fma f32", level.name, "GFLOP/s", threads,
        [threads, peak = level.fma](BenchContext& c) { return peak_roof(c.pool(threads), peak); }));
    if (level.dot.run == nullptr) continue;
    cases.push_back(roof_case(
        "dot bf16", level.name, "GFLOP/s", threads,
        [threads, peak = level.dot](BenchContext& c) { return peak_roof(c.pool(threads), peak); }));
  }
  return cases;
}

}  // namespace octavo::app
