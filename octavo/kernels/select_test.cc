#include "octavo/kernels/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "octavo/kernels/gemm/gemm_internal.h"

namespace octavo::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Isa kLevels[] = {Isa::generic, Isa::avx2, Isa::avx512bf16};

bool is_usable(Isa isa) { return is_built(isa) && supports(cpu_features(), isa); }

TEST(Select, GenericIsAlwaysBuilt) {
  EXPECT_TRUE(is_built(Isa::generic));
  EXPECT_STREQ(cast_kernels(Isa::generic).name, "generic");
}

TEST(Select, ALevelThatCannotRunIsRefused) {
  for (const Isa isa : kLevels) {
    if (is_usable(isa)) {
      EXPECT_STREQ(cast_kernels(isa).name, isa_name(isa));
      EXPECT_STREQ(transformer_kernels(isa).name, isa_name(isa));
    } else {
      EXPECT_THROW(cast_kernels(isa), ContractError);
      EXPECT_THROW(transformer_kernels(isa), ContractError);
    }
  }
}

TEST(Select, TheForcedLevelIsTheActiveOne) {
  const char* forced = std::getenv("OCTAVO_CPU");
  const Result<Isa> isa = selected_isa();
  ASSERT_TRUE(isa) << isa.error().message;
  EXPECT_STREQ(cast_kernels().name, isa_name(*isa));
  if (forced != nullptr && *forced != '\0') {
    EXPECT_EQ(std::string(isa_name(*isa)), forced);
  } else {
    for (const Isa level : kLevels) {
      EXPECT_TRUE(!is_usable(level) || *isa >= level) << isa_name(level);
    }
  }
}

// The lines of gemm_manifest.inc, written out.
constexpr struct {
  Isa isa;
  GemmShape shape;
  Arithmetic arithmetic;
} kProducts[] = {
    {Isa::generic, GemmShape::plain, Arithmetic::fma},
    {Isa::avx2, GemmShape::fused, Arithmetic::fma},
    {Isa::avx2, GemmShape::tiled, Arithmetic::fma},
    {Isa::avx512bf16, GemmShape::fused, Arithmetic::fma},
    {Isa::avx512bf16, GemmShape::fused, Arithmetic::dot},
    {Isa::avx512bf16, GemmShape::tiled, Arithmetic::fma},
    {Isa::avx512bf16, GemmShape::tiled, Arithmetic::dot},
};

GemmFunction function_of(Isa isa, GemmShape shape, Arithmetic arithmetic) {
#define OCTAVO_GEMM_KERNEL(level, form, how)                                          \
  if (isa == Isa::level && shape == GemmShape::form && arithmetic == Arithmetic::how) \
    return level::gemm_##form##_##how;
#include "octavo/kernels/gemm/gemm_manifest.inc"
#undef OCTAVO_GEMM_KERNEL
  return nullptr;
}

TEST(Select, AProductIsTheOneThatThePlanNames) {
  for (const Isa isa : kLevels) {
    for (const GemmShape shape : {GemmShape::plain, GemmShape::fused, GemmShape::tiled}) {
      for (const Arithmetic arithmetic : {Arithmetic::fma, Arithmetic::dot}) {
        GemmPlan plan{};
        plan.isa = isa;
        plan.shape = shape;
        plan.arithmetic = arithmetic;
        bool exists = false;
        for (const auto& product : kProducts) {
          exists |= product.isa == isa && product.shape == shape &&
                    product.arithmetic == arithmetic && is_usable(isa);
        }
        if (exists) {
          EXPECT_EQ(gemm_kernel(plan), function_of(isa, shape, arithmetic)) << kernel_name(plan);
          EXPECT_NE(gemm_kernel(plan), nullptr) << kernel_name(plan);
          continue;
        }
        try {
          gemm_kernel(plan);
          ADD_FAILURE() << kernel_name(plan) << " was not refused";
        } catch (const ContractError& error) {
          EXPECT_THAT(error.what(), AllOf(StartsWith("gemm_kernel: given " + kernel_name(plan)),
                                          HasSubstr(", expected one that is built")));
        }
      }
    }
  }
}

TEST(Select, EveryPlanOfAUsableLevelHasItsProduct) {
  for (const Isa isa : kLevels) {
    if (!is_usable(isa)) continue;
    for (const bool fast_dot : {false, true}) {
      for (const std::size_t m : {1, 16, 600}) {
        for (const Format format : {Format::e4m3fn, Format::bf16, Format::f32}) {
          const GemmPlan plan =
              plan_gemm({m, 4096, 4096, format, format}, {isa, fast_dot, std::size_t{1} << 20, 2});
          EXPECT_NE(gemm_kernel(plan), nullptr) << kernel_name(plan);
        }
      }
    }
  }
}

TEST(Select, PackingIsThatOfTheLevel) {
  std::set<decltype(PackKernels::pack_weights)> seen;
  for (const Isa isa : kLevels) {
    if (is_usable(isa)) {
      const PackKernels& kernels = pack_kernels(isa);
      EXPECT_NE(kernels.pack_weights, nullptr);
      EXPECT_TRUE(seen.insert(kernels.pack_weights).second) << isa_name(isa) << ": another level's";
      EXPECT_NE(kernels.unpack_weights, nullptr);
      EXPECT_NE(kernels.pack_activations, nullptr);
      continue;
    }
    try {
      pack_kernels(isa);
      ADD_FAILURE() << isa_name(isa) << " was not refused";
    } catch (const ContractError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(StartsWith(std::string("pack_kernels: given ") + isa_name(isa)),
                        HasSubstr(", expected one that is built")));
    }
  }
}

// The choice is made once per process, so the refusals are seen in processes of their own.
void exit_with_refusal(const char* forced) {
  setenv("OCTAVO_CPU", forced, 1);
  const Result<Isa> isa = selected_isa();
  bool threw = false;
  try {
    cast_kernels();
  } catch (const ContractError&) {
    threw = true;
  }
  std::exit(!isa && isa.error().code == ErrorCode::bad_value && threw ? 0 : 1);
}

TEST(SelectDeathTest, AnUnknownLevelIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_refusal("avx1024"), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace octavo::kernels
