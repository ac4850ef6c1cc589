#include "octavo/base/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstring>
#include <memory>

namespace octavo {
namespace {

using testing::HasSubstr;

TEST(Machine, ThreadsThatMakeNoSense) {
  for (const int asked : {-1, -4096, 4097, 1 << 30}) {
    const Result<int> threads = choose_threads(asked);
    ASSERT_FALSE(threads) << asked;
    EXPECT_EQ(threads.error().code, ErrorCode::bad_value);
    EXPECT_THAT(threads.error().message, HasSubstr("--threads " + std::to_string(asked)));
  }
}

TEST(Machine, ThreadsAreGrantedUpToWhatIsAllowed) {
  const int allowed = allowed_threads().threads;
  ASSERT_GE(allowed, 1);
  EXPECT_EQ(choose_threads(0), allowed);
  EXPECT_EQ(choose_threads(1), 1);
  EXPECT_EQ(choose_threads(allowed), allowed);
  EXPECT_EQ(choose_threads(4096), allowed);
}

TEST(Machine, AffinityLimitsThreads) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const ThreadLimit limit = allowed_threads();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(limit.threads, 1);
  EXPECT_FALSE(limit.why.empty());
}

TEST(Machine, PeakOfAnonymousMemoryIsKept) {
  constexpr std::size_t kBytes = 48 << 20;
  const std::uint64_t before = peak_anonymous_bytes();
  EXPECT_GT(before, 0u);
  std::uint64_t with_block = 0;
  {
    const auto block = std::make_unique_for_overwrite<char[]>(kBytes);
    std::memset(block.get(), 1, kBytes);
    with_block = peak_anonymous_bytes();
    EXPECT_EQ(block[kBytes / 2], 1);
  }
  EXPECT_GE(with_block, std::uint64_t{kBytes});
  EXPECT_GE(with_block, before);
  EXPECT_GE(peak_anonymous_bytes(), with_block) << "it falls again when memory is given back";
}

}  // namespace
}  // namespace octavo
