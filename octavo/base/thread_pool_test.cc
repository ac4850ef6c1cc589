#include "octavo/base/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <rapidcheck/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "octavo/base/machine.h"

namespace octavo {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsSubsetOf;
using testing::SizeIs;

// Calls body(part) on each thread of the pool: none leaves before all have come, and only the
// caller could take another's part.
template <class Body>
void on_every_thread(ThreadPool& pool, Body&& body) {
  std::barrier meeting(pool.threads());
  pool.run(pool.threads(), [&](int part) {
    meeting.arrive_and_wait();
    body(part);
  });
}

bool all_threads_take_part(ThreadPool& pool) {
  std::vector<std::thread::id> ids(static_cast<std::size_t>(pool.threads()));
  on_every_thread(pool, [&](int part) { ids.at(part) = std::this_thread::get_id(); });
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) == ids.end();
}

// Hangs, until the test's time limit, if they never do.
void wait_until_workers_sleep(const ThreadPool& pool) {
  while (pool.sleeping_workers() < pool.threads() - 1) std::this_thread::yield();
}

bool set_affinity(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

// The affinity mask of each thread of the pool.
std::vector<std::vector<int>> masks(ThreadPool& pool) {
  std::vector<std::vector<int>> found(static_cast<std::size_t>(pool.threads()));
  on_every_thread(pool, [&](int part) { found.at(part) = allowed_cpus(); });
  return found;
}

TEST(ThreadPool, EveryPartOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int parts : {0, 1, 2, 3, 5, 17}) {
      for (int repeat = 0; repeat < 50; ++repeat) {
        std::vector<int> calls(static_cast<std::size_t>(parts));
        pool.run(parts, [&](int part) { ++calls.at(part); });
        ASSERT_THAT(calls, Each(1)) << parts << " parts on " << threads << " threads";
      }
    }
  }
}

TEST(ThreadPool, NoThreadsIsOne) {
  ThreadPool pool(0);
  EXPECT_EQ(pool.threads(), 1);
  int calls = 0;
  pool.run(3, [&](int) { ++calls; });
  EXPECT_EQ(calls, 3);
}

TEST(ThreadPool, ThreadsRunAtTheSameTime) {
  ThreadPool pool(4);
  for (int repeat = 0; repeat < 20; ++repeat) EXPECT_TRUE(all_threads_take_part(pool));
}

TEST(ThreadPool, CallerDoesWhatNobodyHasBegun) {
  ThreadPool pool(2);
  int by_caller = 0;
  for (int repeat = 0; repeat < 1000 && by_caller == 0; ++repeat) {
    wait_until_workers_sleep(pool);
    pool.run(2, [&, caller = std::this_thread::get_id()](int part) {
      if (part == 1 && std::this_thread::get_id() == caller) ++by_caller;
    });
  }
  EXPECT_GT(by_caller, 0) << "an empty part always waited until its worker woke";
}

TEST(ThreadPool, OnlyWorkersThatHaveAPartAreWoken) {
  ThreadPool pool(3);
  wait_until_workers_sleep(pool);
  for (int repeat = 0; repeat < 1000; ++repeat) {
    pool.run(2, [](int) {});
    ASSERT_GE(pool.sleeping_workers(), 1);
  }
}

TEST(ThreadPool, WithinABodyAllIsDoneOnTheSameThread) {
  ThreadPool pool(3);
  ThreadPool other(3);
  for (ThreadPool* inner : {&pool, &other}) {
    std::vector<std::vector<int>> orders(3);
    std::atomic<bool> same_thread = true;
    on_every_thread(pool, [&](int part) {
      inner->run(4, [&, outer = std::this_thread::get_id()](int inner_part) {
        if (std::this_thread::get_id() != outer) same_thread = false;
        orders.at(part).push_back(inner_part);
      });
    });
    EXPECT_THAT(orders, Each(ElementsAre(0, 1, 2, 3)));
    EXPECT_TRUE(same_thread);
  }
  EXPECT_TRUE(all_threads_take_part(pool)) << "after the nested calls";
  EXPECT_TRUE(all_threads_take_part(other));
}

