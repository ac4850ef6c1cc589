// The table of `octavo bench`, and its JSON.
#pragma once

#include <span>

#include "bench_run.h"
#include "octavo/base/json.h"

namespace octavo::app {

void print_bench_table(const BenchContext& context, std::span<const BenchRow> rows);
OrderedJson bench_json(const BenchContext& context, std::span<const BenchRow> rows);

}  // namespace octavo::app
