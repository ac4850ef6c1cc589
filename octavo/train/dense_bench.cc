// A training step of a Dense layer, 1024 x 4096 with a batch of 512: forward, and gradients of
// parameters and input. of_fma: share of the f32 multiply-adds that the same threads do from
// registers alone, measured before and after each repetition. To compare, in turn:
//   build/bench/dense_bench --benchmark_enable_random_interleaving=true
//     --benchmark_repetitions=9 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>

#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/value_and_grad.h"
#include "octavo/base/steady_seconds.h"
#include "octavo/kernels/roof/roof.h"
#include "octavo/nn/dense.h"
#include "octavo/ops/kernel_log.h"

namespace octavo {
namespace {

constexpr std::size_t kBatch = 512, kIn = 1024, kOut = 4096;

constexpr double kFlops = 6.0 * kBatch * kIn * kOut;

// FLOP/s of multiply-adds, the fastest of five runs of some milliseconds.
double fma_roof(ThreadPool& pool) {
  constexpr std::size_t kSteps = 1'000'000;
  const kernels::ArithmeticPeak& peak = kernels::widest_roof_kernels().fma;
  double least = HUGE_VAL;
  for (int run = 0; run < 5; ++run) {
    const double start = steady_seconds();
    pool.run(pool.threads(), [&](int) { benchmark::DoNotOptimize(peak.run(kSteps, 0.5f, 1.0f)); });
    least = std::min(least, steady_seconds() - start);
  }
  const std::size_t flops = kSteps * peak.chains * peak.lanes * peak.flops_per_lane;
  return static_cast<double>(flops) * pool.threads() / least;
}

void run_steps(benchmark::State& state, bool expects_fp8, const nn::Dense& layer) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const ContextScope scope(Context{&pool});
  const DType type = layer.dtype.value_or(DType::f32);
  const Tensor x = normal(Rng(1), {kBatch, kIn}).astype(type);
  Variables variables = layer.init(Rng(2), x);
  variables.set("input/x", x);
  const Variable g = normal(Rng(3), {kBatch, kOut}).astype(type);
  const auto step =
      value_and_grad([&](const Variables& v) { return sum(layer.apply(v, v.at("input/x")) * g); });
  // The products are those that the name says, and their results numbers, before anything is timed.
  {
    const ops::KernelLog log;
    const double loss = step(variables).value.item();
    const bool is_fp8 = log.count(Format::e4m3fn, Format::e4m3fn) == 1;
    if (!std::isfinite(loss) || log.runs().size() != 3 || is_fp8 != expects_fp8) {
      return state.SkipWithError("other products than expected, or no finite loss");
    }
    state.SetLabel(log.runs()[0].kernel);
  }
  const double roof_before = fma_roof(pool), start = steady_seconds();
  for (auto _ : state) {
    const ValueAndGrad result = step(variables);
    variables = variables.merged(result.grads.collection(kOverwriteWithGradient));
    benchmark::DoNotOptimize(result.value.data());
  }
  const double seconds = (steady_seconds() - start) / static_cast<double>(state.iterations());
  state.counters["of_fma"] = kFlops / seconds / std::max(roof_before, fma_roof(pool));
  state.counters["GFLOP/s"] = 1e-9 * kFlops / seconds;
}

void dense_f32(benchmark::State& state) {
  run_steps(state, false, {.features = kOut, .use_bias = false});
}
void dense_bf16(benchmark::State& state) {
  run_steps(state, false, {.features = kOut, .use_bias = false, .dtype = DType::bf16});
}
void dense_fp8(benchmark::State& state) {
  run_steps(state, true,
            {.features = kOut, .use_bias = false, .dot_general_cls = nn::Fp8DotGeneral{}});
}
void dense_fp8_bf16(benchmark::State& state) {
  run_steps(state, true,
            {.features = kOut,
             .use_bias = false,
             .dtype = DType::bf16,
             .dot_general_cls = nn::Fp8DotGeneral{}});
}

BENCHMARK(dense_f32)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(dense_bf16)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(dense_fp8)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(dense_fp8_bf16)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace octavo

BENCHMARK_MAIN();
