// `inspect --tp` for people.
#include <algorithm>

#include <fmt/ranges.h>

#include "inspect.h"
#include "inspect_groups.h"
#include "octavo/checkpoint/names.h"

namespace octavo::app {
namespace {

constexpr std::size_t kShownReasons = 8;

std::string split_words(const SplitRow& row) {
  return fmt::format("{}{}", row.expert && row.split != Split::unknown ? "expert " : "",
                     to_string(row.split));
}

std::string verdict_words(const SplitResult& result) {
  switch (result.verdict) {
    case SplitVerdict::does_not_divide:
      return "no";
    case SplitVerdict::blocks_cut:
      return fmt::format("cut: {}", result.shard);
    case SplitVerdict::works:
      break;
  }
  return "works";
}

std::string degrees_words(const std::vector<std::uint64_t>& degrees) {
  return degrees.empty() ? "none" : fmt::format("{}", fmt::join(degrees, ", "));
}

// What refuses the degree at `d`, a line for each kind of module.
void print_degree(const TensorParallelPlan& plan, const std::vector<NameGroup>& groups,
                  std::size_t d) {
  std::size_t refused = 0;
  std::size_t cut = 0;
  std::vector<std::string> lines;
  for (const NameGroup& group : groups) {
    const SplitResult& result = plan.rows[group.members.front()].results[d];
    if (result.verdict == SplitVerdict::works) continue;
    refused += group.members.size();
    if (result.verdict == SplitVerdict::blocks_cut) cut += group.members.size();
    lines.push_back(fmt::format("  {}: {}", module_name(group.name), result.reason));
  }
  if (refused == 0) {
    print_out("tp {}: works everywhere\n", plan.degrees[d]);
    return;
  }
  print_out("tp {}: refused by {} of {} modules ({} do not divide, {} cut blocks)\n",
            plan.degrees[d], refused, plan.rows.size(), refused - cut, cut);
  const std::size_t shown = std::min(lines.size(), kShownReasons);
  for (std::size_t i = 0; i < shown; ++i) print_out("{}\n", lines[i]);
  if (shown < lines.size()) print_out("  and {} more kinds\n", lines.size() - shown);
}

}  // namespace

void print_tensor_parallel(const Inspection& inspection, bool all) {
  const TensorParallelPlan& plan = *inspection.tensor_parallel;
  std::vector<std::string> names;
  std::vector<std::string> keys;
  std::vector<Column> columns = {{"shape"}, {"split"}, {"block", true}};
  for (const std::uint64_t degree : plan.degrees) columns.push_back({fmt::format("tp {}", degree)});
  std::vector<std::vector<std::string>> cells_of_row;
  for (const SplitRow& row : plan.rows) {
    const TensorInfo& info = inspection.checkpoint.tensors[row.tensor].info;
    std::vector<std::string> cells = {octavo::to_string(info.shape), split_words(row),
                                      row.block == 0 ? "" : std::to_string(row.block)};
    for (const SplitResult& result : row.results) cells.push_back(verdict_words(result));
    names.push_back(info.name);
    keys.push_back(fmt::format("{}", fmt::join(cells, "\n")));
    cells_of_row.push_back(std::move(cells));
  }
  const std::vector<NameGroup> groups = group_names(names, keys, all);
  std::vector<std::vector<std::string>> cells;
  for (const NameGroup& group : groups) cells.push_back(cells_of_row[group.members.front()]);

  print_out("\n");
  print_table(groups, "tensor parallel", columns, cells);
  print_out("\n");
  bool cuts = false;
  for (std::size_t d = 0; d < plan.degrees.size(); ++d) {
    print_degree(plan, groups, d);
    cuts = cuts || std::ranges::any_of(plan.rows, [&](const SplitRow& row) {
             return row.results[d].verdict == SplitVerdict::blocks_cut;
           });
  }
  if (cuts) {
    print_out(
        "Where blocks are cut, engines that need whole blocks (vLLM, SGLang, Transformers) "
        "refuse;\n"
        "every shard that carries the scales of each block it touches works.\n");
  }
  if (std::ranges::any_of(plan.rows,
                          [](const SplitRow& row) { return row.split == Split::unknown; })) {
    print_out("unknown: no rule for the name, taken as whole on every device.\n");
  }
  for (const std::string& note : plan.notes) print_out("note: {}\n", note);
  print_out("degrees up to {} that work everywhere: {}\n", kMaxListedDegree,
            degrees_words(plan.working));
  if (!plan.cutting.empty())
    print_out("degrees up to {} that divide, but cut blocks: {}\n", kMaxListedDegree,
              degrees_words(plan.cutting));
}

}  // namespace octavo::app
