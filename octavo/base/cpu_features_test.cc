#include "octavo/base/cpu_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octavo {
namespace {

using testing::HasSubstr;

CpuFeatures haswell() {
  CpuFeatures f{};
  f.model = "a Haswell";
  f.avx2 = f.fma = f.f16c = f.os_saves_ymm = true;
  return f;
}

CpuFeatures sapphire_rapids() {
  CpuFeatures f = haswell();
  f.model = "a Sapphire Rapids";
  f.avx512f = f.avx512bw = f.avx512vl = f.avx512dq = f.avx512vbmi = f.avx512bf16 = f.os_saves_zmm =
      true;
  return f;
}

TEST(CpuFeatures, BestLevelOfMadeUpMachines) {
  EXPECT_EQ(best_isa(CpuFeatures{}), Isa::generic);
  EXPECT_EQ(best_isa(haswell()), Isa::avx2);
  EXPECT_EQ(best_isa(sapphire_rapids()), Isa::avx512bf16);
}

TEST(CpuFeatures, EveryFeatureOfALevelIsNeeded) {
  for (const auto feature :
       {&CpuFeatures::avx2, &CpuFeatures::fma, &CpuFeatures::f16c, &CpuFeatures::os_saves_ymm}) {
    CpuFeatures f = sapphire_rapids();
    f.*feature = false;
    EXPECT_EQ(best_isa(f), Isa::generic);
  }
  for (const auto feature : {&CpuFeatures::avx512f, &CpuFeatures::avx512bw, &CpuFeatures::avx512vl,
                             &CpuFeatures::avx512dq, &CpuFeatures::avx512vbmi,
                             &CpuFeatures::avx512bf16, &CpuFeatures::os_saves_zmm}) {
    CpuFeatures f = sapphire_rapids();
    f.*feature = false;
    EXPECT_EQ(best_isa(f), Isa::avx2);
  }
}

TEST(CpuFeatures, UnforcedChoiceIsTheBest) {
  EXPECT_EQ(choose_isa(haswell(), nullptr), Isa::avx2);
  EXPECT_EQ(choose_isa(sapphire_rapids(), ""), Isa::avx512bf16);
}

TEST(CpuFeatures, ForcedChoiceMayBeLower) {
  EXPECT_EQ(choose_isa(sapphire_rapids(), "generic"), Isa::generic);
  EXPECT_EQ(choose_isa(sapphire_rapids(), "avx2"), Isa::avx2);
  EXPECT_EQ(choose_isa(sapphire_rapids(), "avx512bf16"), Isa::avx512bf16);
}

TEST(CpuFeatures, ForcedButLackingIsAnError) {
  CpuFeatures no_bf16 = sapphire_rapids();
  no_bf16.avx512bf16 = false;
  const Result<Isa> isa = choose_isa(no_bf16, "avx512bf16");
  ASSERT_FALSE(isa);
  EXPECT_EQ(isa.error().code, ErrorCode::bad_value);
  EXPECT_THAT(isa.error().message, HasSubstr("OCTAVO_CPU=avx512bf16"));
  EXPECT_THAT(isa.error().message, HasSubstr("a Sapphire Rapids"));
  EXPECT_THAT(isa.error().message, HasSubstr("avx2"));

  CpuFeatures zmm_not_saved = sapphire_rapids();
  zmm_not_saved.os_saves_zmm = false;
  EXPECT_FALSE(choose_isa(zmm_not_saved, "avx512bf16"));
}

TEST(CpuFeatures, UnknownNameIsAnError) {
  for (const char* name : {"avx512", "AVX2", "avx2 ", "sse"}) {
    const Result<Isa> isa = choose_isa(sapphire_rapids(), name);
    ASSERT_FALSE(isa) << name;
    EXPECT_EQ(isa.error().code, ErrorCode::bad_value);
    EXPECT_THAT(isa.error().message, HasSubstr(name));
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
// The compiler's own detection, which also asks the operating system.
TEST(CpuFeatures, ThisMachineAgreesWithTheCompiler) {
  const CpuFeatures& f = cpu_features();
  __builtin_cpu_init();
  EXPECT_EQ(f.avx2 && f.os_saves_ymm, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(f.avx512f && f.os_saves_zmm, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(f.avx512vbmi && f.os_saves_zmm, __builtin_cpu_supports("avx512vbmi") != 0);
  EXPECT_EQ(f.avx512bf16 && f.os_saves_zmm, __builtin_cpu_supports("avx512bf16") != 0);
  EXPECT_FALSE(f.model.empty());
}
#endif

TEST(CpuFeatures, NamesAreThoseOfTheEnvironmentVariable) {
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512bf16}) {
    EXPECT_EQ(choose_isa(sapphire_rapids(), isa_name(isa)), isa);
  }
}

}  // namespace
}  // namespace octavo
