#include "bench_print.h"

#include <algorithm>
#include <array>

#include "command.h"
#include "octavo/base/machine.h"

namespace octavo::app {
namespace {

// One table: a line for each operation, size of the weight and unit, and its rows below.
//
//   "m  formats  thr  kernel  value  roof  quartiles  share"
constexpr std::size_t kColumns = 8;
using Cells = std::array<std::string, kColumns>;
constexpr std::array<bool, kColumns> kRightAligned = {true, false, true, false,
                                                      true, true,  true, true};
constexpr std::size_t kQuartiles = 6, kShare = 7;

// What the rows below a line share.
std::string group_words(const BenchCase& row) {
  BenchCase weight = row;
  weight.m = 0;
  const std::string sizes = shape_words(weight);
  return fmt::format("{}{}", row.op, sizes == "-" ? "" : fmt::format("  {}", sizes)) +
         (row.op == "roof" ? "" : fmt::format("  {}", row.unit));
}

// The level stands above the table.
std::string short_kernel(std::string_view name, std::string_view level) {
  if (name.starts_with(level) && name.size() > level.size()) name.remove_prefix(level.size() + 1);
  return std::string(name);
}

Cells cells_of(const BenchContext& context, const BenchRow& measured) {
  const BenchCase& row = measured.row;
  Cells cells = {row.m == 0 ? "" : std::to_string(row.m),
                 row.formats,
                 std::to_string(row.threads),
                 short_kernel(row.kernel, isa_name(context.isa)),
                 "",
                 "",
                 "",
                 ""};
  const PairFigures& figures = measured.figures;
  if (figures.valid == 0) {
    cells[kShare] = measured.wrong.empty() ? "not measured" : "wrong result";
    return cells;
  }
  cells[4] = fmt::format("{:.1f}", figures.value);
  if (row.op == "roof") cells[5] = row.unit;
  if (row.roof.empty()) return cells;
  const Quartiles& share = figures.share;
  cells[5] = fmt::format("{} {:.1f}", row.roof, figures.roof_value);
  cells[kQuartiles] = fmt::format("{:.0f}-{:.0f}{}", 100 * share.low, 100 * share.high,
                                  figures.valid < context.request.pairs ? "*" : "");
  cells[kShare] = fmt::format("{:.1f} %", 100 * share.median);
  return cells;
}

std::string line_of(const Cells& cells, const std::array<std::size_t, kColumns>& widths) {
  std::string line;
  for (std::size_t i = 0; i < kColumns; ++i) {
    // Words instead of a share may begin where the quartiles would be.
    if (i == kQuartiles && cells[i].empty()) continue;
    std::size_t width = widths[i];
    if (i == kShare && cells[kQuartiles].empty()) width += widths[kQuartiles] + 2;
    line += kRightAligned[i] ? fmt::format("  {:>{}}", cells[i], width)
                             : fmt::format("  {:<{}}", cells[i], width);
  }
  return line;
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
            human_bytes(context.memory_bytes));
  const Cells head = {"m", "formats", "thr", "kernel", "value", "roof", "quartiles", "share"};
  std::vector<Cells> lines;
  for (const BenchRow& row : rows) lines.push_back(cells_of(context, row));
  std::array<std::size_t, kColumns> widths{};
  for (std::size_t i = 0; i < kColumns; ++i) {
    widths[i] = head[i].size();
    for (const Cells& cells : lines) {
      if (i != kShare || !cells[kQuartiles].empty())
        widths[i] = std::max(widths[i], cells[i].size());
    }
  }
  print_out("{}\n", line_of(head, widths));
  std::string group;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string words = group_words(rows[i].row);
    if (words != group) print_out("{}\n", words);
    group = words;
    print_out("{}\n", line_of(lines[i], widths));
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
                          {"pairs", measured.figures.valid},
                          {"dropped", measured.figures.dropped},
                          {"error", nullptr},
                          {"wrong", nullptr}};
    if (!measured.wrong.empty()) result["wrong"] = measured.wrong;
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
