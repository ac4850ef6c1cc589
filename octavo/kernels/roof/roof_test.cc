// That the roofs do the work which is counted: every byte is read, every line written, every step
// of every chain computed.
#include "octavo/kernels/roof/roof.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "octavo/base/aligned_bytes.h"
#include "octavo/kernels/select.h"

namespace octavo::kernels {
namespace {

AlignedBytes zeroed(std::size_t size) {
  AlignedBytes bytes(size);
  std::memset(bytes.data(), 0, size);
  return bytes;
}

std::vector<const RoofKernels*> levels() {
  std::vector<const RoofKernels*> found;
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    if (is_built(isa) && supports(cpu_features(), isa)) {
      found.push_back(&roof_kernels(isa));
    } else {
      std::printf("left out: %s, which this build or this machine lacks\n", isa_name(isa));
    }
  }
  return found;
}

TEST(Roof, ReadSeesEveryByte) {
  constexpr std::size_t kBytes = 3 * kReadStep;
  auto memory = zeroed(kBytes);
  for (const RoofKernels* level : levels()) {
    EXPECT_EQ(level->read(memory.data(), kBytes), 0u) << level->name;
    for (std::size_t i = 0; i < kBytes; ++i) {
      memory.data()[i] = 0x40;
      ASSERT_EQ(level->read(memory.data(), kBytes), std::uint64_t{0x40} << i % 8 * 8)
          << level->name << " byte " << i;
      memory.data()[i] = 0;
    }
  }
}

TEST(Roof, StreamReadsAndWritesEveryLine) {
  constexpr std::size_t kSteps = 5;
  for (const RoofKernels* level : levels()) {
    for (std::size_t in = 1; in <= 4; ++in) {
      for (std::size_t out = 1; out <= 4; ++out) {
        auto from = zeroed(64 * in * kSteps);
        auto to = zeroed(64 * out * (kSteps + 1));
        for (std::size_t i = 0; i < 64 * in * kSteps; ++i)
          from.data()[i] = static_cast<std::uint8_t>(i * 37 + i / 64);
        level->stream({from.data(), in, to.data(), out, kSteps});
        for (std::size_t i = 0; i < 64 * out * (kSteps + 1); ++i) {
          const std::size_t step = i / (64 * out), line = i / 64 % out;
          std::uint8_t expected = 0;
          for (std::size_t k = 0; k < in && step < kSteps; ++k) {
            if (in > out || k == line % in) expected |= from.data()[64 * (step * in + k) + i % 64];
          }
          ASSERT_EQ(to.data()[i], expected)
              << level->name << " " << in << ":" << out << " byte " << i;
        }
      }
    }
  }
}

// x -> x / 2 + 1 and x -> x + 2 * 0.5 are exact for as few steps as these.
float expected_sum(const ArithmeticPeak& peak, std::size_t steps, bool dot) {
  float sum = 0;
  for (std::size_t c = 0; c < peak.chains; ++c) {
    float x = static_cast<float>(c + 1);
    for (std::size_t i = 0; i < steps; ++i) x = dot ? x + 1 : x / 2 + 1;
    sum += x * static_cast<float>(peak.lanes);
  }
  return sum;
}

TEST(Roof, ArithmeticDoesEveryStepOfEveryChain) {
  for (const RoofKernels* level : levels()) {
    for (const std::size_t steps : {0u, 1u, 2u, 7u}) {
      EXPECT_EQ(level->fma.run(steps, 0.5f, 1.0f), expected_sum(level->fma, steps, false))
          << level->name << " " << steps;
      if (level->dot.run == nullptr) continue;
      EXPECT_EQ(level->dot.run(steps, 1.0f, 0.5f), expected_sum(level->dot, steps, true))
          << level->name << " " << steps;
    }
  }
}

TEST(Roof, TheWidestIsTheHighestLevel) {
  EXPECT_STREQ(widest_roof_kernels().name, levels().back()->name);
}

}  // namespace
}  // namespace octavo::kernels
