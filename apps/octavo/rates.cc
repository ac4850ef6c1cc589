#include "rates.h"

#include <algorithm>
#include <span>

#include "octavo/base/steady_seconds.h"
#include "octavo/kernels/roof/roof.h"

namespace octavo::app {

double read_rate(const RunningModel& running) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  ThreadPool& pool = *running.pool;
  std::vector<std::span<const std::uint8_t>> pieces;
  std::size_t bytes = 0;
  for (const models::NamedLinear& named : models::linear_layers(running.loaded.model)) {
    std::span<const std::uint8_t> weight = ops::element_bytes(named.layer->weight);
    const std::size_t lead = -reinterpret_cast<std::uintptr_t>(weight.data()) % 64;  // mapped: any
    weight = weight.subspan(std::min(lead, weight.size()));
    const std::size_t size = weight.size() / kernels::kReadStep * kernels::kReadStep;
    if (size == 0 || bytes > kMostBytes) continue;
    pieces.emplace_back(weight.data(), size);
    bytes += size;
  }
  const auto pass = [&] {
    const double start = steady_seconds();
    pool.run(pool.threads(), [&](int part) {
      for (const auto& piece : pieces) {
        const Range range = split(piece.size() / kernels::kReadStep, 1, pool.threads(), part);
        const std::uint64_t seen =
            kernels::widest_roof_kernels().read(piece.data() + range.begin * kernels::kReadStep,
                                                (range.end - range.begin) * kernels::kReadStep);
        asm volatile("" : : "r"(seen) : "memory");
      }
    });
    return 1e-9 * static_cast<double>(bytes) / (steady_seconds() - start);
  };
  if (bytes == 0) return 0;
  pass();
  return std::max({pass(), pass(), pass()});
}

Rates rates_of(const runtime::GenerateTimes& times, double roof) {
  Rates rates{times.prompt_tps(), times.generate_tps(), 0};
  if (roof > 0 && times.steps > 0)
    rates.bandwidth_share = 1e-9 * times.bytes_read / times.generate_seconds / roof;
  return rates;
}

void print_rates(const runtime::GenerateTimes& times, const Rates& rates) {
  print_err("prompt:   {} tokens, {:.1f} tokens per second\n",
            times.prompt_tokens - times.cached_tokens, rates.prompt_tps);
  if (times.steps == 0) return;
  print_err("generate: {} tokens, {:.1f} tokens per second, {:.0f} % of the memory bandwidth\n",
            times.decoded_tokens, rates.generate_tps, 100 * rates.bandwidth_share);
}

}  // namespace octavo::app
