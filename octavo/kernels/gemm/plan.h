// Which kernel multiplies, in which pieces: a pure function of problem and machine, so that it can
// be tested for any machine, printed (`octavo info --op gemm`) and explained. It never changes a
// bit of the result (order C of gemm.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "octavo/base/cpu_features.h"
#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels {

enum class GemmShape : std::uint8_t {
  plain,  // the scalar specification
  fused,  // weights decoded in registers: few rows
  tiled,  // weights decoded to a panel in L1: many rows
};

struct GemmProblem {
  std::size_t m, n, k;
  Format weight_format;
  Format activation_format;
};

struct GemmMachine {
  Isa isa;
  bool fast_dot;         // vdpbf16ps gives more than f32 multiply-adds
  std::size_t l2_bytes;  // of one core
  int threads;           // that may be used
};

// Threads share the columns (strips of 32) or the rows of the product.
enum class GemmSplit : std::uint8_t { columns, rows };

struct GemmPlan {
  Isa isa;
  GemmShape shape;
  Arithmetic arithmetic;
  std::size_t row_chunk;  // rows that are packed and multiplied together
  std::size_t group;      // GemmArgs::group
  GemmSplit split;
  std::size_t split_step;  // strips (columns) or rows (rows) that stay together
  int threads;
  bool operator==(const GemmPlan&) const = default;
};

// With a given shape or arithmetic, where tests and benchmarks ask for one.
// ContractError: the level has no such kernel, or it does not take these formats.
GemmPlan plan_gemm(const GemmProblem& problem, const GemmMachine& machine,
                   std::optional<GemmShape> shape = {}, std::optional<Arithmetic> arithmetic = {});

// This machine, with the level of kernels that is selected (select.h).
GemmMachine gemm_machine(Isa isa, int threads);

// "avx512bf16_fused_fma"
std::string kernel_name(const GemmPlan& plan);

// Why this plan: a few short sentences.
std::string explain(const GemmPlan& plan, const GemmProblem& problem, const GemmMachine& machine);

// Whether bf16 holds every value of the format, so that Arithmetic::dot may take it as activation.
bool is_exact_in_bf16(Format format);

}  // namespace octavo::kernels
