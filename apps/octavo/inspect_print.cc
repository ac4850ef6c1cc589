// `inspect` for people, tensor parallelism aside.
#include <algorithm>
#include <map>

#include "inspect.h"
#include "inspect_groups.h"
#include "octavo/checkpoint/names.h"

namespace octavo::app {
namespace {

constexpr std::size_t kShownEntries = 12;

std::string scale_words(const Inspection& inspection, std::size_t tensor) {
  const Pairing& pairing = inspection.pairing;
  if (pairing.roles[tensor] != Pairing::Role::weight) return "";
  const QuantizedWeight& weight = pairing.weights[pairing.weight_of[tensor]];
  if (!weight.scale) return "none";
  const TensorInfo& scale = inspection.checkpoint.tensors[*weight.scale].info;
  const ScaleLayout& layout = weight.layout;
  std::string words = fmt::format("{} {}, {}", dtype_name(scale.dtype),
                                  octavo::to_string(scale.shape), octavo::to_string(layout.block));
  const BlockSize edge = edge_block(weight);
  if (!(edge == layout.block)) words += fmt::format(" (edge {})", octavo::to_string(edge));
  return words;
}

void print_rows(const Inspection& inspection, bool all) {
  const Checkpoint& checkpoint = inspection.checkpoint;
  std::vector<std::size_t> shown;
  std::vector<std::string> names;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    // A scale is shown beside its weight.
    if (!all && inspection.pairing.roles[i] == Pairing::Role::scale) continue;
    const TensorInfo& info = checkpoint.tensors[i].info;
    shown.push_back(i);
    names.push_back(info.name);
    keys.push_back(fmt::format("{}\n{}\n{}", format_of(inspection, i),
                               octavo::to_string(info.shape), scale_words(inspection, i)));
  }
  const std::vector<NameGroup> groups = group_names(names, keys, all);
  std::vector<std::vector<std::string>> cells;
  for (const NameGroup& group : groups) {
    const std::size_t first = shown[group.members.front()];
    std::uint64_t bytes = 0;
    for (const std::size_t member : group.members)
      bytes += checkpoint.tensors[shown[member]].info.bytes;
    cells.push_back({std::to_string(group.members.size()), format_of(inspection, first),
                     octavo::to_string(checkpoint.tensors[first].info.shape), human_bytes(bytes),
                     scale_words(inspection, first), std::string(role_of(inspection, first))});
  }
  print_table(groups, "tensor",
              {{"count", true}, {"dtype"}, {"shape"}, {"size", true}, {"scale, block"}, {"role"}},
              cells);
}

void print_config(const QuantConfig& config) {
  if (!config.present) {
    print_out("config: no quantization_config\n");
    return;
  }
  std::string words = fmt::format("quant_method {}, {}", config.quant_method,
                                  config.weight_block_size
                                      ? "blocks of " + octavo::to_string(*config.weight_block_size)
                                      : "no weight_block_size");
  const auto add = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) words += fmt::format(", {} {}", key, value);
  };
  add("quant_algo", config.quant_algo);
  add("format", config.format);
  if (!config.weight_block_size) add("strategy", config.strategy);
  add("fmt", config.fmt);
  add("scale_fmt", config.scale_fmt);
  add("activations", config.activation_scheme);
  add("expert_dtype", config.expert_dtype);
  print_out("config: {} ({})\n", printable(words), config.file);
}

void print_skip_list(const SkipListCheck& check, bool all) {
  if (check.origin.empty()) return;
  print_out("skip list: {} {} of {}{}; tensors that each names:\n", check.entries.size(),
            check.entries.size() == 1 ? "entry" : "entries", check.origin,
            check.unused == 0 ? "" : fmt::format(", {} without a tensor", check.unused));
  const std::size_t shown =
      all ? check.entries.size() : std::min(check.entries.size(), kShownEntries);
  for (std::size_t i = 0; i < shown; ++i) {
    const SkipEntry& entry = check.entries[i];
    const std::string written =
        entry.normalized == entry.entry ? "" : fmt::format("  (written {})", entry.entry);
    print_out("  {:>5}  {}{}\n", entry.tensors, printable(entry.normalized), printable(written));
  }
  if (shown < check.entries.size())
    print_out("  and {} more: --all\n", check.entries.size() - shown);
}

}  // namespace

