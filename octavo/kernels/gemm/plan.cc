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

// A call costs some 0.26 us for each further thread that spins (docs/decisions/008), so that each
// thread gets at least five times that, 1.3 us of work: a call of two threads then costs at most a
// fifth of what it saves. Five, since other processors are up to three times as fast as the rates
// below, and there it must still pay.
constexpr double kHandOffNs = 0.26e3;
constexpr double kLeastShareNs = 5 * kHandOffNs;

// One thread, measured on Emerald Rapids: weights read from memory, f32 multiply-adds.
constexpr double kWeightBytesPerNs = 16;
constexpr double kMultiplyAddsPerNs = 80;

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

// Strips that go through K together: as many of those at hand as their totals leave room for in
// half of L2, where the activations do not fit there as a whole. One strip reads weights in one
// stream.
std::size_t strips_together(std::size_t at_hand, std::size_t rows, std::size_t k,
                            std::size_t l2_bytes) {
  const std::size_t room = l2_bytes / 2;
  if (rows * k * sizeof(float) <= room) return 1;
  const std::size_t activations = rows * kChunk * sizeof(float);
  const std::size_t totals = rows * kStrip * sizeof(float);
  if (room <= activations + totals) return 1;
  const std::size_t most = std::min<std::size_t>((room - activations) / totals, 16);
  return std::clamp<std::size_t>(at_hand, 1, most);
}

constexpr const char* shape_name(GemmShape shape) {
  return shape == GemmShape::plain ? "plain" : shape == GemmShape::fused ? "fused" : "tiled";
}

// The threads that get at least kLeastShareNs each. Weights are read once and decoded beside, so
// that bytes count however few rows there are.
int threads_worth_calling(const GemmProblem& problem, int most) {
  const double weights = static_cast<double>(problem.n) * static_cast<double>(problem.k);
  const double bytes = weights * static_cast<double>(bytes_per_element(problem.weight_format));
  const double ns =
      bytes / kWeightBytesPerNs + weights * static_cast<double>(problem.m) / kMultiplyAddsPerNs;
  return static_cast<int>(std::clamp(ns / kLeastShareNs, 1.0, static_cast<double>(most)));
}

// The largest share of one of `threads` threads, in pieces of `step`, over an even share.
double imbalance(std::size_t count, std::size_t step, int threads) {
  const std::size_t pieces = ceil_div(count, step), n = static_cast<std::size_t>(threads);
  return static_cast<double>(ceil_div(pieces, n) * step * n) / static_cast<double>(count);
}

void share(GemmPlan& plan, const GemmProblem& problem, int threads) {
  plan.split = GemmSplit::columns;
  plan.split_step = 1;
  plan.threads = 1;
  threads = threads_worth_calling(problem, threads);
  if (threads <= 1) return;
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

// Rows that are packed and multiplied together: equal chunks of the largest share of a thread, cut
// between panels.
std::size_t row_chunk(const GemmPlan& plan, std::size_t m) {
  std::size_t rows = std::max<std::size_t>(m, 1);
  if (plan.split == GemmSplit::rows) {
    const std::size_t panels = ceil_div(rows, kPanelRows);
    const std::size_t share = ceil_div(panels, static_cast<std::size_t>(plan.threads));
    rows = std::min(rows, share * kPanelRows);
  }
  const std::size_t even = ceil_div(rows, ceil_div(rows, kMostRows));
  return std::min(rows, ceil_div(even, kPanelRows) * kPanelRows);
}

}  // namespace

bool is_exact_in_bf16(Format format) {
  return format == Format::bf16 || bits_per_element(format) == 8;
}

GemmPlan plan_gemm(const GemmProblem& problem, const GemmMachine& machine,
                   std::optional<GemmShape> shape, std::optional<Arithmetic> arithmetic) {
  GemmPlan plan{};
  plan.isa = machine.isa;
  const bool dot = machine.fast_dot && takes_dot(problem, machine.isa);
  plan.arithmetic = arithmetic.value_or(dot ? Arithmetic::dot : Arithmetic::fma);
  if (plan.arithmetic == Arithmetic::dot && !takes_dot(problem, machine.isa)) {
    throw ContractError(
        fmt::format("plan_gemm: given dot on {} with {} weights and {} activations, expected "
                    "avx512bf16, 8-bit or bf16 "
                    "weights, activations that bf16 holds exactly",
                    isa_name(machine.isa), format_name(problem.weight_format),
                    format_name(problem.activation_format)));
  }
  const bool few =
      problem.m <= most_fused_rows(machine.isa, plan.arithmetic, problem.weight_format);
  const bool plain = machine.isa == Isa::generic;
  plan.shape = shape.value_or(plain ? GemmShape::plain : few ? GemmShape::fused : GemmShape::tiled);
  if ((plan.shape == GemmShape::plain) != plain) {
    throw ContractError(fmt::format("plan_gemm: given {} on {}, expected {}",
                                    shape_name(plan.shape), isa_name(machine.isa),
                                    plain ? "plain" : "fused or tiled"));
  }
  share(plan, problem, machine.threads);
  plan.row_chunk = row_chunk(plan, problem.m);
  const std::size_t columns_threads =
      plan.split == GemmSplit::columns ? static_cast<std::size_t>(plan.threads) : 1;
  plan.group = plan.shape == GemmShape::tiled
                   ? strips_together(ceil_div(strips(problem.n), columns_threads), plan.row_chunk,
                                     problem.k, machine.l2_bytes)
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
  return fmt::format("{}_{}_{}", isa_name(plan.isa), shape_name(plan.shape),
                     plan.arithmetic == Arithmetic::dot ? "dot" : "fma");
}

std::string explain(const GemmPlan& plan, const GemmProblem& problem, const GemmMachine& machine) {
  std::string why;
  const std::size_t fused_rows = most_fused_rows(plan.isa, plan.arithmetic, problem.weight_format);
  if (plan.shape == GemmShape::plain) {
    why = "The generic level has the scalar specification only.";
  } else if ((plan.shape == GemmShape::fused) != (problem.m <= fused_rows)) {
    why = fmt::format("{}: as asked.", shape_name(plan.shape));
  } else if (plan.shape == GemmShape::fused) {
    why = fmt::format("Up to {} rows: weights are decoded in registers, reading them is the limit.",
                      fused_rows);
  } else {
    why = fmt::format(
        "More than {} rows: weights are decoded once to a panel in L1, arithmetic is the limit.",
        fused_rows);
  }
  if (plan.isa == Isa::avx512bf16 && plan.arithmetic == Arithmetic::dot) {
    why += machine.fast_dot
               ? " vdpbf16ps: this processor does it at twice the rate of f32 multiply-adds."
               : " vdpbf16ps: as asked.";
  } else if (plan.isa == Isa::avx512bf16) {
    why += !takes_dot(problem, plan.isa)
               ? " f32 multiply-adds: an operand is f32, which vdpbf16ps cannot take."
           : machine.fast_dot ? " f32 multiply-adds: as asked."
                              : " f32 multiply-adds: vdpbf16ps is not faster on this processor, "
                                "and gives the same bits.";
  }
  if (plan.threads == 1) {
    const bool too_small = threads_worth_calling(problem, machine.threads) == 1;
    why += machine.threads == 1 ? " One thread is allowed."
           : too_small          ? " Too small to share among threads."
                                : " Too few columns and rows to share among threads.";
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
