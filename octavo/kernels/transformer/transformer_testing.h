// What the tests of the transformer kernels share: one instance of a suite per level, guarded rows
// of floats, and values of every kind.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "octavo/kernels/cast/cast_testing.h"
#include "octavo/kernels/transformer/transformer_internal.h"

namespace octavo::kernels::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr double kUnit = 0x1p-24;  // largest relative error of one f32 rounding

class TransformerKernelsTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const std::string name = isa_name(GetParam());
    if (!is_built(GetParam())) GTEST_SKIP() << name << " is not in this build";
    if (!supports(cpu_features(), GetParam())) GTEST_SKIP() << name << " is not on this machine";
    kernels_ = transformer_kernels(GetParam());
  }
  TransformerKernels kernels_ = {};
};

// A copy of some floats that ends where memory ends or, with `at_start`, starts where it starts.
class Row {
 public:
  explicit Row(const std::vector<float>& values, bool at_start = false)
      : bytes_(values.size() * sizeof(float), at_start) {
    if (!values.empty()) std::memcpy(bytes_.data(), values.data(), bytes_.size());
  }
  float* data() { return reinterpret_cast<float*>(bytes_.data()); }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> result(bytes_.size() / sizeof(float));
    if (!result.empty()) std::memcpy(result.data(), bytes_.data(), bytes_.size());
    return result;
  }

 private:
  GuardedBytes bytes_;
};

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

enum class Values { ordinary, any_bits, mostly_special };
inline constexpr Values kAllValues[] = {Values::ordinary, Values::any_bits, Values::mostly_special};

inline float any_value(Values kind, std::mt19937& random) {
  constexpr float kSpecial[] = {kNan,    -kNan,    kInf,    -kInf,     0.0f,
                                -0.0f,   1e-45f,   -1e-45f, 0x1p-126f, -0x1p-126f,
                                3.4e38f, -3.4e38f, -126.0f, 128.0f,    -88.7f};
  if (kind == Values::any_bits) return any_float(random);
  if (kind == Values::mostly_special && random() % 4 != 0)
    return kSpecial[random() % std::size(kSpecial)];
  return std::normal_distribution<float>(0.0f, 4.0f)(random);
}

inline std::vector<float> any_values(std::size_t n, Values kind, std::mt19937& random) {
  std::vector<float> result(n);
  for (float& x : result) x = any_value(kind, random);
  return result;
}

}  // namespace octavo::kernels::testing