TEST(ThreadPool, OneExceptionIsRethrownWhenAllSharesHaveEnded) {
  ThreadPool pool(3);
  // Shares: {0, 3}, {1, 4}, {2, 5}.
  for (const std::vector<int>& throwing : {std::vector{0}, {1}, {2}, {2, 1}, {0, 1, 2}}) {
    std::vector<int> calls(6);
    try {
      pool.run(6, [&](int part) {
        ++calls.at(part);
        if (std::find(throwing.begin(), throwing.end(), part) != throwing.end())
          throw std::runtime_error(std::to_string(part));
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(std::ranges::min(throwing)));
    }
    for (int part = 0; part < 6; ++part) {
      const bool after = std::find(throwing.begin(), throwing.end(), part - 3) != throwing.end();
      EXPECT_EQ(calls.at(part), after ? 0 : 1) << "part " << part;
    }
    EXPECT_TRUE(all_threads_take_part(pool)) << "after an exception";
  }
}

TEST(ThreadPool, AnExceptionOfANestedCallPassesThrough) {
  ThreadPool pool(2);
  const auto nested = [&](int) {
    pool.run(2, [](int part) {
      if (part == 1) throw std::runtime_error("inner");
    });
  };
  EXPECT_THROW(pool.run(2, nested), std::runtime_error);
  EXPECT_TRUE(all_threads_take_part(pool));
}

TEST(ThreadPool, CallersWaitForOneAnother) {
  constexpr int kCallers = 4;
  constexpr int kCalls = 1000;
  ThreadPool pool(2);
  std::vector<std::atomic<int>> active(kCallers);
  std::atomic<int> overlaps = 0;
  std::vector<int> sums(kCallers);
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < kCallers; ++caller) {
      callers.emplace_back([&, caller] {
        for (int call = 0; call < kCalls; ++call) {
          int done[2] = {0, 0};
          pool.run(2, [&](int part) {
            ++active.at(caller);
            for (int other = 0; other < kCallers; ++other) {
              if (other != caller && active.at(other) != 0) ++overlaps;
            }
            done[part] = 1;
            --active.at(caller);
          });
          sums.at(caller) += done[0] + done[1];
        }
      });
    }
  }
  EXPECT_EQ(overlaps, 0);
  EXPECT_THAT(sums, Each(2 * kCalls));
}

TEST(ThreadPool, SleepsAndWakesAtAnyMoment) {
  constexpr int kSeed = 20;
  ThreadPool pool(3);
  std::mt19937 random(kSeed);
  std::uniform_int_distribution<int> microseconds(0, 300);  // a worker spins for 100
  std::vector<long> calls(3);
  constexpr long kCalls = 4000;
  for (long call = 0; call < kCalls; ++call) {
    pool.run(3, [&](int part) { ++calls.at(part); });
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds(random));
    while (std::chrono::steady_clock::now() < end) {
    }
  }
  EXPECT_THAT(calls, Each(kCalls)) << "seed " << kSeed;
}

TEST(ThreadPool, WakesFromSleep) {
  ThreadPool pool(3);
  for (int repeat = 0; repeat < 300; ++repeat) {
    wait_until_workers_sleep(pool);
    ASSERT_TRUE(all_threads_take_part(pool));
  }
}

TEST(ThreadPool, CallerSleepsOnLongWork) {
  ThreadPool pool(2);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::atomic<bool> begun = false;
    bool done = false;
    pool.run(2, [&](int part) {
      if (part == 0) {
        while (!begun) std::this_thread::yield();
      } else {
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the caller spins for 0.1
        done = true;
      }
    });
    ASSERT_TRUE(done);
  }
}

TEST(ThreadPool, EndsAtAnyMoment) {
  for (int repeat = 0; repeat < 100; ++repeat) {
    {
      ThreadPool fresh(3);
    }
    {
      ThreadPool used(3);
      used.run(3, [](int) {});
    }
    ThreadPool sleeping(3);
    wait_until_workers_sleep(sleeping);
  }
}

TEST(ThreadPool, PinsToDistinctCpusOfTheMask) {
  const std::vector<int> cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  const int count = static_cast<int>(cpus.size());
  ThreadPool pool(count);
  const std::vector<std::vector<int>> found = masks(pool);
  EXPECT_EQ(found[0], cpus) << "the caller was pinned";
  std::vector<int> pinned;
  for (std::size_t i = 1; i < found.size(); ++i) {
    ASSERT_THAT(found[i], SizeIs(1));
    pinned.push_back(found[i][0]);
  }
  std::sort(pinned.begin(), pinned.end());
  EXPECT_EQ(std::adjacent_find(pinned.begin(), pinned.end()), pinned.end());
  EXPECT_THAT(pinned, IsSubsetOf(cpus));
}

TEST(ThreadPool, FloatsWithinTheMaskIfNotOneThreadPerCpu) {
  const std::vector<int> cpus = allowed_cpus();
  ThreadPool pool(static_cast<int>(cpus.size()) + 1);
  EXPECT_THAT(masks(pool), Each(cpus));
}

TEST(ThreadPool, NeverLeavesTheMask) {
  for (const int cpu : allowed_cpus()) {
    std::vector<std::vector<int>> found;
    std::jthread([&] {
      ASSERT_TRUE(set_affinity({cpu}));  // of this thread, and so of its workers
      EXPECT_EQ(allowed_threads().threads, 1);
      ThreadPool pool(3);
      found = masks(pool);
    }).join();
    EXPECT_THAT(found, SizeIs(3));
    EXPECT_THAT(found, Each(ElementsAre(cpu)));
  }
}

TEST(ThreadPool, WorkersLeaveTheCoreOfTheCaller) {
  const std::vector<int> cpus = allowed_cpus();
  if (cpus.size() < 2) GTEST_SKIP() << "one CPU allowed: there is no other to go to";
  ThreadPool pool(static_cast<int>(cpus.size()));
  for (int repeat = 0; repeat < 10; ++repeat) {
    for (const int cpu : cpus) {
      std::jthread([&] {
        ASSERT_TRUE(set_affinity({cpu}));
        const std::vector<std::vector<int>> found = masks(pool);
        std::vector<int> used;
        for (const std::vector<int>& mask : found) {
          ASSERT_THAT(mask, SizeIs(1));
          used.push_back(mask[0]);
        }
        EXPECT_EQ(used[0], cpu);
        std::sort(used.begin(), used.end());
        EXPECT_EQ(used, cpus) << "two threads on one CPU";
      }).join();
    }
  }
}

