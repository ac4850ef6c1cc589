#include "octavo/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace octavo {
namespace {

TEST(ParallelFor, EveryItemOnce) {
  for (const int threads : {1, 2, 7}) {
    for (const std::size_t count : {0u, 1u, 2u, 6u, 1000u}) {
      std::vector<std::atomic<int>> calls(count);
      std::atomic<bool> worker_in_range = true;
      const Result<void> result =
          parallel_for(count, threads, [&](int worker, std::size_t item) -> Result<void> {
            if (worker < 0 || worker >= threads) worker_in_range = false;
            ++calls.at(item);
            return {};
          });
      EXPECT_TRUE(result);
      EXPECT_TRUE(worker_in_range);
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(calls[i], 1) << "item " << i << " of " << count << " on " << threads
                               << " threads";
      }
    }
  }
}

TEST(ParallelFor, ThreadsRunAtTheSameTime) {
  // Each of three items waits for the other two: fewer threads than three would hang (the test's
  // time limit).
  std::barrier meeting(3);
  std::atomic<int> workers = 0;
  const Result<void> result = parallel_for(3, 3, [&](int worker, std::size_t) -> Result<void> {
    meeting.arrive_and_wait();
    workers |= 1 << worker;
    return {};
  });
  EXPECT_TRUE(result);
  EXPECT_EQ(workers, 0b111) << "each worker has a number of its own";
}

TEST(ParallelFor, OneThreadTakesItemsInOrder) {
  std::vector<std::size_t> order;
  ASSERT_TRUE(parallel_for(5, 1, [&](int, std::size_t item) -> Result<void> {
    order.push_back(item);
    return {};
  }));
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

TEST(ParallelFor, AFailureStopsTheRest) {
  std::size_t calls = 0;
  const Result<void> result = parallel_for(100, 1, [&](int, std::size_t item) -> Result<void> {
    ++calls;
    if (item == 3) return fail(ErrorCode::bad_model, "three");
    return {};
  });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::bad_model);
  EXPECT_EQ(result.error().message, "three");
  EXPECT_EQ(calls, 4u);
}

TEST(ParallelFor, OfSeveralFailuresTheLowestItemIsReported) {
  for (const bool lowest_first : {true, false}) {
    // All four items are taken before any of them fails; then they fail one after the other.
    std::barrier meeting(4);
    std::atomic<int> turn = 0;
    const Result<void> result = parallel_for(4, 4, [&](int, std::size_t item) -> Result<void> {
      meeting.arrive_and_wait();
      const int mine = static_cast<int>(lowest_first ? item : 3 - item);
      while (turn != mine) std::this_thread::yield();
      ++turn;
      return fail(ErrorCode::io, std::to_string(item));
    });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().message, "0") << (lowest_first ? "first" : "last");
  }
}

TEST(ParallelFor, AnExceptionIsRethrownAfterAllWorkersStopped) {
  for (const int threads : {1, 3}) {
    std::atomic<int> running = 0;
    std::atomic<int> calls = 0;
    const auto work = [&](int, std::size_t item) -> Result<void> {
      ++running;
      ++calls;
      if (item == 2) {
        --running;
        throw std::runtime_error("item 2");
      }
      --running;
      return {};
    };
    try {
      (void)parallel_for(1'000'000, threads, work);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "item 2");
    }
    EXPECT_EQ(running, 0);
    EXPECT_LT(calls, 1'000'000) << "the other workers went on";
  }
}

}  // namespace
}  // namespace octavo
