#include "octavo/base/aligned_bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <new>
#include <utility>

namespace octavo {
namespace {

TEST(AlignedBytes, LiesAtLinesOfCache) {
  for (const std::size_t size : {1, 63, 64, 65, 4096}) {
    const AlignedBytes bytes(size);
    EXPECT_EQ(bytes.size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64, 0u) << size;
  }
  EXPECT_EQ(AlignedBytes(0).data(), nullptr);
}

TEST(AlignedBytes, MovesAndLeavesNothing) {
  AlignedBytes from(100);
  auto* const data = from.data();
  AlignedBytes to(std::move(from));
  EXPECT_EQ(to.data(), data);
  EXPECT_EQ(to.size(), 100u);
  EXPECT_EQ(from.data(), nullptr);
  EXPECT_EQ(from.size(), 0u);
  from = std::move(to);
  EXPECT_EQ(from.data(), data);
  EXPECT_EQ(from.size(), 100u);
  EXPECT_EQ(to.size(), 0u);
}

TEST(AlignedBytes, RefusesWhatNoMemoryHolds) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  EXPECT_THROW(AlignedBytes{kMost}, std::bad_alloc);
  EXPECT_THROW(AlignedBytes{kMost / 2 + 1}, std::bad_alloc);
}

}  // namespace
}  // namespace octavo
