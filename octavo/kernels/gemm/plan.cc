#include "octavo/kernels/gemm/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "octavo/base/ceil_div.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/layout.h"

namespace octavo::kernels {
namespace {

// Rows that are multiplied together at most: their chunk of activations (256 KiB) and the totals of
// a few strips stay in L2. A multiple of kPanelRows.
constexpr std::size_t kMostRows = 528;

// Products with fewer multiply-adds than this (some 10 us on one thread) are not shared.
constexpr double kSharedFrom = 1 << 20;

// The most rows for which decoding in registers wins.
//   fma  weights are decoded once for all rows by the tiled kernel, ten rows at a time by the fused
//        one; measured crossing on Emerald Rapids: 7 rows with 8-bit weights, 11 with bf16 and f32,
//        which cost little to decode
//   dot  decoding hides under vdpbf16ps where that is fast: 127 rows in passes (Zen 5)
//   avx2 passes of up to six rows; measured crossing at twelve
std::size_t most_fused_rows(Isa isa, Arithmetic arithmetic, Format weight_format) {
  if (isa == Isa::avx2) return 11;
  if (arithmetic == Arithmetic::dot) return 127;
  return bits_per_element(weight_format) == 8 ? 7 : 10;
}

bool takes_dot(const GemmProblem& problem, Isa isa) {
  return isa == Isa::avx512bf16 && is_exact_in_bf16(problem.activation_format) &&
         problem.weight_format != Format::f32;
}

// Strips that go through K together: as many as their totals leave room for in half of L2, where
// the activations do not fit there as a whole. One strip reads weights in one stream.
std::size_t strips_together(std::size_t rows, std::size_t k, std::size_t l2_bytes) {
  const std::size_t room = l2_bytes / 2;
  if (rows * k * sizeof(float) <= room) return 1;
  const std::size_t activations = rows * kChunk * sizeof(float);
  const std::size_t totals = rows * kStrip * sizeof(float);
  if (room <= activations + totals) return 1;
  return std::min<std::size_t>((room - activations) / totals, 16);
}

// The largest share of one of `threads` threads, in pieces of `step`, over an even share.
double imbalance(std::size_t count, std::size_t step, int threads) {
  const std::size_t pieces = ceil_div(count, step), n = static_cast<std::size_t>(threads);
  return static_cast<double>(ceil_div(pieces, n) * step * n) / static_cast<double>(count);
}

void share(GemmPlan& plan, const GemmProblem& problem, int threads) {
  const double work = static_cast<double>(problem.m) * static_cast<double>(problem.n) *
                      static_cast<double>(problem.k);
  plan.split = GemmSplit::columns;
  plan.split_step = 1;
  plan.threads = 1;
  if (threads <= 1 || work < kSharedFrom) return;
  const std::size_t all = strips(problem.n);
  // 128 columns share scales and lines of C; where that leaves threads idle, single strips.
  plan.split_step = imbalance(all, 4, threads) < 1.1 ? 4 : 1;
  plan.threads = static_cast<int>(
      std::min<std::size_t>(static_cast<std::size_t>(threads), ceil_div(all, plan.split_step)));
  const bool by_rows =
      plan.shape == GemmShape::tiled && problem.m >= 2 * kPanelRows &&
      imbalance(problem.m, kPanelRows, threads) < imbalance(all, plan.split_step, threads);
  if (by_rows) {
    plan.split = GemmSplit::rows;
    plan.split_step = kPanelRows;
    plan.threads = static_cast<int>(
        std::min<std::size_t>(static_cast<std::size_t>(threads), ceil_div(problem.m, kPanelRows)));
  }
}

}  // namespace

bool is_exact_in_bf16(Format format) {
  return format == Format::bf16 || bits_per_element(format) == 8;
}

GemmPlan plan_gemm(const GemmProblem& problem, const GemmMachine& machine) {
  return plan_gemm(problem, machine, nullptr, nullptr);
}

GemmPlan plan_gemm(const GemmProblem& problem, const GemmMachine& machine, const GemmShape* shape,
                   const Arithmetic* arithmetic) {
  GemmPlan plan{};
  plan.isa = machine.isa;
  plan.arithmetic = arithmetic != nullptr                                 ? *arithmetic
                    : machine.fast_dot && takes_dot(problem, machine.isa) ? Arithmetic::dot
                                                                          : Arithmetic::fma;
  if (plan.arithmetic == Arithmetic::dot && !takes_dot(problem, machine.isa)) {
    throw ContractError(
        fmt::format("plan_gemm: given dot on {} with {} weights and {} activations, expected "
                    "avx512bf16, 8-bit or "
                    "bf16 weights, activations that bf16 holds exactly",
                    isa_name(machine.isa), format_name(problem.weight_format),
                    format_name(problem.activation_format)));
  }
  if (machine.isa == Isa::generic) {
    plan.shape = GemmShape::plain;
  } else if (shape != nullptr) {
    plan.shape = *shape;
  } else {
    const bool few =
        problem.m <= most_fused_rows(machine.isa, plan.arithmetic, problem.weight_format);
    plan.shape = few ? GemmShape::fused : GemmShape::tiled;
  }
  if ((plan.shape == GemmShape::plain) != (machine.isa == Isa::generic) ||
      (shape != nullptr && *shape != plan.shape)) {
    throw ContractError(fmt::format("plan_gemm: {} has no such kernel, expected {}",
                                    isa_name(machine.isa),
                                    machine.isa == Isa::generic ? "plain" : "fused or tiled"));
  }
  share(plan, problem, machine.threads);
  const std::size_t parts =
      plan.split == GemmSplit::rows ? static_cast<std::size_t>(plan.threads) : 1;
  // The longest share of a split by rows, so that it is one chunk.
  const std::size_t rows =
      parts == 1 ? problem.m : ceil_div(ceil_div(problem.m, kPanelRows), parts) * kPanelRows;
  plan.row_chunk = std::max<std::size_t>(
      1,
      std::min(rows, ceil_div(ceil_div(rows, ceil_div(rows, kMostRows)), kPanelRows) * kPanelRows));
  const std::size_t columns_threads =
      plan.split == GemmSplit::columns ? static_cast<std::size_t>(plan.threads) : 1;
  plan.group = plan.shape == GemmShape::tiled
                   ? std::min(strips_together(plan.row_chunk, problem.k, machine.l2_bytes),
                              ceil_div(strips(problem.n), columns_threads))
                   : 1;
  return plan;
}

GemmMachine gemm_machine(Isa isa, int threads) {
  static const long l2 =
      ::sysconf(_SC_LEVEL2_CACHE_SIZE);  // once: older libraries ask the processor
  constexpr std::size_t kUsual = 1 << 20;
  return {isa, cpu_features().fast_bf16_dot, l2 > 0 ? static_cast<std::size_t>(l2) : kUsual,
          threads};
}

std::string kernel_name(const GemmPlan& plan) {
  const char* shape = plan.shape == GemmShape::plain   ? "plain"
                      : plan.shape == GemmShape::fused ? "fused"
                                                       : "tiled";
  return fmt::format("{}_{}_{}", isa_name(plan.isa), shape,
                     plan.arithmetic == Arithmetic::dot ? "dot" : "fma");
}

std::string explain(const GemmPlan& plan, const GemmProblem& problem, const GemmMachine& machine) {
  std::string why;
  if (plan.shape == GemmShape::plain) {
    why = "The generic level has the scalar specification only.";
  } else if (plan.shape == GemmShape::fused) {
    why = fmt::format("Up to {} rows: weights are decoded in registers, reading them is the limit.",
                      most_fused_rows(plan.isa, plan.arithmetic, problem.weight_format));
  } else {
    why = fmt::format(
        "More than {} rows: weights are decoded once to a panel in L1, arithmetic is the limit.",
        most_fused_rows(plan.isa, plan.arithmetic, problem.weight_format));
  }
  if (plan.isa == Isa::avx512bf16 && plan.arithmetic == Arithmetic::dot) {
    why += " vdpbf16ps: this processor does it at twice the rate of f32 multiply-adds.";
  } else if (plan.isa == Isa::avx512bf16) {
    why += !takes_dot(problem, plan.isa)
               ? " f32 multiply-adds: an operand is f32, which vdpbf16ps cannot take."
           : machine.fast_dot ? " f32 multiply-adds: as asked."
                              : " f32 multiply-adds: vdpbf16ps is not faster on this processor, "
                                "and gives the same bits.";
  }
  if (plan.threads == 1) {
    why += machine.threads == 1 ? " One thread is allowed." : " Too small to share among threads.";
  } else if (plan.split == GemmSplit::columns) {
    why += fmt::format(" {} threads share the columns in multiples of {}.", plan.threads,
                       plan.split_step * kStrip);
  } else {
    why += fmt::format(" {} threads share the rows in multiples of {}: too few columns.",
                       plan.threads, plan.split_step);
  }
  if (plan.group > 1) {
    why += fmt::format(" {} columns go through K together, so that activations are read from L2.",
                       plan.group * kStrip);
  }
  return why;
}

}  // namespace octavo::kernels
