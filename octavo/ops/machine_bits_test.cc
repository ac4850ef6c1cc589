// Quantization and products as this machine and OCTAVO_CPU choose them. Prints a hash of all bits,
// which tests/integration/emulated_cpu_test.cc compares between processors.
#include <gtest/gtest.h>

#include "octavo/ops/gemm_testing.h"

namespace octavo::ops::testing {
namespace {

// (rows, k) in f32, quantized to e4m3fn with scales per block.
Matrix quantized(std::mt19937& random, std::size_t rows, std::size_t k, BlockSize block) {
  const Matrix source = random_matrix(random, Format::f32, rows, k);
  Matrix m{Format::e4m3fn, rows, k, k, false, std::vector<std::uint8_t>(rows * k), {}, {}};
  m.grid.block = block;
  m.grid.stride = (k + block.cols - 1) / block.cols;
  std::vector<float> scales((rows + block.rows - 1) / block.rows * m.grid.stride);
  const auto bad = quantize_blocks(kernels::cast_kernels(), source.operand().matrix,
                                   {.block = block}, {m.bytes.data(), k}, scales, false);
  EXPECT_FALSE(bad);
  m.scales.resize(scales.size() * sizeof(float));
  std::memcpy(m.scales.data(), scales.data(), m.scales.size());
  return m;
}

// FNV-1a.
void add(std::uint64_t& hash, const std::vector<std::uint8_t>& bytes) {
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100'0000'01B3;
}

TEST(MachineBits, AreThoseOfOrderC) {
  std::mt19937 random(20);
  const Matrix w = quantized(random, 75, 201, {128, 128});
  const PackedWeight packed = pack_weight(w.operand());
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325;
  add(hash, w.bytes);
  add(hash, w.scales);
  for (const std::size_t m : {1u, 5u, 40u, 130u}) {
    const Matrix a = quantized(random, m, 201, {1, 128});
    const Product c = multiply(a, packed, Format::f32, 0, {});
    EXPECT_EQ(difference(c, expected(a, w)), "");
    add(hash, a.bytes);
    add(hash, a.scales);
    add(hash, c.bytes);
  }
  std::printf("machine bits %016llx by %s\n", static_cast<unsigned long long>(hash),
              kernels::cast_kernels().name);
}

}  // namespace
}  // namespace octavo::ops::testing
