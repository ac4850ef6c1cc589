// Plans are functions of a problem and a machine: tested here for machines of all kinds.
#include "octavo/kernels/gemm/plan.h"
#include "octavo/base/ceil_div.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/layout.h"

namespace octavo::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr GemmMachine kIntel{Isa::avx512bf16, false, 2 * kMiB, 1};
constexpr GemmMachine kZen{Isa::avx512bf16, true, kMiB, 1};
constexpr GemmMachine kHaswell{Isa::avx2, false, kMiB / 4, 1};
constexpr GemmMachine kNehalem{Isa::generic, false, kMiB / 4, 1};

GemmProblem problem(std::size_t m, Format w = Format::e4m3fn, Format a = Format::bf16,
                    std::size_t n = 4096, std::size_t k = 4096) {
  return {m, n, k, w, a};
}

std::string name(const GemmProblem& p, const GemmMachine& machine) {
  return kernel_name(plan_gemm(p, machine));
}

TEST(GemmPlan, KernelByLevelRowsAndFormats) {
  const struct {
    GemmProblem problem;
    GemmMachine machine;
    const char* kernel;
  } rows[] = {
      {problem(1), kNehalem, "generic_plain_fma"},
      {problem(512), kNehalem, "generic_plain_fma"},
      {problem(11), kHaswell, "avx2_fused_fma"},
      {problem(12), kHaswell, "avx2_tiled_fma"},
      {problem(7), kIntel, "avx512bf16_fused_fma"},
      {problem(8), kIntel, "avx512bf16_tiled_fma"},
      {problem(10, Format::bf16), kIntel, "avx512bf16_fused_fma"},
      {problem(11, Format::bf16), kIntel, "avx512bf16_tiled_fma"},
      {problem(1), kZen, "avx512bf16_fused_dot"},
      {problem(127, Format::e5m2, Format::e4m3fn), kZen, "avx512bf16_fused_dot"},
      {problem(128), kZen, "avx512bf16_tiled_dot"},
      {problem(128, Format::e4m3fn, Format::f32), kZen, "avx512bf16_tiled_fma"},
      {problem(1, Format::f32, Format::bf16), kZen, "avx512bf16_fused_fma"},
      {problem(1, Format::bf16, Format::bf16), kZen, "avx512bf16_fused_dot"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(name(row.problem, row.machine), row.kernel)
        << row.problem.m << " rows, " << format_name(row.problem.weight_format);
  }
}

TEST(GemmPlan, ThreadsShareColumnsAndRowsWhereColumnsAreFew) {
  GemmMachine machine = kIntel;
  machine.threads = 2;
  GemmPlan plan = plan_gemm(problem(1), machine);
  EXPECT_EQ(plan.threads, 2);
  EXPECT_EQ(plan.split, GemmSplit::columns);
  EXPECT_EQ(plan.split_step, 4u);
  plan = plan_gemm(problem(1, Format::e4m3fn, Format::bf16, 576, 4096), machine);
  EXPECT_EQ(plan.split_step, 1u) << "5 pieces of 128 leave a thread idle";
  machine.threads = 64;
  plan = plan_gemm(problem(4096, Format::e4m3fn, Format::bf16, 64), machine);
  EXPECT_EQ(plan.split, GemmSplit::rows);
  EXPECT_EQ(plan.split_step, kPanelRows);
  plan = plan_gemm(problem(1, Format::e4m3fn, Format::bf16, 64, 64), machine);
  EXPECT_EQ(plan.threads, 1) << "too small";
}

TEST(GemmPlan, RowsAreCutToPanelsAndGroupsToL2) {
  EXPECT_EQ(plan_gemm(problem(1), kIntel).row_chunk, 1u);
  EXPECT_EQ(plan_gemm(problem(528), kIntel).row_chunk, 528u);
  EXPECT_EQ(plan_gemm(problem(529), kIntel).row_chunk, 288u);
  EXPECT_EQ(plan_gemm(problem(32), kIntel).group, 1u) << "activations fit in L2 as they are";
  const GemmPlan large = plan_gemm(problem(512), kIntel), small = plan_gemm(problem(512), kHaswell);
  EXPECT_GT(large.group, 1u);
  EXPECT_EQ(small.group, 1u);
}

RC_GTEST_PROP(GemmPlan, HoldsItsBoundsOnAnyMachine, ()) {
  const GemmMachine machine{
      *rc::gen::element(Isa::generic, Isa::avx2, Isa::avx512bf16), *rc::gen::arbitrary<bool>(),
      *rc::gen::inRange<std::size_t>(1, 64) * (kMiB / 8), *rc::gen::inRange(1, 200)};
  const GemmProblem p{*rc::gen::inRange<std::size_t>(1, 5000),
                      *rc::gen::inRange<std::size_t>(1, 9000),
                      *rc::gen::inRange<std::size_t>(1, 9000),
                      *rc::gen::element(Format::e4m3fn, Format::bf16, Format::f32),
                      *rc::gen::element(Format::e5m2, Format::bf16, Format::f32)};
  const GemmPlan plan = plan_gemm(p, machine);
  RC_ASSERT(plan == plan_gemm(p, machine));
  RC_ASSERT(plan.threads >= 1 && plan.threads <= machine.threads);
  RC_ASSERT(plan.row_chunk >= 1 && plan.row_chunk <= 528);
  RC_ASSERT(plan.row_chunk >= p.m || plan.row_chunk % kPanelRows == 0);
  const std::size_t units = plan.split == GemmSplit::columns ? strips(p.n) : p.m;
  RC_ASSERT(static_cast<std::size_t>(plan.threads) <= ceil_div(units, plan.split_step));
  const bool exact = is_exact_in_bf16(p.activation_format) && p.weight_format != Format::f32;
  RC_ASSERT(plan.arithmetic == Arithmetic::fma ||
            (exact && machine.fast_dot && machine.isa == Isa::avx512bf16));
  RC_ASSERT(plan.group >= 1);
  if (plan.group > 1) {  // totals of the group and a chunk of activations, in half of L2
    RC_ASSERT(plan.row_chunk * (plan.group * kStrip + kChunk) * sizeof(float) <=
              machine.l2_bytes / 2);
  }
}

TEST(GemmPlan, ExplainsItself) {
  const auto words = [](const GemmProblem& p, const GemmMachine& machine) {
    return explain(plan_gemm(p, machine), p, machine);
  };
  EXPECT_THAT(words(problem(1), kIntel),
              AllOf(HasSubstr("Up to 7 rows"), HasSubstr("vdpbf16ps is not faster"),
                    HasSubstr("One thread is allowed")));
  EXPECT_THAT(words(problem(512), kZen),
              AllOf(HasSubstr("More than 127 rows"), HasSubstr("vdpbf16ps: this processor")));
  EXPECT_THAT(words(problem(1, Format::e4m3fn, Format::f32), kZen), HasSubstr("an operand is f32"));
  EXPECT_THAT(words(problem(1), kHaswell), Not(HasSubstr("vdpbf16ps")));
  EXPECT_THAT(words(problem(1), kNehalem), HasSubstr("scalar specification"));
}

TEST(GemmPlan, ForcesAndRefuses) {
  const GemmShape tiled = GemmShape::tiled, plain = GemmShape::plain;
  const Arithmetic dot = Arithmetic::dot;
  EXPECT_EQ(kernel_name(plan_gemm(problem(1), kIntel, &tiled, &dot)), "avx512bf16_tiled_dot");
  EXPECT_THROW(plan_gemm(problem(1), kIntel, &plain, nullptr), ContractError);
  EXPECT_THROW(plan_gemm(problem(1), kNehalem, &tiled, nullptr), ContractError);
  EXPECT_THROW(plan_gemm(problem(1), kHaswell, nullptr, &dot), ContractError);
  try {
    plan_gemm(problem(1, Format::e4m3fn, Format::f32), kZen, nullptr, &dot);
    ADD_FAILURE() << "f32 activations by vdpbf16ps";
  } catch (const ContractError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("plan_gemm: given dot"), HasSubstr("expected")));
  }
}

}  // namespace
}  // namespace octavo::kernels