std::string format_of(const Inspection& inspection, std::size_t tensor) {
  const Pairing& pairing = inspection.pairing;
  const DType dtype = inspection.checkpoint.tensors[tensor].info.dtype;
  const bool packed = pairing.roles[tensor] == Pairing::Role::weight &&
                      pairing.weights[pairing.weight_of[tensor]].format == Format::e2m1fn &&
                      dtype != DType::f4;
  return packed ? fmt::format("{} (FP4x2)", dtype_name(dtype)) : std::string(dtype_name(dtype));
}

std::string_view role_of(const Inspection& inspection, std::size_t tensor) {
  const Pairing::Role role = inspection.pairing.roles[tensor];
  if (role == Pairing::Role::scale) return "scale";
  if (role == Pairing::Role::activation_scale) return "activation scale";
  return tensor_role(inspection.checkpoint.tensors[tensor].info.name);
}

std::vector<DTypeTotal> dtype_totals(const Inspection& inspection) {
  std::map<std::string, DTypeTotal> by_name;
  for (std::size_t i = 0; i < inspection.checkpoint.tensors.size(); ++i) {
    DTypeTotal& total = by_name[format_of(inspection, i)];
    ++total.tensors;
    total.bytes += inspection.checkpoint.tensors[i].info.bytes;
  }
  std::vector<DTypeTotal> totals;
  for (auto& [name, total] : by_name) {
    total.name = name;
    totals.push_back(std::move(total));
  }
  return totals;
}

BlockSize edge_block(const QuantizedWeight& weight) {
  const Matrices m = as_matrices(weight.shape);
  const auto edge = [](std::uint64_t extent, std::uint64_t block) {
    return extent % block == 0 ? block : extent % block;
  };
  return {edge(m.rows, weight.layout.block.rows), edge(m.cols, weight.layout.block.cols)};
}

void print_inspection(const Inspection& inspection, bool all) {
  const Checkpoint& checkpoint = inspection.checkpoint;
  const Pairing& pairing = inspection.pairing;
  print_rows(inspection, all);
  print_out("\n{} tensors in {} {}, {}\n", checkpoint.tensors.size(), checkpoint.shards.size(),
            checkpoint.shards.size() == 1 ? "file" : "files", human_bytes(checkpoint.tensor_bytes));
  for (const DTypeTotal& total : dtype_totals(inspection)) {
    print_out("  {:<12} {:>7} tensors  {:>9}\n", total.name, total.tensors,
              human_bytes(total.bytes));
  }
  print_out("{} quantized weights, {} scales, {} unpaired\n", count_quantized(pairing),
            count_scales(pairing), pairing.unpaired_weights + pairing.unpaired_scales);
  print_config(checkpoint.quantization);
  print_skip_list(inspection.skip_list, all);
  for (const ConfigFact& fact : inspection.facts) {
    if (!fact.contradicts) print_out("note: {}\n", fact.message);
  }
  if (const auto line = unlisted_line(checkpoint, inspection.skip_list))
    print_out("note: {}\n", printable(*line));
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < std::min(kShown, inspection.problems.size()); ++i)
    print_warning(inspection.problems[i]);
  if (inspection.problems.size() > kShown) {
    print_warning(
        fmt::format("and {} more; octavo verify lists all", inspection.problems.size() - kShown));
  }
  for (const ConfigFact& fact : inspection.facts) {
    if (fact.contradicts) print_warning(fact.message);
  }
  for (const auto& line : {unused_entries_line(inspection.skip_list),
                           quantized_line(checkpoint, inspection.skip_list)})
    if (line) print_warning(*line);
}

}  // namespace octavo::app
