// The table of `octavo bench`, and its JSON.
#pragma once

#include <optional>
#include <span>

#include "bench_case.h"
#include "octavo/base/json.h"

namespace octavo::app {

struct BenchRow {
  BenchCase row;
  PairFigures figures;          // no valid pair: no figure, also where the check failed
  std::optional<double> error;  // of the check; nothing: there was none, or it failed
};

void print_bench_table(const BenchContext& context, std::span<const BenchRow> rows);
OrderedJson bench_json(const BenchContext& context, std::span<const BenchRow> rows);

}  // namespace octavo::app