TEST(ThreadPool, FewerThreadsIfTheSystemGrantsNoMore) {
  pthread_attr_t before;
  pthread_attr_t huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const auto pool = std::make_unique<ThreadPool>(3);
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  EXPECT_EQ(pool->threads(), 1);
  std::vector<int> calls(3);
  pool->run(3, [&](int part) { ++calls.at(part); });
  EXPECT_THAT(calls, Each(1));
}

// In a forked child: 0 if the parent's pool and a new one do what they should.
int use_pools_in_child(std::unique_ptr<ThreadPool>& pool) {
  alarm(60);  // a child that hangs dies and fails the test
  std::vector<int> order;
  pool->run(3, [&](int part) { order.push_back(part); });
  if (order != std::vector<int>{0, 1, 2}) return 1;
#ifndef __SANITIZE_THREAD__  // which allows no threads in the child of a program with threads
  // Its threads may be known by the handles of the parent's, which the old pool must not join.
  ThreadPool fresh(3);
  if (!all_threads_take_part(fresh)) return 2;
  pool.reset();
  if (!all_threads_take_part(fresh)) return 3;
#else
  pool.reset();
#endif
  return 0;
}

TEST(ThreadPool, AForkedChildWorksAlone) {
  for (const bool during_a_call : {false, true}) {
    auto pool = std::make_unique<ThreadPool>(3);
    // A thread that is still starting holds locks of the address sanitizer, which the child would
    // wait for.
    ASSERT_TRUE(all_threads_take_part(*pool));
    std::atomic<bool> in_call = false;
    std::atomic<bool> forked = false;
    std::jthread caller;
    if (during_a_call) {
      caller = std::jthread([&] {
        pool->run(2, [&](int) {
          in_call = true;
          while (!forked) std::this_thread::yield();
        });
      });
      while (!in_call) std::this_thread::yield();
    }
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(use_pools_in_child(pool));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    forked = true;
    if (caller.joinable()) caller.join();
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0) << (during_a_call ? "during" : "between") << " calls";
    EXPECT_TRUE(all_threads_take_part(*pool)) << "the parent's pool after the fork";
  }
}

TEST(DefaultContext, HasAllAllowedThreads) {
  const Context& context = default_context();
  EXPECT_EQ(context.pool->threads(), allowed_threads().threads);
  EXPECT_EQ(&default_context(), &context);
  EXPECT_TRUE(all_threads_take_part(*context.pool));
}

TEST(Split, Examples) {
  EXPECT_EQ(split(1024, 128, 2, 0), (Range{0, 512}));
  EXPECT_EQ(split(1024, 128, 2, 1), (Range{512, 1024}));
  EXPECT_EQ(split(300, 128, 2, 0), (Range{0, 128}));
  EXPECT_EQ(split(300, 128, 2, 1), (Range{128, 300}));
  EXPECT_EQ(split(100, 128, 2, 0), (Range{0, 0}));
  EXPECT_EQ(split(100, 128, 2, 1), (Range{0, 100}));
  EXPECT_EQ(split(0, 128, 3, 2), (Range{0, 0}));
}

RC_GTEST_PROP(Split, PiecesFollowOneAnotherAndAreBalanced, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(0, 5000);
  const auto step = *rc::gen::inRange<std::size_t>(1, 300);
  const int parts = *rc::gen::inRange(1, 80);
  std::size_t end = 0;
  std::size_t smallest = count;
  std::size_t largest = 0;
  for (int part = 0; part < parts; ++part) {
    const Range piece = split(count, step, parts, part);
    RC_ASSERT(piece.begin == end);
    RC_ASSERT(piece.begin <= piece.end);
    RC_ASSERT(piece.begin % step == 0u || piece.begin == count);
    end = piece.end;
    smallest = std::min(smallest, piece.end - piece.begin);
    largest = std::max(largest, piece.end - piece.begin);
  }
  RC_ASSERT(end == count);
  RC_ASSERT(largest - smallest <= step);
}

RC_GTEST_PROP(Split, LargestNumbersDoNotOverflow, ()) {
  const std::size_t count = SIZE_MAX - *rc::gen::inRange<std::size_t>(0, 1000);
  const auto step = *rc::gen::inRange<std::size_t>(1, 1000);
  const int parts = *rc::gen::inRange(1, 4096);
  RC_ASSERT(split(count, step, parts, 0).begin == 0u);
  RC_ASSERT(split(count, step, parts, parts - 1).end == count);
  const int part = *rc::gen::inRange(0, parts);
  const Range piece = split(count, step, parts, part);
  const std::size_t size = piece.end - piece.begin;
  RC_ASSERT(size <= step || size - step <= count / static_cast<std::size_t>(parts));
}

}  // namespace
}  // namespace octavo
