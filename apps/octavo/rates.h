// The figures at the end of a run: tokens a second, and the share of what memory gives.
#pragma once

#include "model_options.h"
#include "octavo/runtime/generate.h"

namespace octavo::app {

// GB a second that all threads read of the weights: what decoding is a share of.
double read_rate(const RunningModel& running);

struct Rates {
  double prompt_tps, generate_tps, bandwidth_share;
};

// roof: read_rate(), or 0 where it was not measured.
Rates rates_of(const runtime::GenerateTimes& times, double roof);

void print_rates(const runtime::GenerateTimes& times, const Rates& rates);  // stderr

}  // namespace octavo::app
