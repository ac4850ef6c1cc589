// NUM cases, as the commands and the quantizer show them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "octavo/quant/block.h"
#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

TEST(Num01, SaturatingCodesAtScaleOne) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0,    448,       464,        465,          480,
                                     1000, kInfinity, -kInfinity, std::nanf("")};
  const std::vector<std::uint8_t> expected = {0, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F};
  const float one = 1.0f;
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    if (!kernels::is_built(isa) || !supports(cpu_features(), isa)) {
      std::printf("left out: %s\n", isa_name(isa));
      continue;
    }
    std::vector<std::uint8_t> codes(values.size());
    block_row_quantize(kernels::cast_kernels(isa),
                       {Format::f32, values.data(), 1, values.size(), values.size()}, 128,
                       std::span(&one, 1), kernels::ScaleOp::multiply, {codes.data(), codes.size()},
                       nullptr, false);
    for (std::size_t v = 0; v < values.size(); ++v)
      std::printf("%s %g -> 0x%02X\n", isa_name(isa), values[v], codes[v]);
    EXPECT_EQ(codes, expected);
  }
}

TEST(Num01, QuantizeAtScaleOne) {
  // A block whose largest value is 448 has scale 1: every code stands for itself, midpoints go to
  // the even code.
  const TempDir dir;
  std::vector<float> values(128 * 128, 0.0f);
  for (int code = 0; code < 0x7F; ++code) {
    const double value = decode_fp8(Fp8::e4m3fn, static_cast<std::uint8_t>(code));
    const double next =
        code < 0x7E ? decode_fp8(Fp8::e4m3fn, static_cast<std::uint8_t>(code + 1)) : value;
    values[static_cast<std::size_t>(code)] = static_cast<float>(value);
    values[static_cast<std::size_t>(128 + code)] = static_cast<float>(-value);
    values[static_cast<std::size_t>(256 + code)] = static_cast<float>((value + next) / 2);
    values[static_cast<std::size_t>(384 + code)] =
        std::nextafter(static_cast<float>((value + next) / 2), 0.0f);
  }
  const Tensor source = make_tensor("F32", {128, 128}, values);
  write_model(dir / "in", {{"a.weight", source}}, kPlainConfig);
  ASSERT_EQ(run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()}).status, 0);
  const Tensors out = read_model(dir / "out").tensors;
  EXPECT_EQ(values_of(out.at("a.weight_scale_inv")), std::vector{1.0f});
  for (int code = 0; code < 0x7F; ++code) {
    const auto at = static_cast<std::size_t>(code);
    ASSERT_EQ(out.at("a.weight").bytes[at], code);
    ASSERT_EQ(out.at("a.weight").bytes[128 + at], 0x80 | code);
    const int even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(out.at("a.weight").bytes[256 + at], std::min(even, 0x7E));
  }
  EXPECT_EQ(out.at("a.weight"), expected_quantized(source, {}).codes);
}

// All 256 codes of a format at scale 1, through `dequantize`, with every level of kernels.
void expect_all_codes(const char* dtype, Fp8 format) {
  Bytes codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i);
  const TempDir dir;
  write_model(dir / "in",
              {{"a.weight", {dtype, {16, 16}, codes}},
               {"a.weight_scale_inv", make_tensor("F32", {1}, std::vector{1.0f})}},
              kFp8Config);
  int nan_codes = 0;
  for (const std::string& level : kernel_levels()) {
    nan_codes = 0;
    const Outcome run = run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string(),
                                    "--dtype", "f32", "--overwrite", "--json"},
                                   "OCTAVO_CPU=" + level + " ");
    ASSERT_EQ(run.status, 0) << run.err;
    const std::vector<float> values = values_of(read_model(dir / "out").tensors.at("a.weight"));
    for (std::size_t i = 0; i < 256; ++i) {
      const double expected = decode_fp8(format, static_cast<std::uint8_t>(i));
      if (std::isnan(expected)) {
        ++nan_codes;
        EXPECT_TRUE(std::isnan(values[i])) << level << " " << i;
      } else {
        EXPECT_EQ(values[i], expected) << level << " " << i;
        EXPECT_EQ(std::signbit(values[i]), std::signbit(expected)) << level << " " << i;
      }
    }
    EXPECT_EQ(run.json().at("counts").at(0).at("nan"), nan_codes);
  }
}

TEST(Num02, AllCodesOfE4m3fn) {
  EXPECT_EQ(decode_fp8(Fp8::e4m3fn, 0x78), 256);
  EXPECT_EQ(decode_fp8(Fp8::e4m3fn, 0x7E), 448);
  EXPECT_EQ(decode_fp8(Fp8::e4m3fn, 0x01), 0x1p-9);
  expect_all_codes("F8_E4M3", Fp8::e4m3fn);
}

TEST(Num02, AllCodesOfE5m2) { expect_all_codes("F8_E5M2", Fp8::e5m2); }

TEST(Num03, FnuzIsReadAsFnuz) {
  EXPECT_TRUE(std::isnan(decode_fp8(Fp8::e4m3fnuz, 0x80)));
  EXPECT_EQ(decode_fp8(Fp8::e4m3fnuz, 0x7F), 240);
  EXPECT_EQ(decode_fp8(Fp8::e4m3fnuz, 0x38), 0.5);  // E4M3FN: 1
  expect_all_codes("F8_E4M3FNUZ", Fp8::e4m3fnuz);
  expect_all_codes("F8_E5M2FNUZ", Fp8::e5m2fnuz);
}

TEST(Num03, InspectNamesFnuz) {
  const TempDir dir;
  write_model(dir / "in",
              {{"a.weight", {"F8_E4M3FNUZ", {16, 16}, Bytes(256, 1)}},
               {"a.weight_scale_inv", make_tensor("F32", {1}, std::vector{1.0f})}},
              kFp8Config);
  EXPECT_THAT(run_octavo({"inspect", (dir / "in").string()}).out,
              ::testing::HasSubstr("F8_E4M3FNUZ"));
}

}  // namespace
}  // namespace octavo::tests
