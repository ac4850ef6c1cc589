// The gradient rules of FP8 operations against Flax's, bit for bit, with Flax's semantics.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "octavo/autograd/fp8.h"
#include "octavo/autograd/value_and_grad.h"
#include "octavo/train/flax_golden_testing.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // in_qdq and out_qdq

namespace octavo::testing {
namespace {

using Inputs = std::span<const Variable>;
constexpr auto kExact = Fp8Semantics::flax_exact;

DType format_of(const std::string& name) {
  return name == "e4m3fn"     ? DType::f8_e4m3
         : name == "e5m2"     ? DType::f8_e5m2
         : name == "e4m3fnuz" ? DType::f8_e4m3fnuz
                              : DType::f8_e5m2fnuz;
}

DType type_of(const Json& name) {
  return name == "bf16" ? DType::bf16 : name == "f16" ? DType::f16 : DType::f32;
}
DType compute_of(const Json& c) { return type_of(c.at("compute")); }

// Equal bits; codes are bytes in the file. Any NaN equals any NaN.
void expect_golden(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  if (is_fp8(got.dtype())) {
    ASSERT_EQ(expected.dtype(), DType::u8) << what;
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.bytes()), 0) << what;
    return;
  }
  ASSERT_EQ(got.dtype(), expected.dtype()) << what;
  const std::vector<float> a = got.to_floats(), b = expected.to_floats();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    EXPECT_EQ(a[i], b[i]) << what << " element " << i;
    EXPECT_EQ(std::signbit(a[i]), std::signbit(b[i])) << what << " element " << i;
  }
}

// The cases whose name begins with `prefix`: run(case, name).
template <class Run>
void for_cases(const std::string& prefix, std::size_t count, const Run& run) {
  const FlaxGolden golden("rules");
  std::size_t seen = 0;
  for (const Json& c : golden.cases()) {
    const std::string name = c.at("name");
    if (!name.starts_with(prefix + ".")) continue;
    ++seen;
    run(golden, c, name);
  }
  EXPECT_EQ(seen, count) << prefix;
}

void expect_qdq(const std::string& operation, decltype(&fp8::in_qdq) f) {
  for_cases(operation, 36, [&](const FlaxGolden& golden, const Json& c, const std::string& name) {
    const auto at = [&](const char* what) { return golden.at(name + "." + what); };
    const DType format = format_of(c.at("format"));
    const ValueAndVjp result = value_and_vjp(
        [&](Inputs in) { return f(compute_of(c), format, in[0], in[1], in[2], kExact); },
        std::vector{at("inp"), at("scale"), at("history")}, at("g"));
    expect_golden(result.value, at("out"), name);
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string gradient = fmt::format("{}.grads.{}", name, i);
      expect_golden(result.grads[i], golden.at(gradient), gradient);
    }
  });
}

TEST(RulesGolden, InQdq) { expect_qdq("in_qdq", &fp8::in_qdq); }
TEST(RulesGolden, OutQdq) { expect_qdq("out_qdq", &fp8::out_qdq); }

TEST(RulesGolden, InQ) {
  for_cases("in_q", 24, [](const FlaxGolden& golden, const Json& c, const std::string& name) {
    const auto at = [&](const char* what) { return golden.at(name + "." + what); };
    Tensor scale;
    const ValueAndVjp result = value_and_vjp(
        [&](Inputs in) {
          const auto q =
              fp8::in_q(compute_of(c), format_of(c.at("format")), in[0], in[1], in[2], kExact);
          scale = q.scale.value();
          return q.q;
        },
        std::vector{at("inp"), at("scale"), at("history")},
        Tensor(format_of(c.at("format")), at("inp").shape()));
    expect_golden(result.value, at("out.0"), name);
    expect_golden(scale, at("out.1"), name);
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string gradient = fmt::format("{}.grads.{}", name, i);
      expect_golden(result.grads[i], golden.at(gradient), gradient);
    }
  });
}

TEST(RulesGolden, OutDq) {
  for_cases("out_dq", 3, [](const FlaxGolden& golden, const Json& c, const std::string& name) {
    const auto at = [&](const char* what) { return golden.at(name + "." + what); };
    const DType type = type_of(c.at("dq_type"));
    const ValueAndVjp result =
        value_and_vjp([&](Inputs in) { return fp8::out_dq(type, in[0], in[1], in[2]); },
                      std::vector{at("lhs_scale"), at("rhs_scale"), at("acc")}, at("g"));
    expect_golden(result.value, at("out"), name);
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string gradient = fmt::format("{}.grads.{}", name, i);
      expect_golden(result.grads[i], golden.at(gradient), gradient);
    }
  });
}

