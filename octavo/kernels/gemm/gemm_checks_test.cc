// What debug builds refuse. gemm.h and pack.h say what is asked.
#include <gtest/gtest.h>

#include "octavo/base/aligned_bytes.h"
#include "octavo/kernels/gemm/gemm_internal.h"

namespace octavo::kernels {
namespace {

class GemmChecksDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef NDEBUG
    GTEST_SKIP() << "this build has no assertions";
#endif
  }
  static constexpr float kOne = 1.0f;
  AlignedBytes bytes_{4096};
  GemmArgs args_{.m = 1,
                 .n = 32,
                 .k = 2,
                 .k_block = 128,
                 .weight_format = Format::e4m3fn,
                 .weights = bytes_.data(),
                 .weight_scale = {&kOne, 0, 0, 1, false},
                 .activations = bytes_.data(),
                 .panel_rows = 1,
                 .activation_scale = {&kOne, 0, 0, 1, false},
                 .c_format = Format::f32,
                 .c = bytes_.data(),
                 .c_stride = 32,
                 .bias = nullptr,
                 .strip_begin = 0,
                 .strip_end = 1,
                 .scratch = reinterpret_cast<float*>(bytes_.data()),
                 .group = 1};
};

TEST_F(GemmChecksDeathTest, TakesWhatIsRight) {
  check(args_, Arithmetic::fma);
  check(args_, Arithmetic::dot);
}

TEST_F(GemmChecksDeathTest, RefusesProductsOutsideTheContract) {
  const auto refused = [&](const char* expected, auto&& change, Arithmetic how = Arithmetic::dot) {
    GemmArgs args = args_;
    change(args);
    EXPECT_DEATH(check(args, how), expected);
  };
  refused("k_block", [](GemmArgs& a) { a.k_block = 96; });
  refused("weight_format", [](GemmArgs& a) { a.weight_format = Format::f16; });
  refused("f32", [](GemmArgs& a) { a.weight_format = Format::f32; });
  refused("c_format", [](GemmArgs& a) { a.c_format = Format::e4m3fn; });
  refused("weights", [&](GemmArgs& a) { a.weights = bytes_.data() + 32; });
  refused("activations", [&](GemmArgs& a) { a.activations = bytes_.data() + 2; });
  refused("scratch", [](GemmArgs& a) { a.scratch += 1; });
  refused("panel_rows", [](GemmArgs& a) { a.panel_rows = 2; });
  refused("blocks", [](GemmArgs& a) { a.weight_scale.blocks = 0; });
  refused("lanes", [](GemmArgs& a) { a.activation_scale.lanes = true; });
  refused("strip_end", [](GemmArgs& a) { a.strip_end = 2; });
  refused("group", [](GemmArgs& a) { a.group = 0; });
}

TEST_F(GemmChecksDeathTest, RefusesPackingOutsideTheContract) {
  const PackWeightsArgs weights{Format::e4m3fn, bytes_.data(), 2, false, 32, 2, 0, 1,
                                bytes_.data(),  false};
  check(weights);
  PackWeightsArgs bad_weights = weights;
  bad_weights.packed = bytes_.data() + 32;
  EXPECT_DEATH(check(bad_weights), "packed");
  bad_weights = weights;
  bad_weights.format = Format::f16;
  EXPECT_DEATH(check(bad_weights), "format");
  bad_weights = weights;
  bad_weights.whole_k = 1;
  EXPECT_DEATH(check(bad_weights), "whole_k");

  const UnpackWeightsArgs unpack{Format::bf16, bytes_.data(), 32, 2, 0, 1, bytes_.data(), 2};
  check(unpack);
  UnpackWeightsArgs bad_unpack = unpack;
  bad_unpack.dst = bytes_.data() + 1;
  EXPECT_DEATH(check(bad_unpack), "dst");

  const PackActivationsArgs activations{
      Format::f32, bytes_.data(), 2, false, 1, 2, Arithmetic::fma, 0, 0, 1, 0, 1, bytes_.data()};
  check(activations);
  PackActivationsArgs bad_activations = activations;
  bad_activations.arithmetic = Arithmetic::dot;
  EXPECT_DEATH(check(bad_activations), "f32");
  bad_activations = activations;
  bad_activations.chunk_end = 2;
  EXPECT_DEATH(check(bad_activations), "chunk_end");
  bad_activations = activations;
  bad_activations.panel_end = 2;
  EXPECT_DEATH(check(bad_activations), "panel_end");
}

}  // namespace
}  // namespace octavo::kernels
