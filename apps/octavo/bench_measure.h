// A kernel against what the machine allows, in turns. Rates of shared machines drift, so figures
// are medians over pairs that were taken within moments of each other.
#pragma once

#include <functional>
#include <vector>

namespace octavo::app {

// `work` of one call, in the unit that is shown per second (GB, GFLOP).
struct Timed {
  std::function<void()> run;
  double work;
};

struct PairRules {
  int pairs = 5;                 // valid ones to take
  int most_pairs = 20;           // to try
  double least_seconds = 0.010;  // of one timing: shorter calls are repeated
  // Asked before and after each pair; a pair with a no on either side is dropped, without being
  // timed where the first answer is no. Empty: always yes.
  std::function<bool()> undisturbed = {};
  // Called after each timing of the kernel, before its roof is timed again. Empty: nothing.
  std::function<void()> settle = {};
};

struct Quartiles {
  double low, median, high;
};

// How many pairs a row may try. Rows share `drops_left`, so that a machine that is never quiet
// cannot hold up all of them; without any left a row tries as many as it needs.
int most_pairs(int pairs, int drops_left);

struct PairFigures {
  int valid, dropped;
  // Undefined where no pair was valid; the last two also without a roof.
  double value;       // median rate of the kernel
  double roof_value;  // median rate of the roof
  Quartiles share;    // of value / roof within each pair
};

using Clock = std::function<double()>;  // seconds

// Between the elements, linearly, where there is none in the middle. `values` is not empty.
Quartiles quartiles(std::vector<double> values);

// Each pair is roof, kernel, roof, and its roof the mean time of both. `roof.run` may be empty:
// then the kernel alone.
PairFigures measure_pairs(const Timed& kernel, const Timed& roof, const PairRules& rules,
                          const Clock& clock);

}  // namespace octavo::app