DotDimensionNumbers dims_of(const Json& c) {
  const Json& n = c.at("dimension_numbers");
  const auto axes = [&](int pair, int side) { return n[pair][side].get<ops::Axes>(); };
  return {axes(0, 0), axes(0, 1), axes(1, 0), axes(1, 1)};
}

TEST(RulesGolden, DotGeneralTransposes) {
  for_cases("transpose", 17, [](const FlaxGolden& golden, const Json& c, const std::string& name) {
    const auto at = [&](const char* what) { return golden.at(name + "." + what); };
    const ValueAndVjp result =
        value_and_vjp([&](Inputs in) { return dot_general(in[0], in[1], dims_of(c)); },
                      std::vector{at("x"), at("y")}, at("g"));
    // Whole numbers: a sum of none is +0 or -0 as the order has it.
    const auto expect = [&](const Tensor& got, const Tensor& expected) {
      ASSERT_EQ(got.shape(), expected.shape()) << name;
      EXPECT_EQ(got.to_floats(), expected.to_floats()) << name;
    };
    expect(result.value, at("out"));
    expect(result.grads[0], at("dx"));
    expect(result.grads[1], at("dy"));
  });
}

// Zeros of either sign are equal: a sum that cancels is +0 in some orders of -0 and +0.
void expect_equal(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  ASSERT_EQ(got.dtype(), expected.dtype()) << what;
  EXPECT_EQ(got.to_floats(), expected.to_floats()) << what;
}

// Of fresh state, scales are 1 and nothing is rounded: the fused path has the same values.
TEST(RulesGolden, Fp8ScaledDotGeneral) {
  for_cases("dot", 66, [](const FlaxGolden& golden, const Json& c, const std::string& name) {
    const auto at = [&](const std::string& what) { return golden.at(name + "." + what); };
    std::vector<Tensor> inputs = {at("lhs"), at("rhs")};
    for (const char* meta :
         {"meta.0.0", "meta.0.1", "meta.1.0", "meta.1.1", "meta.2.0", "meta.2.1"})
      inputs.push_back(at(meta));
    for (const auto semantics : {kExact, Fp8Semantics::guarded}) {
      const bool is_fused = semantics == Fp8Semantics::guarded;
      if (is_fused && name.ends_with(".warm")) continue;
      const ValueAndVjp result = value_and_vjp(
          [&](Inputs in) {
            return fp8::fp8_scaled_dot_general(
                in[0], in[1], dims_of(c), {in[2], in[4], in[6], in[3], in[5], in[7]},
                {.preferred_element_type = compute_of(c),
                 .quantize_compute_type = is_fused ? DType::f32 : compute_of(c),
                 .semantics = semantics});
          },
          inputs, at("g"));
      expect_equal(result.value, at("out"), name);
      expect_equal(result.grads[0], at("grads.0"), name + " lhs");
      expect_equal(result.grads[1], at("grads.1"), name + " rhs");
      for (std::size_t i = 0; i < 6; ++i) {
        const std::string meta = fmt::format("grads.{}.{}", 2 + i / 2, i % 2);
        expect_golden(result.grads[2 + i], at(meta), name + "." + meta);
      }
    }
  });
}

TEST(RulesGolden, QuantizedDot) {
  for_cases(
      "quantized_dot", 3, [](const FlaxGolden& golden, const Json& c, const std::string& name) {
        const auto at = [&](const std::string& what) { return golden.at(name + "." + what); };
        const Tensor q_lhs = at("lhs").astype(DType::f8_e4m3),
                     q_rhs = at("rhs").astype(DType::f8_e4m3);
        const ValueAndVjp result = value_and_vjp(
            [&](Inputs in) {
              return fp8::quantized_dot({in[0], q_lhs, in[2], in[1], q_rhs, in[3], in[4], in[5]},
                                        dims_of(c), compute_of(c), fp8::kOcp, kExact);
            },
            std::vector{at("lhs"), at("rhs"), at("lhs_scale"), at("rhs_scale"), at("grad_scale"),
                        at("grad_history")},
            at("g"));
        expect_equal(result.value, at("out"), name);
        for (std::size_t i = 0; i < 6; ++i) {
          const std::string gradient = fmt::format("grads.{}", i);
          expect_equal(result.grads[i], at(gradient), name + "." + gradient);
        }
      });
}

}  // namespace
}  // namespace octavo::testing
