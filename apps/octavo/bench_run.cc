#include "bench_run.h"

#include <fmt/format.h>

#include "octavo/base/words.h"

namespace octavo::app {
namespace {

PairRules pair_rules(const BenchCase& row, const PreparedCase& prepared, BenchContext& context,
                     const RunRules& rules, int drops_left) {
  const int pairs = context.request.pairs;
  PairRules result{.pairs = pairs, .most_pairs = most_pairs(pairs, drops_left)};
  if (context.request.quick) result.least_seconds = 1e-3;
  result.settle = prepared.settle;
  if (row.threads > 1) result.undisturbed = [&] { return rules.scales(context, row.threads); };
  return result;
}

BenchRow measure(const BenchCase& row, const PreparedCase& prepared, const PairRules& rules,
                 const Clock& clock) {
  BenchRow measured{row, {}, {}, {}};
  const auto is_right = [&](const Checked& checked) {
    if (checked) {
      measured.error = *checked;
      return true;
    }
    measured.error.reset();
    measured.figures = {};
    measured.wrong = fmt::format("wrong result: {}: {}", row_words(row), checked.error());
    return false;
  };
  if (prepared.check && !is_right(prepared.check())) return measured;
  if (prepared.poison) prepared.poison();
  measured.figures = measure_pairs(prepared.kernel, prepared.roof, rules, clock);
  if (prepared.recheck) is_right(prepared.recheck());
  return measured;
}

}  // namespace

std::string shape_words(const BenchCase& row) {
  std::string words;
  for (const std::uint64_t size : {row.m, row.n, row.k}) {
    if (size != 0) words += fmt::format("{}{}", words.empty() ? "" : "x", size);
  }
  return words.empty() ? "-" : words;
}

std::string row_words(const BenchCase& row) {
  return fmt::format("{} {} {} by {}, {}", row.op, shape_words(row), row.formats, row.kernel,
                     counted(static_cast<std::uint64_t>(row.threads), "thread"));
}

Result<std::vector<BenchRow>> measure_rows(const std::vector<BenchCase>& cases,
                                           BenchContext& context, const RunRules& rules) {
  std::vector<BenchRow> rows;
  int drops_left = kDropsPerPair * context.request.pairs;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    rules.progress(i);
    const BenchCase& row = cases[i];
    const Result<PreparedCase> prepared = row.prepare(context);
    if (!prepared) {
      if (prepared.error().code != ErrorCode::unsupported) return std::unexpected(prepared.error());
      rules.warn(fmt::format("{}: left out: {}", row_words(row), prepared.error().message));
      continue;
    }
    rows.push_back(measure(row, *prepared, pair_rules(row, *prepared, context, rules, drops_left),
                           rules.clock));
    drops_left -= rows.back().figures.dropped;
  }
  return rows;
}

}  // namespace octavo::app
