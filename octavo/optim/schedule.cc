#include "octavo/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "octavo/base/error.h"

namespace octavo::optim {
namespace {

double fraction(std::int64_t step, std::int64_t steps) {
  return static_cast<double>(std::clamp<std::int64_t>(step, 0, steps)) / static_cast<double>(steps);
}

void check_steps(const char* schedule, bool fits) {
  if (!fits) throw ContractError(std::string(schedule) + ": given no steps, expected at least 1");
}

}  // namespace

Schedule linear_schedule(double init, double end, std::int64_t steps) {
  check_steps("linear_schedule", steps > 0);
  return Schedule([=](std::int64_t step) { return init + (end - init) * fraction(step, steps); });
}

Schedule cosine_decay_schedule(double init, std::int64_t steps, double alpha) {
  check_steps("cosine_decay_schedule", steps > 0);
  return Schedule([=](std::int64_t step) {
    const double cosine = (1 + std::cos(std::numbers::pi * fraction(step, steps))) / 2;
    return init * ((1 - alpha) * cosine + alpha);
  });
}

Schedule warmup_cosine_decay_schedule(double init, double peak, std::int64_t warmup_steps,
                                      std::int64_t decay_steps, double end) {
  check_steps("warmup_cosine_decay_schedule", warmup_steps > 0 && decay_steps > warmup_steps);
  const Schedule warmup = linear_schedule(init, peak, warmup_steps);
  const Schedule decay =
      cosine_decay_schedule(peak, decay_steps - warmup_steps, peak == 0 ? 0 : end / peak);
  return Schedule([=](std::int64_t step) {
    return step < warmup_steps ? warmup(step) : decay(step - warmup_steps);
  });
}

}  // namespace octavo::optim
