#include "octavo/kernels/select.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace octavo::kernels {
namespace {

TEST(Select, GenericIsAlwaysBuilt) {
  EXPECT_TRUE(is_built(Isa::generic));
  EXPECT_STREQ(cast_kernels(Isa::generic).name, "generic");
}

TEST(Select, ALevelThatCannotRunIsRefused) {
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512bf16}) {
    if (is_built(isa) && supports(cpu_features(), isa)) {
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
    for (const Isa level : {Isa::generic, Isa::avx2, Isa::avx512bf16}) {
      const bool usable = is_built(level) && supports(cpu_features(), level);
      EXPECT_TRUE(!usable || *isa >= level) << isa_name(level);
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
