// Random numbers by counter: Threefry-2x32 with 20 rounds, as Random123 publishes it and JAX uses
// it. The same key and counter give the same bits everywhere, in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace octavo {

using Threefry = std::array<std::uint32_t, 2>;

// Counters (a[i], b[i]) become the bits of each, under one key. Loops over lanes lie inside: the
// compiler makes vector instructions of them (64 lanes: a third of the time of one by one).
template <std::size_t N>
constexpr void threefry2x32(const Threefry& key, std::array<std::uint32_t, N>& a,
                            std::array<std::uint32_t, N>& b) {
  constexpr std::uint32_t kParity = 0x1BD11BDA;
  constexpr std::array<int, 8> kRotations = {13, 15, 26, 6, 17, 29, 16, 24};
  const std::array<std::uint32_t, 3> keys = {key[0], key[1], kParity ^ key[0] ^ key[1]};
  const auto inject = [&](std::uint32_t of_a, std::uint32_t of_b) {
    for (std::size_t i = 0; i < N; ++i) {
      a[i] += of_a;
      b[i] += of_b;
    }
  };
  inject(keys[0], keys[1]);
  for (std::uint32_t round = 0; round < 20; ++round) {
    const int rotation = kRotations[round % 8];
    for (std::size_t i = 0; i < N; ++i) {
      a[i] += b[i];
      b[i] = (b[i] << rotation | b[i] >> (32 - rotation)) ^ a[i];
    }
    if (round % 4 != 3) continue;
    const std::uint32_t injection = round / 4 + 1;
    inject(keys[injection % 3], keys[(injection + 1) % 3] + injection);
  }
}

constexpr Threefry threefry2x32(const Threefry& key, const Threefry& counter) {
  std::array<std::uint32_t, 1> a = {counter[0]}, b = {counter[1]};
  threefry2x32(key, a, b);
  return {a[0], b[0]};
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
