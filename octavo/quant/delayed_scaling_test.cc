#include "octavo/quant/delayed_scaling.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace octavo {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr auto kExact = Fp8Semantics::flax_exact;

// What Flax's compute_scale gives, in exact hexadecimal.
TEST(DelayedScale, IsFlaxsToTheBit) {
  struct Row {
    float amax, scale, fp8_max;
    int margin;
    float expected;
  };
  const Row rows[] = {
      {0, 1, 448, 0, 1},
      {2, 1, 448, 0, 0x1.24924ap-8f},
      {3, 1, 448, 0, 0x1.b6db6ep-8f},
      {4, 7, 448, 0, 0x1.24924ap-7f},
      {5, 0.5f, 448, 0, 0x1.6db6dcp-7f},
      {7, 1, 448, 0, 0.015625f},
      {448, 1, 448, 0, 1},
      {3, 1, 240, 0, 0x1.99999ap-7f},
      {1, 1, 57344, 0, 0x1.24924ap-16f},
      {2, 1, 448, 1, 0x1.24924ap-7f},
      {5, 0, 448, 0, 0x1.6db6dcp-7f},
  };
  for (const Row& row : rows) {
    for (const Fp8Semantics semantics : {Fp8Semantics::guarded, kExact}) {
      EXPECT_EQ(delayed_scale(row.amax, row.scale, row.fp8_max, row.margin, semantics),
                row.expected)
          << row.amax;
    }
  }
  EXPECT_NEAR(delayed_scale(3.4e38f, 1, 448), 7.589e35f, 0.001e35f);
}

TEST(DelayedScale, KeepsTheScaleWhereTheAmaxSaysNothing) {
  for (const float amax : {0.0f, -1.0f, kNan, kInf, -kInf}) {
    for (const float scale : {1.0f, 0.25f, 0x1.24924ap-8f}) {
      EXPECT_EQ(delayed_scale(amax, scale, 448), scale) << amax;
      EXPECT_EQ(delayed_scale(amax, scale, 448, 0, kExact), scale) << amax;
    }
  }
}

TEST(DelayedScale, TinyAmaxGivesNoZeroScale) {
  for (const float amax : {0x1p-149f, 1e-40f, 1.3e-36f}) {
    EXPECT_EQ(delayed_scale(amax, 1, 448, 0, kExact), 0) << amax;
    EXPECT_EQ(delayed_scale(amax, 1, 448), 1 / std::numeric_limits<float>::max()) << amax;
  }
  EXPECT_GT(delayed_scale(1.4e-36f, 1, 448, 0, kExact), 0);
}

// Of the guards and of the other end: their reciprocals, or those of these, are infinite.
TEST(DelayedScale, KeepsScalesAtTheEndsOfTheRange) {
  for (const float scale :
       {0x1p-149f, 0x1p-128f, 0x1p-126f, 0x1p126f, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(delayed_scale(0, scale, 448), scale);
    EXPECT_EQ(delayed_scale(kNan, scale, 448), scale);
  }
  const float least = delayed_scale(1e-40f, 1, 448);
  EXPECT_EQ(delayed_scale(0, least, 448), least);
  const float widest = delayed_scale(std::numeric_limits<float>::max(), 1, 448, 120);
  EXPECT_TRUE(std::isfinite(widest)) << widest;
}

TEST(DelayedScale, ScaleThatIsNoneBecomesOne) {
  for (const float scale : {0.0f, kInf, kNan, -1.0f}) {
    EXPECT_EQ(delayed_scale(0, scale, 448), 1) << scale;
  }
  EXPECT_EQ(delayed_scale(0, 0, 448, 0, kExact), 0);
}

TEST(HistoryAmax, PropagatesNan) {
  EXPECT_EQ(history_amax(std::array{1.0f, 3.0f, 2.0f}), 3);
  EXPECT_TRUE(std::isnan(history_amax(std::array{1.0f, kNan, 2.0f})));
  EXPECT_EQ(history_amax(std::array{-kInf, -1.0f}), -1);
}

}  // namespace
}  // namespace octavo
