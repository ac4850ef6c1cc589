// From cases to rows: each is checked, measured, and checked again.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "bench_case.h"
#include "octavo/base/steady_seconds.h"

namespace octavo::app {

struct BenchRow {
  BenchCase row;
  PairFigures figures;          // no valid pair: no figure, also where the result is wrong
  std::optional<double> error;  // of the check; nothing: there was none, or the result is wrong
  std::string wrong;            // where it is: kernel, index, expected and given, in one line
};

struct RunRules {
  Clock clock = steady_seconds;
  // Whether the machine runs so many threads at once at this moment (bench_roof.h).
  std::function<bool(BenchContext&, int threads)> scales;
  std::function<void(std::size_t done)> progress;
  std::function<void(const std::string&)> warn;  // of rows that are left out
};

// In all, rows drop at most so many pairs for each that they take, and `pairs` a row beyond.
inline constexpr int kDropsPerPair = 20;

// An error: a request that makes no sense. Rows that this machine cannot measure are left out.
Result<std::vector<BenchRow>> measure_rows(const std::vector<BenchCase>& cases,
                                           BenchContext& context, const RunRules& rules);

// "gemm 8x512x512 e4m3fn x bf16 by avx512bf16_tiled_fma, 1 thread"
std::string row_words(const BenchCase& row);

std::string shape_words(const BenchCase& row);  // "8x512x512"; "-" without sizes

}  // namespace octavo::app
