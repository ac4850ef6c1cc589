// The low-level operations against Flax's, bit for bit: tests/golden/flax/ops.
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/ops/fp8.h"
#include "octavo/train/flax_golden_testing.h"

namespace octavo::fp8 {
namespace {

using octavo::testing::FlaxGolden;
using octavo::testing::row;

constexpr auto kExact = Fp8Semantics::flax_exact;

DType type_of(const std::string& name) {
  static const std::map<std::string, DType> kTypes = {{"f32", DType::f32},
                                                      {"bf16", DType::bf16},
                                                      {"f16", DType::f16},
                                                      {"e4m3fn", DType::f8_e4m3},
                                                      {"e5m2", DType::f8_e5m2},
                                                      {"e4m3fnuz", DType::f8_e4m3fnuz},
                                                      {"e5m2fnuz", DType::f8_e5m2fnuz}};
  return kTypes.at(name);
}

// Equal bits; NaN counts as NaN, whatever its sign.
void expect_equal(const Tensor& ours, const Tensor& theirs, const std::string& where) {
  const std::vector<float> a = ours.to_floats(), b = theirs.to_floats();
  ASSERT_EQ(a.size(), b.size()) << where;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]))
        << where << " element " << i << ": " << a[i] << " " << b[i];
  }
}

// Codes, which the file holds as bytes.
Tensor as_codes(const Tensor& bytes, DType type) {
  Tensor codes(type, bytes.shape());
  std::ranges::copy(bytes.values<std::uint8_t>(), codes.mutable_values<std::uint8_t>().begin());
  return codes;
}

// Those of the operation that have `key`: how many.
std::size_t for_each_case(const FlaxGolden& golden, const std::string& op, const char* key,
                          const auto& body) {
  std::size_t count = 0;
  for (const Json& c : golden.cases()) {
    if (c.value("op", "") != op || !c.contains(key)) continue;
    ++count;
    body(c, c.at("name").get<std::string>());
  }
  return count;
}

TEST(FlaxOpsGolden, Quantize) {
  const FlaxGolden golden("ops");
  const Tensor& scales = golden.at("inputs.scales");
  const auto check = [&](const Json& c, const auto& name) {
    const DType format = type_of(c.at("format")), compute = type_of(c.at("compute"));
    const Tensor& x = golden.at(c.at("x"));
    for (std::size_t s = 0; s < scales.size(); ++s) {
      const Tensor scale = row(scales, s);
      const std::string where = name + " scale " + std::to_string(scale.item());
      expect_equal(quantize(x, format, scale, compute),
                   as_codes(row(golden.at(name + ".codes"), s), format), where);
      expect_equal(qdq(x, format, scale, compute), row(golden.at(name + ".qdq"), s), where);
    }
  };
  EXPECT_EQ(for_each_case(golden, "quantize", "x", check), 24u);
}

TEST(FlaxOpsGolden, Dequantize) {
  const FlaxGolden golden("ops");
  const Tensor& scales = golden.at("inputs.scales");
  std::vector<std::uint8_t> bytes(256);
  for (std::size_t i = 0; i < 256; ++i) bytes[i] = static_cast<std::uint8_t>(i);
  const std::size_t count =
      for_each_case(golden, "dequantize", "format", [&](const Json& c, const auto& name) {
        Tensor all(DType::u8, {256});
        std::ranges::copy(bytes, all.mutable_values<std::uint8_t>().begin());
        const Tensor codes = as_codes(all, type_of(c.at("format")));
        for (std::size_t s = 0; s < scales.size(); ++s) {
          expect_equal(dequantize(codes, type_of(c.at("dq_dtype")), row(scales, s)),
                       row(golden.at(name + ".values"), s), name);
        }
      });
  EXPECT_EQ(count, 12u);
}

TEST(FlaxOpsGolden, BroadcastScales) {
  const FlaxGolden golden("ops");
  std::size_t count = 0;
  for (const Json& c : golden.cases()) {
    const std::string name = c.at("name");
    if (!name.starts_with("broadcast.")) continue;
    ++count;
    const Tensor &x = golden.at(name + ".x"), &scale = golden.at(name + ".scale");
    if (golden.contains(name + ".qdq")) {
      expect_equal(qdq(x, DType::f8_e4m3, scale), golden.at(name + ".qdq"), name);
    } else {
      EXPECT_THROW(qdq(x, DType::f8_e4m3, scale), ContractError) << name;
    }
  }
  EXPECT_EQ(count, 11u);
}

// scale_ieee: the same formula without XLA's flushing of subnormal numbers.
TEST(FlaxOpsGolden, ComputeScale) {
  const FlaxGolden golden("ops");
  const auto values = [&](const char* what) {
    return golden.at(std::string("compute_scale.") + what).values<float>();
  };
  const auto margin = golden.at("compute_scale.margin").values<std::int32_t>();
  for (std::size_t i = 0; i < margin.size(); ++i) {
    const float ours = delayed_scale(values("amax")[i], values("scale")[i], values("fp8_max")[i],
                                     margin[i], kExact);
    const float theirs = values("scale_ieee")[i];
    if (std::isnan(ours) && std::isnan(theirs)) continue;
    ASSERT_EQ(ours, theirs) << values("amax")[i] << " " << values("scale")[i] << " " << margin[i];
  }
}

TEST(FlaxOpsGolden, UpdateFp8Meta) {
  const FlaxGolden golden("ops");
  const std::size_t count =
      for_each_case(golden, "update_fp8_meta", "format", [&](const Json& c, const auto& name) {
        const DType format = type_of(c.at("format"));
        const Tensor &x = golden.at(name + ".x"), &histories = golden.at(name + ".history");
        Fp8Meta meta{Tensor::full(DType::f32, {1}, c.at("initial_scale").template get<double>()),
                     Tensor::zeros(DType::f32, {histories.shape()[1]})};
        for (std::size_t t = 0; t < x.shape()[0]; ++t) {
          const std::string where = name + " step " + std::to_string(t);
          const Tensor now = row(x, t);
          const QdqUpdate update = quantize_dequantize_update(
              now, format, meta.scale, meta.amax_history, now.dtype(), kExact);
          meta = update_fp8_meta(now, format, meta.scale, meta.amax_history, kExact);
          EXPECT_TRUE(same_bits(update.meta.scale, meta.scale)) << where;
          EXPECT_TRUE(same_bits(update.meta.amax_history, meta.amax_history)) << where;
          expect_equal(meta.scale, row(golden.at(name + ".scale"), t), where);
          expect_equal(meta.amax_history, row(histories, t), where);
          expect_equal(quantize(now, format, meta.scale, now.dtype()),
                       as_codes(row(golden.at(name + ".codes"), t), format), where);
          expect_equal(qdq(now, format, meta.scale, now.dtype()), row(golden.at(name + ".qdq"), t),
                       where);
          expect_equal(update.qdq, row(golden.at(name + ".qdq"), t), where);
        }
      });
  EXPECT_EQ(count, 31u);
}

}  // namespace
}  // namespace octavo::fp8
