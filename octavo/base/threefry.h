// Random numbers by counter: Threefry-2x32 with 20 rounds, as Random123 publishes it and JAX uses
// it. The same key and counter give the same bits everywhere, in any order.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace octavo {

using Threefry = std::array<std::uint32_t, 2>;

constexpr Threefry threefry2x32(const Threefry& key, const Threefry& counter) {
  constexpr std::uint32_t kParity = 0x1BD11BDA;
  constexpr std::array<int, 8> kRotations = {13, 15, 26, 6, 17, 29, 16, 24};
  const std::array<std::uint32_t, 3> keys = {key[0], key[1], kParity ^ key[0] ^ key[1]};
  std::uint32_t a = counter[0] + keys[0];
  std::uint32_t b = counter[1] + keys[1];
  for (std::uint32_t round = 0; round < 20; ++round) {
    a += b;
    b = std::rotl(b, kRotations[round % 8]) ^ a;
    if (round % 4 != 3) continue;
    const std::uint32_t injection = round / 4 + 1;
    a += keys[injection % 3];
    b += keys[(injection + 1) % 3] + injection;
  }
  return {a, b};
}

// High word first, as JAX splits a seed.
constexpr Threefry threefry_words(std::uint64_t value) {
  return {static_cast<std::uint32_t>(value >> 32), static_cast<std::uint32_t>(value)};
}

// 64 random bits.
constexpr std::uint64_t threefry_bits(std::uint64_t seed, std::uint64_t counter) {
  const Threefry bits = threefry2x32(threefry_words(seed), threefry_words(counter));
  return std::uint64_t{bits[0]} << 32 | bits[1];
}

}  // namespace octavo
