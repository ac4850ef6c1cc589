#include "bench_print.h"

#include <algorithm>
#include <array>

#include "command.h"
#include "octavo/base/machine.h"

namespace octavo::app {
namespace {

// "op  shape  formats  threads  kernel  value  roof  quartiles  share"
constexpr std::size_t kColumns = 9;
using Cells = std::array<std::string, kColumns>;
constexpr std::array<bool, kColumns> kRightAligned = {false, true, false, true, false,
                                                      true,  true, true,  true};

std::string shape_words(const BenchCase& row) {
  std::string words;
  for (const std::uint64_t size : {row.m, row.n, row.k}) {
    if (size != 0) words += fmt::format("{}{}", words.empty() ? "" : "x", size);
  }
  return words.empty() ? "-" : words;
}

Cells cells_of(const BenchRow& measured, int pairs) {
  const BenchCase& row = measured.row;
  Cells cells = {
      row.op, shape_words(row), row.formats, std::to_string(row.threads), row.kernel, "-", "-", "-",
      "-"};
  const PairFigures& figures = measured.figures;
  if (figures.valid == 0) return cells;
  cells[5] = fmt::format("{:.2f} {}", figures.value, row.unit);
  if (row.roof.empty()) return cells;
  const Quartiles& share = figures.share;
  cells[6] = fmt::format("{} {:.2f}", row.roof, figures.roof_value);
  cells[7] = fmt::format("{:.1f} to {:.1f}", 100 * share.low, 100 * share.high);
  if (figures.valid < pairs) cells[7] = fmt::format("(of {}) {}", figures.valid, cells[7]);
  cells[8] = fmt::format("{:.1f} %", 100 * share.median);
  return cells;
}

OrderedJson size_or_null(std::uint64_t size) {
  return size == 0 ? OrderedJson(nullptr) : OrderedJson(size);
}

}  // namespace

void print_bench_table(const BenchContext& context, std::span<const BenchRow> rows) {
  print_out("{}, {} allowed, kernels {}, {}\n", cpu_features().model,
            counted(static_cast<std::uint64_t>(allowed_threads().threads), "thread"),
            isa_name(context.isa), build_words());
  print_out("medians of {} pairs; streaming operations go through {}\n\n", context.request.pairs,
            human_bytes(static_cast<double>(context.memory_bytes)));
  std::vector<Cells> lines = {
      {"op", "shape", "formats", "threads", "kernel", "value", "roof", "quartiles", "share"}};
  for (const BenchRow& row : rows) lines.push_back(cells_of(row, context.request.pairs));
  std::array<std::size_t, kColumns> widths{};
  for (const Cells& cells : lines) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  for (const Cells& cells : lines) {
    std::string line;
    for (std::size_t i = 0; i < kColumns; ++i) {
      if (i > 0) line += "  ";
      line += kRightAligned[i] ? fmt::format("{:>{}}", cells[i], widths[i])
                               : fmt::format("{:<{}}", cells[i], widths[i]);
    }
    print_out("{}\n", line);
  }
}

OrderedJson bench_json(const BenchContext& context, std::span<const BenchRow> rows) {
  OrderedJson results = OrderedJson::array();
  for (const BenchRow& measured : rows) {
    const BenchCase& row = measured.row;
    OrderedJson result = {{"op", row.op},
                          {"m", size_or_null(row.m)},
                          {"n", size_or_null(row.n)},
                          {"k", size_or_null(row.k)},
                          {"formats", row.formats},
                          {"threads", row.threads},
                          {"kernel", row.kernel},
                          {"value", nullptr},
                          {"unit", row.unit},
                          {"roof", nullptr},
                          {"roof_value", nullptr},
                          {"share", nullptr},
                          {"spread", nullptr},
                          {"error", nullptr}};
    if (measured.error) result["error"] = *measured.error;
    const PairFigures& figures = measured.figures;
    if (figures.valid > 0) result["value"] = figures.value;
    if (!row.roof.empty()) {
      result["roof"] = row.roof;
      if (figures.valid > 0) {
        result["roof_value"] = figures.roof_value;
        result["share"] = figures.share.median;
        result["spread"] = {figures.share.low, figures.share.high};
      }
    }
    results.push_back(std::move(result));
  }
  return {{"machine",
           {{"processor", cpu_features().model},
            {"threads", allowed_threads().threads},
            {"kernels", isa_name(context.isa)},
            {"build", build_words()}}},
          {"results", std::move(results)}};
}

}  // namespace octavo::app
