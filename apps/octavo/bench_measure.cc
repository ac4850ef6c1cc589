#include "bench_measure.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace octavo::app {
namespace {

// Rates of calls that are repeated often enough to be timed.
class Timing {
 public:
  // Warms up, and sees how long a call takes.
  Timing(const Timed& timed, double least_seconds, const Clock& clock)
      : timed_(timed), clock_(clock) {
    seconds();
    const double once = seconds();
    calls_ = once >= least_seconds ? 1
             : once > 0            ? static_cast<int>(std::ceil(least_seconds / once))
                                   : kMostCalls;
    calls_ = std::min(calls_, kMostCalls);
  }

  double seconds() {  // of one call
    const double start = clock_();
    for (int i = 0; i < calls_; ++i) timed_.run();
    return (clock_() - start) / calls_;
  }

 private:
  static constexpr int kMostCalls = 1'000'000;
  const Timed& timed_;
  const Clock& clock_;
  int calls_ = 1;
};

double at(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto before = static_cast<std::size_t>(place);
  const std::size_t after = std::min(before + 1, sorted.size() - 1);
  return std::lerp(sorted[before], sorted[after], place - static_cast<double>(before));
}

}  // namespace

Quartiles quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {at(values, 0.25), at(values, 0.5), at(values, 0.75)};
}

int most_pairs(int pairs, int drops_left) { return pairs + std::clamp(drops_left, 0, 3 * pairs); }

PairFigures measure_pairs(const Timed& kernel, const Timed& roof, const PairRules& rules,
                          const Clock& clock) {
  const auto undisturbed = [&] { return !rules.undisturbed || rules.undisturbed(); };
  const bool has_roof = static_cast<bool>(roof.run);
  Timing kernel_time(kernel, rules.least_seconds, clock);
  std::optional<Timing> roof_time;
  if (has_roof) roof_time.emplace(roof, rules.least_seconds, clock);

  PairFigures figures{};
  std::vector<double> values, roofs, shares;
  while (figures.valid < rules.pairs && figures.valid + figures.dropped < rules.most_pairs) {
    if (!undisturbed()) {
      ++figures.dropped;
      continue;
    }
    const double roof_before = has_roof ? roof_time->seconds() : 0;
    const double value = kernel.work / kernel_time.seconds();
    if (rules.settle) rules.settle();
    const double roof_seconds = has_roof ? (roof_before + roof_time->seconds()) / 2 : 0;
    if (!undisturbed()) {
      ++figures.dropped;
      continue;
    }
    ++figures.valid;
    values.push_back(value);
    if (!has_roof) continue;
    roofs.push_back(roof.work / roof_seconds);
    shares.push_back(value / roofs.back());
  }
  if (figures.valid == 0) return figures;
  figures.value = quartiles(values).median;
  if (has_roof) {
    figures.roof_value = quartiles(roofs).median;
    figures.share = quartiles(shares);
  }
  return figures;
}

}  // namespace octavo::app
