// Learning rates by step, optax's: f64, cast to f32 where they are used.
#pragma once

#include <cstdint>
#include <functional>

namespace octavo::optim {

// From step 0. A number is a constant schedule.
class Schedule {
 public:
  // A rate, or a function from step to rate.
  Schedule(double value)  // NOLINT
      : f_([value](std::int64_t) { return value; }), is_constant_(true) {}
  Schedule(std::function<double(std::int64_t)> f) : f_(std::move(f)) {}  // NOLINT
  double operator()(std::int64_t step) const { return f_(step); }
  // Whether it was made from a number: then scale_by_learning_rate counts no steps.
  bool is_constant() const { return is_constant_; }

 private:
  std::function<double(std::int64_t)> f_;
  bool is_constant_ = false;
};

// From init to end over `steps`, then end. ContractError: no steps.
Schedule linear_schedule(double init, double end, std::int64_t steps);

// init * ((1 - alpha) * (1 + cos(pi step / steps)) / 2 + alpha), from `steps` on init * alpha
// (Loshchilov and Hutter, 2016, without restarts). ContractError: no steps.
Schedule cosine_decay_schedule(double init, std::int64_t steps, double alpha = 0);

// Linear from init to peak over `warmup_steps`, then cosine to end at `decay_steps`, warm-up
// included. ContractError: no warmup_steps, no more decay_steps than these.
Schedule warmup_cosine_decay_schedule(double init, double peak, std::int64_t warmup_steps,
                                      std::int64_t decay_steps, double end = 0);

}  // namespace octavo::optim
