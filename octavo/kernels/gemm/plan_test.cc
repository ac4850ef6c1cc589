// Plans are functions of a problem and a machine: tested here for machines of all kinds.
#include "octavo/kernels/gemm/plan.h"
#include "octavo/base/ceil_div.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "octavo/base/thread_pool.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/layout.h"

namespace octavo::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr GemmMachine kIntel{Isa::avx512bf16, false, 2 * kMiB, 1};
constexpr GemmMachine kZen{Isa::avx512bf16, true, kMiB, 1};
constexpr GemmMachine kHaswell{Isa::avx2, false, 256 * kKiB, 1};
constexpr GemmMachine kNehalem{Isa::generic, false, 256 * kKiB, 1};
constexpr Format kOperands[] = {Format::e4m3fn,   Format::e5m2, Format::e4m3fnuz,
                                Format::e5m2fnuz, Format::bf16, Format::f32};

GemmMachine with_threads(GemmMachine machine, int threads) {
  machine.threads = threads;
  return machine;
}

GemmMachine with_l2(GemmMachine machine, std::size_t bytes) {
  machine.l2_bytes = bytes;
  return machine;
}

GemmProblem problem(std::size_t m, Format w = Format::e4m3fn, Format a = Format::bf16,
                    std::size_t n = 4096, std::size_t k = 4096) {
  return {m, n, k, w, a};
}

GemmProblem shaped(std::size_t m, std::size_t n, std::size_t k) {
  return {m, n, k, Format::e4m3fn, Format::bf16};
}

