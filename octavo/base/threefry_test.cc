#include "octavo/base/threefry.h"

#include <gtest/gtest.h>

#include <vector>

namespace octavo {
namespace {

// Random123's known answers: kat_vectors, threefry2x32 20.
TEST(Threefry, KnownAnswers) {
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(threefry2x32({0, 0}, {0, 0}), (Threefry{0x6B200159, 0x99BA4EFE}));
  EXPECT_EQ(threefry2x32({kOnes, kOnes}, {kOnes, kOnes}), (Threefry{0x1CB996FC, 0xBB002BE7}));
  EXPECT_EQ(threefry2x32({0x13198A2E, 0x03707344}, {0x243F6A88, 0x85A308D3}),
            (Threefry{0xC4923A9C, 0x483DF7A0}));
}

// JAX: random.bits(PRNGKey(1701), (3,)) without jax_threefry_partitionable: counters 0 to 3, padded
// to an even number, their halves side by side.
TEST(Threefry, BitsOfJax) {
  const Threefry key = threefry_words(1701);
  const Threefry first = threefry2x32(key, {0, 2});
  const Threefry second = threefry2x32(key, {1, 0});
  EXPECT_EQ((std::vector<std::uint32_t>{first[0], second[0], first[1]}),
            (std::vector<std::uint32_t>{56197195, 4200222568, 961309823}));
}

TEST(Threefry, WordsAreHighFirst) {
  EXPECT_EQ(threefry_words(0x0123456789ABCDEF), (Threefry{0x01234567, 0x89ABCDEF}));
  EXPECT_EQ(threefry_bits(0, 0), 0x6B20015999BA4EFEu);
  static_assert(threefry_bits(1, 2) != threefry_bits(2, 1));
}

}  // namespace
}  // namespace octavo
