// With a clock that the work itself advances.
#include "bench_measure.h"

#include <gtest/gtest.h>

#include <string>

namespace octavo::app {
namespace {

struct FakeMachine {
  double now = 0;
  std::string calls;
  Clock clock = [this] { return now; };

  // A call of it takes the next of `seconds`, and the last one for ever.
  Timed work(char name, double amount, std::vector<double> seconds) {
    return {[this, name, seconds, next = std::size_t{0}]() mutable {
              calls += name;
              now += seconds[next];
              if (next + 1 < seconds.size()) ++next;
            },
            amount};
  }
};

TEST(BenchMeasure, QuartilesLieBetweenElements) {
  const Quartiles odd = quartiles({5, 1, 3, 2, 4});
  EXPECT_EQ(odd.low, 2);
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.high, 4);
  const Quartiles even = quartiles({4, 1, 3, 2});
  EXPECT_EQ(even.low, 1.75);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(even.high, 3.25);
  const Quartiles one = quartiles({7});
  EXPECT_EQ(one.low, 7);
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.high, 7);
}

TEST(BenchMeasure, ShareIsTheMedianOverPairsAndTheRoofTheMeanOfBothSides) {
  FakeMachine machine;
  // Two calls each to warm up, then roof, kernel, roof.
  const Timed kernel = machine.work('k', 8, {9, 9, 4, 8, 2});
  const Timed roof = machine.work('r', 6, {9, 9, 1, 3, 2, 2, 1, 1});
  const PairFigures figures = measure_pairs(kernel, roof, {.pairs = 3}, machine.clock);
  EXPECT_EQ(machine.calls, "kkrrrkrrkrrkr");
  EXPECT_EQ(figures.valid, 3);
  EXPECT_EQ(figures.dropped, 0);
  // Rates 2, 1, 4 under roofs of 3, 3, 6.
  EXPECT_EQ(figures.value, 2);
  EXPECT_EQ(figures.roof_value, 3);
  EXPECT_EQ(figures.share.median, 2.0 / 3);
  EXPECT_EQ(figures.share.low, 0.5);
  EXPECT_EQ(figures.share.high, 2.0 / 3);
}

TEST(BenchMeasure, MedianOfSharesIsNotTheShareOfMedians) {
  FakeMachine machine;
  const Timed kernel = machine.work('k', 1, {1, 1, 1, 2, 4}), again = kernel;
  const Timed roof = machine.work('r', 1, {1, 1, 1, 1, 1, 1, 1, 1});
  // The machine slows down for both in the second pair.
  const Timed slower_roof = machine.work('r', 1, {1, 1, 1, 1, 2, 2, 1, 1});
  EXPECT_EQ(measure_pairs(kernel, roof, {.pairs = 3}, machine.clock).share.median, 0.5);
  EXPECT_EQ(measure_pairs(again, slower_roof, {.pairs = 3}, machine.clock).share.median, 1.0);
}

TEST(BenchMeasure, DisturbedPairsAreDroppedAndOthersTakenInstead) {
  FakeMachine machine;
  const Timed kernel = machine.work('k', 1, {1, 1, 1, 100, 1, 1});
  const Timed roof = machine.work('r', 1, {1});
  // Before and after each: fine; bad before, not timed; bad after; fine; fine.
  std::vector<bool> answers = {true, true, false, true, false, true, true, true, true};
  std::size_t asked = 0;
  const PairRules rules{.pairs = 3, .undisturbed = [&] { return answers.at(asked++); }};
  const PairFigures figures = measure_pairs(kernel, roof, rules, machine.clock);
  EXPECT_EQ(asked, answers.size());
  EXPECT_EQ(machine.calls, "kkrrrkrrkrrkrrkr");
  EXPECT_EQ(figures.valid, 3);
  EXPECT_EQ(figures.dropped, 2);
  EXPECT_EQ(figures.share.low, 1);
  EXPECT_EQ(figures.share.high, 1);
}

TEST(BenchMeasure, GivesUpAtTheLimit) {
  FakeMachine machine;
  const PairFigures figures = measure_pairs(
      machine.work('k', 1, {1}), machine.work('r', 1, {1}),
      {.pairs = 5, .most_pairs = 7, .undisturbed = [] { return false; }}, machine.clock);
  EXPECT_EQ(figures.valid, 0);
  EXPECT_EQ(figures.dropped, 7);
}

TEST(BenchMeasure, WithoutDropsLeftARowTriesWhatItNeeds) {
  EXPECT_EQ(most_pairs(5, 100), 20);
  EXPECT_EQ(most_pairs(5, 15), 20);
  EXPECT_EQ(most_pairs(5, 4), 9);
  EXPECT_EQ(most_pairs(5, 0), 5);
  EXPECT_EQ(most_pairs(5, -3), 5);
}

TEST(BenchMeasure, ShortCallsAreRepeated) {
  FakeMachine machine;
  const PairFigures figures =
      measure_pairs(machine.work('k', 3, {0.25}), machine.work('r', 1, {0.5}),
                    {.pairs = 1, .least_seconds = 1}, machine.clock);
  EXPECT_EQ(machine.calls, "kkrrrrkkkkrr");
  EXPECT_EQ(figures.value, 12);
  EXPECT_EQ(figures.roof_value, 2);
}

TEST(BenchMeasure, SettlesBetweenKernelAndRoof) {
  FakeMachine machine;
  const PairRules rules{.pairs = 2, .settle = [&] {
                          machine.calls += 's';
                          machine.now += 1000;
                        }};
  const PairFigures figures =
      measure_pairs(machine.work('k', 1, {1}), machine.work('r', 1, {1}), rules, machine.clock);
  EXPECT_EQ(machine.calls, "kkrrrksrrksr");
  EXPECT_EQ(figures.share.low, 1);
}

TEST(BenchMeasure, WithoutARoofTheKernelAlone) {
  FakeMachine machine;
  const PairFigures figures =
      measure_pairs(machine.work('k', 6, {2, 2, 1, 2, 3}), {}, {.pairs = 3}, machine.clock);
  EXPECT_EQ(figures.valid, 3);
  EXPECT_EQ(figures.value, 3);
}

}  // namespace
}  // namespace octavo::app