TEST(GemmPlan, KernelByLevelRowsAndFormats) {
  const struct {
    GemmProblem problem;
    GemmMachine machine;
    const char* kernel;
  } rows[] = {
      {problem(1), kNehalem, "generic_plain_fma"},
      {problem(512), kNehalem, "generic_plain_fma"},
      {problem(512, Format::f32, Format::f32), kNehalem, "generic_plain_fma"},
      {problem(1), kHaswell, "avx2_fused_fma"},
      {problem(11), kHaswell, "avx2_fused_fma"},
      {problem(12), kHaswell, "avx2_tiled_fma"},
      {problem(11, Format::bf16, Format::f32), kHaswell, "avx2_fused_fma"},
      {problem(12, Format::f32, Format::f32), kHaswell, "avx2_tiled_fma"},
      {problem(7), kIntel, "avx512bf16_fused_fma"},
      {problem(8), kIntel, "avx512bf16_tiled_fma"},
      {problem(10, Format::bf16), kIntel, "avx512bf16_fused_fma"},
      {problem(11, Format::bf16), kIntel, "avx512bf16_tiled_fma"},
      {problem(10, Format::f32, Format::f32), kIntel, "avx512bf16_fused_fma"},
      {problem(11, Format::f32, Format::f32), kIntel, "avx512bf16_tiled_fma"},
      {problem(1), kZen, "avx512bf16_fused_dot"},
      {problem(127, Format::e5m2, Format::e4m3fn), kZen, "avx512bf16_fused_dot"},
      {problem(128), kZen, "avx512bf16_tiled_dot"},
      {problem(127, Format::bf16), kZen, "avx512bf16_fused_dot"},
      {problem(128, Format::bf16), kZen, "avx512bf16_tiled_dot"},
      {problem(7, Format::e4m3fn, Format::f32), kZen, "avx512bf16_fused_fma"},
      {problem(8, Format::e4m3fn, Format::f32), kZen, "avx512bf16_tiled_fma"},
      {problem(1, Format::f32, Format::bf16), kZen, "avx512bf16_fused_fma"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(kernel_name(plan_gemm(row.problem, row.machine)), row.kernel)
        << row.problem.m << " rows, " << format_name(row.problem.weight_format);
  }
}

TEST(GemmPlan, DotTakesNoF32AndIsForFastMachinesOnly) {
  for (const Format w : kOperands) {
    for (const Format a : kOperands) {
      for (const std::size_t m : {1, 100, 500}) {
        const bool narrow = w != Format::f32 && a != Format::f32;
        EXPECT_EQ(plan_gemm(problem(m, w, a), kZen).arithmetic,
                  narrow ? Arithmetic::dot : Arithmetic::fma);
        for (const GemmMachine& machine : {kIntel, kHaswell, kNehalem}) {
          EXPECT_EQ(plan_gemm(problem(m, w, a), machine).arithmetic, Arithmetic::fma);
        }
      }
    }
  }
}

TEST(GemmPlan, ThreadsShareColumnsOrRows) {
  const auto columns = GemmSplit::columns, rows = GemmSplit::rows;
  const struct {
    GemmProblem problem;
    GemmMachine machine;
    int threads;  // allowed
    GemmSplit split;
    std::size_t step;
    int used;
  } table[] = {
      // Whole blocks of 128 columns where they come out even, else single strips.
      {problem(1), kIntel, 1, columns, 1, 1},
      {problem(1), kIntel, 2, columns, 4, 2},
      {problem(1), kHaswell, 8, columns, 4, 8},
      {problem(1), kNehalem, 8, columns, 4, 8},
      {problem(1), kIntel, 64, columns, 1, 64},
      {shaped(1, 576, 4096), kIntel, 2, columns, 1, 2},
      {shaped(1, 8192, 512), kZen, 64, columns, 4, 64},
      {shaped(1, 96, 65536), kIntel, 8, columns, 1, 3},
      // Few columns and many rows.
      {shaped(4096, 64, 4096), kIntel, 2, columns, 1, 2},
      {shaped(4096, 64, 4096), kIntel, 8, rows, 48, 8},
      {shaped(4096, 64, 4096), kHaswell, 64, rows, 48, 64},
      {shaped(500, 32, 4096), kIntel, 64, rows, 48, 11},
      {shaped(96, 32, 4096), kIntel, 2, rows, 48, 2},
      {shaped(95, 32, 4096), kIntel, 2, columns, 1, 1},
      {shaped(4096, 4096, 4096), kIntel, 8, columns, 4, 8},
      // A kernel that goes strip by strip, or decodes for ten rows at a time, never shares rows.
      {shaped(100, 32, 4096), kZen, 2, columns, 1, 1},
      {shaped(4096, 32, 4096), kNehalem, 8, columns, 1, 1},
      // Each thread gets 1.3 us at least: 1 ns for 16 bytes of weights and for 80 multiply-adds.
      {shaped(1, 64, 541), kIntel, 8, columns, 1, 1},
      {shaped(1, 64, 542), kIntel, 8, columns, 1, 2},
      {problem(1, Format::bf16, Format::bf16, 64, 295), kIntel, 8, columns, 1, 1},
      {problem(1, Format::bf16, Format::bf16, 64, 296), kIntel, 8, columns, 1, 2},
      {shaped(1, 256, 256), kIntel, 8, columns, 1, 3},
      {shaped(1, 1000, 1000), kIntel, 8, columns, 4, 8},
      {shaped(10, 64, 216), kHaswell, 8, columns, 1, 1},
      {shaped(10, 64, 217), kHaswell, 8, columns, 1, 2},
      {shaped(400, 32, 8), kIntel, 8, columns, 1, 1},
      {shaped(400, 32, 64), kIntel, 8, rows, 48, 7},
  };
  for (const auto& row : table) {
    const GemmPlan plan = plan_gemm(row.problem, with_threads(row.machine, row.threads));
    const auto p = row.problem;
    SCOPED_TRACE(testing::Message() << kernel_name(plan) << " " << p.m << " x " << p.n << " x "
                                    << p.k << ", " << row.threads << " threads");
    EXPECT_EQ(plan.split, row.split);
    EXPECT_EQ(plan.split_step, row.step);
    EXPECT_EQ(plan.threads, row.used);
  }
}

TEST(GemmPlan, RowsAreCutBetweenPanels) {
  const struct {
    std::size_t m, n;
    int threads;
    std::size_t chunk;
  } table[] = {
      {1, 4096, 1, 1},       {49, 4096, 1, 49},    {528, 4096, 1, 528}, {529, 4096, 1, 288},
      {1056, 4096, 1, 528},  {1057, 4096, 1, 384}, {528, 4096, 8, 528}, {529, 4096, 8, 288},
      {500, 32, 8, 96},      {96, 32, 2, 48},      {97, 32, 2, 96},     {4096, 64, 64, 96},
      {100'000, 32, 2, 528},
  };
  for (const auto& row : table) {
    const GemmPlan plan = plan_gemm(shaped(row.m, row.n, 4096), with_threads(kIntel, row.threads));
    EXPECT_EQ(plan.row_chunk, row.chunk) << row.m << " rows, " << row.threads << " threads";
  }
}

TEST(GemmPlan, StripsThatGoTogetherFillHalfOfL2) {
  const struct {
    std::size_t m, n, k, l2;
    std::size_t group;
  } table[] = {
      // 512 rows: a chunk of activations is 256 KiB, the totals of a strip 64 KiB.
      {512, 4096, 4096, 512 * kKiB, 1},
      {512, 4096, 4096, kMiB, 4},
      {512, 4096, 4096, 2 * kMiB, 12},
      // 256 rows: 128 and 32 KiB.
      {256, 4096, 4096, 512 * kKiB, 4},
      {256, 4096, 4096, kMiB, 12},
      {256, 4096, 4096, 2 * kMiB, 16},
      // All activations fit: 32 rows of 4096 are 512 KiB.
      {32, 4096, 4096, kMiB, 1},
      {32, 4096, 4097, kMiB, 16},
      {32, 4096, 4096, 2 * kMiB, 1},
      // Never more than there are.
      {256, 96, 4096, 2 * kMiB, 3},
  };
  for (const auto& row : table) {
    const GemmPlan plan = plan_gemm(shaped(row.m, row.n, row.k), with_l2(kIntel, row.l2));
    EXPECT_EQ(plan.group, row.group) << row.m << " rows, L2 of " << row.l2 / kKiB << " KiB";
  }
  EXPECT_EQ(plan_gemm(shaped(512, 512, 4096), with_threads(kIntel, 8)).group, 2u) << "16 / 8";
  EXPECT_EQ(plan_gemm(shaped(1, 4096, 4096), kIntel).group, 1u);
}

TEST(GemmPlan, NothingToMultiplyHasAPlan) {
  for (const GemmMachine& machine : {kIntel, kZen, kHaswell, kNehalem}) {
    for (const auto& p : {shaped(0, 64, 64), shaped(64, 0, 64), shaped(64, 64, 0)}) {
      const GemmPlan plan = plan_gemm(p, with_threads(machine, 8));
      EXPECT_EQ(plan.threads, 1);
      EXPECT_GE(plan.row_chunk, 1u);
      EXPECT_GE(plan.group, 1u);
    }
  }
}

GemmMachine any_machine() {
  return {*rc::gen::element(Isa::generic, Isa::avx2, Isa::avx512bf16), *rc::gen::arbitrary<bool>(),
          *rc::gen::element(256 * kKiB, 512 * kKiB, kMiB, 5 * kMiB / 4, 2 * kMiB, 8 * kMiB),
          *rc::gen::oneOf(rc::gen::element(1, 2, 8, 64), rc::gen::inRange(1, 200))};
}

GemmProblem any_problem() {
  const auto size = [](std::size_t most) {
    return *rc::gen::oneOf(rc::gen::inRange<std::size_t>(1, 150),
                           rc::gen::inRange<std::size_t>(1, most));
  };
  return {size(5000), size(9000), size(9000),
          *rc::gen::elementOf(std::vector<Format>(std::begin(kOperands), std::end(kOperands))),
          *rc::gen::elementOf(std::vector<Format>(std::begin(kOperands), std::end(kOperands)))};
}

RC_GTEST_PROP(GemmPlan, HoldsItsBoundsOnAnyMachine, ()) {
  const GemmMachine machine = any_machine();
  const GemmProblem p = any_problem();
  const GemmPlan plan = plan_gemm(p, machine);
  RC_ASSERT(plan == plan_gemm(p, machine));
  RC_ASSERT(plan.isa == machine.isa);
  RC_ASSERT(plan.threads >= 1 && plan.threads <= machine.threads);
  const bool narrow = is_exact_in_bf16(p.activation_format) && p.weight_format != Format::f32;
  RC_ASSERT((plan.arithmetic == Arithmetic::dot) ==
            (narrow && machine.fast_dot && machine.isa == Isa::avx512bf16));
  RC_ASSERT(plan.row_chunk >= 1 && plan.row_chunk <= 528);
  RC_ASSERT(plan.row_chunk == p.m || plan.row_chunk % kPanelRows == 0);
  RC_ASSERT(plan.group >= 1 && plan.group <= std::min<std::size_t>(16, strips(p.n)));
  RC_ASSERT(plan.group == 1 || plan.shape == GemmShape::tiled);
  RC_ASSERT(explain(plan, p, machine).ends_with("."));
  // Scratch, with the chunk of activations that several strips share, in half of L2.
  const std::size_t scratch = gemm_scratch_floats(plan.row_chunk, plan.group) * sizeof(float);
  const std::size_t activations = plan.row_chunk * kChunk * sizeof(float);
  const std::size_t panel = kChunk * kStrip * sizeof(float);
  RC_ASSERT(scratch <= machine.l2_bytes / 2 + panel);
  RC_ASSERT(plan.group == 1 || scratch + activations <= machine.l2_bytes / 2 + panel);
  // What a thread keeps, as octavo/ops/gemm.h says.
  RC_ASSERT(packed_activation_bytes(plan.arithmetic, plan.row_chunk, p.k) <=
            4 * ceil_div(p.k, kChunk) * kChunk * 528);
}

// The calls that octavo/ops makes for a plan: each strip of each row in exactly one of them.
RC_GTEST_PROP(GemmPlan, ReachesEveryStripOfEveryRowOnce, ()) {
  const GemmProblem p = any_problem();
  const GemmPlan plan = plan_gemm(p, any_machine());
  const bool by_rows = plan.split == GemmSplit::rows;
  const std::size_t units = by_rows ? p.m : strips(p.n);
  std::size_t next = 0;
  for (int part = 0; part < plan.threads; ++part) {
    const Range mine = split(units, plan.split_step, plan.threads, part);
    RC_ASSERT(mine.begin == next);
    RC_ASSERT(mine.end > mine.begin);  // no thread is called for nothing
    RC_ASSERT(mine.begin % plan.split_step == 0);
    next = mine.end;
    if (!by_rows) continue;
    for (std::size_t row = mine.begin; row < mine.end; row += plan.row_chunk) {
      RC_ASSERT(row % kPanelRows == 0);
    }
  }
  RC_ASSERT(next == units);
}

TEST(GemmPlan, ExplainsItself) {
  const auto words = [](const GemmProblem& p, const GemmMachine& machine) {
    return explain(plan_gemm(p, machine), p, machine);
  };
  EXPECT_THAT(words(problem(1), kIntel),
              AllOf(HasSubstr("Up to 7 rows"), HasSubstr("vdpbf16ps is not faster"),
                    HasSubstr("One thread is allowed"), Not(HasSubstr("go through K"))));
  EXPECT_THAT(words(problem(512), kZen),
              AllOf(HasSubstr("More than 127 rows"), HasSubstr("vdpbf16ps: this processor"),
                    HasSubstr("128 columns go through K together")));
  EXPECT_THAT(words(problem(1, Format::e4m3fn, Format::f32), kZen), HasSubstr("an operand is f32"));
  EXPECT_THAT(words(problem(1), kHaswell),
              AllOf(HasSubstr("Up to 11 rows"), Not(HasSubstr("vdpbf16ps"))));
  EXPECT_THAT(words(problem(1), kNehalem),
              AllOf(HasSubstr("scalar specification"), Not(HasSubstr("vdpbf16ps"))));
  EXPECT_THAT(words(problem(1), with_threads(kIntel, 2)),
              HasSubstr("2 threads share the columns in multiples of 128"));
  EXPECT_THAT(words(shaped(1, 576, 4096), with_threads(kIntel, 2)), HasSubstr("multiples of 32"));
  EXPECT_THAT(words(shaped(4096, 64, 4096), with_threads(kIntel, 8)),
              HasSubstr("8 threads share the rows in multiples of 48: too few columns"));
  EXPECT_THAT(words(shaped(1, 64, 64), with_threads(kIntel, 8)), HasSubstr("Too small to share"));
  EXPECT_THAT(words(shaped(1, 32, 65536), with_threads(kIntel, 8)),
              HasSubstr("Too few columns and rows to share"));
}

TEST(GemmPlan, ExplainsWhatWasAskedForAsAsked) {
  const GemmShape fused = GemmShape::fused, tiled = GemmShape::tiled;
  const Arithmetic fma = Arithmetic::fma, dot = Arithmetic::dot;
  const auto words = [](const GemmProblem& p, const GemmMachine& machine, GemmShape shape,
                        Arithmetic arithmetic) {
    return explain(plan_gemm(p, machine, shape, arithmetic), p, machine);
  };
  EXPECT_THAT(words(problem(500), kIntel, fused, fma), StartsWith("fused: as asked."));
  EXPECT_THAT(words(problem(1), kIntel, tiled, fma), StartsWith("tiled: as asked."));
  EXPECT_THAT(words(problem(1), kIntel, fused, dot),
              AllOf(StartsWith("Up to 127 rows"), HasSubstr("vdpbf16ps: as asked.")));
  EXPECT_THAT(words(problem(1), kZen, fused, fma), HasSubstr("multiply-adds: as asked."));
}

TEST(GemmPlan, ForcesShapeAndArithmetic) {
  const Arithmetic fma = Arithmetic::fma, dot = Arithmetic::dot;
  for (const GemmShape shape : {GemmShape::fused, GemmShape::tiled}) {
    for (const std::size_t m : {1, 500}) {
      for (const GemmMachine& machine : {kIntel, kZen}) {
        for (const Arithmetic arithmetic : {fma, dot}) {
          const GemmPlan plan = plan_gemm(problem(m), machine, shape, arithmetic);
          EXPECT_EQ(plan.shape, shape);
          EXPECT_EQ(plan.arithmetic, arithmetic);
        }
      }
      EXPECT_EQ(plan_gemm(problem(m), kHaswell, shape, fma).shape, shape);
    }
  }
  const GemmShape plain = GemmShape::plain;
  EXPECT_EQ(kernel_name(plan_gemm(problem(1), kNehalem, plain, fma)), "generic_plain_fma");
  const GemmShape tiled = GemmShape::tiled;
  EXPECT_EQ(kernel_name(plan_gemm(problem(1), kIntel, tiled, dot)), "avx512bf16_tiled_dot");
}

TEST(GemmPlan, RefusesWhatALevelLacks) {
  const GemmShape plain = GemmShape::plain, fused = GemmShape::fused, tiled = GemmShape::tiled;
  const Arithmetic dot = Arithmetic::dot;
  const struct {
    GemmProblem problem;
    GemmMachine machine;
    std::optional<GemmShape> shape;
    std::optional<Arithmetic> arithmetic;
    const char* given;
    const char* expected;
  } table[] = {
      {problem(1), kIntel, plain, {}, "given plain on avx512bf16", "expected fused or tiled"},
      {problem(1), kHaswell, plain, {}, "given plain on avx2", "expected fused or tiled"},
      {problem(1), kNehalem, fused, {}, "given fused on generic", "expected plain"},
      {problem(1), kNehalem, tiled, {}, "given tiled on generic", "expected plain"},
      {problem(1), kHaswell, {}, dot, "given dot on avx2", "expected avx512bf16"},
      {problem(1), kNehalem, {}, dot, "given dot on generic", "expected avx512bf16"},
      {problem(1, Format::e4m3fn, Format::f32),
       kZen,
       {},
       dot,
       "e4m3fn weights and f32 activations",
       "activations that bf16 holds"},
      {problem(1, Format::f32),
       kZen,
       {},
       dot,
       "f32 weights and bf16 activations",
       "8-bit or bf16 weights"},
  };
  for (const auto& row : table) {
    try {
      plan_gemm(row.problem, row.machine, row.shape, row.arithmetic);
      ADD_FAILURE() << "not refused: " << row.given;
    } catch (const ContractError& error) {
      EXPECT_THAT(error.what(), AllOf(StartsWith("plan_gemm: given "), HasSubstr(row.given),
                                      HasSubstr(", expected "), HasSubstr(row.expected)));
    }
  }
}

TEST(GemmPlan, OfThisMachineTakesItsL2AndTheLevelGiven) {
  const GemmMachine machine = gemm_machine(Isa::avx2, 3);
  EXPECT_EQ(machine.isa, Isa::avx2);
  EXPECT_EQ(machine.threads, 3);
  EXPECT_EQ(machine.fast_dot, cpu_features().fast_bf16_dot);
  EXPECT_GE(machine.l2_bytes, 64 * kKiB);
}

}  // namespace
}  // namespace octavo::kernels
