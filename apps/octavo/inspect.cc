#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "command.h"
#include "octavo/checkpoint/names.h"
#include "octavo/checkpoint/pairing.h"

namespace octavo::app {
namespace {

struct Arguments {
  std::string path;
  bool all = false;
  bool json = false;
  OpenOptions open;
};

constexpr const char* kFooter =
    R"(Reads headers only. Tensors of repeated layers and experts share a row, scales stand beside their
weights; --all lists each tensor.

Examples:
  octavo inspect Qwen3-0.6B-FP8
  octavo inspect DeepSeek-V3 --json | jq .summary)";

constexpr char kNumber = '\x01';  // where a number stood; printable names hold no such character

// A row of the listing: tensors that differ in numbers of their names alone.
struct Row {
  std::string name;  // numbers that vary are {first..last}
  std::string format;
  std::string shape;
  std::string scale;
  std::string role;
  std::size_t count = 0;
  std::uint64_t bytes = 0;
};

// Numbers in names compare as numbers: layer 2 before layer 10.
bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto number_end = [&](std::string_view text, std::size_t at) {
    while (at < text.size() && digit(text[at])) ++at;
    return at;
  };
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const std::string_view x = a.substr(i, number_end(a, i) - i);
      const std::string_view y = b.substr(j, number_end(b, j) - j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      i += x.size();
      j += y.size();
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

// "model.layers.11.mlp.experts.3.w1.weight" -> "model.layers.{}.mlp.experts.{}.w1.weight" and
// 11, 3.
std::string generalize(std::string_view name, std::vector<std::uint64_t>& numbers) {
  std::string pattern;
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    const std::string_view segment = name.substr(at, dot - at);
    const bool number = !segment.empty() && segment.size() < 10 &&
                        std::ranges::all_of(segment, [](char c) { return c >= '0' && c <= '9'; });
    if (number) {
      numbers.push_back(std::stoull(std::string(segment)));
      pattern += kNumber;
    } else {
      pattern += segment;
    }
    if (dot < name.size()) pattern += '.';
    at = dot + 1;
  }
  return pattern;
}

std::string format_of(const Checkpoint& checkpoint, const Pairing& pairing, std::size_t i) {
  const std::string_view dtype = dtype_name(checkpoint.tensors[i].info.dtype);
  const bool packed = pairing.roles[i] == Pairing::Role::weight &&
                      pairing.weights[pairing.weight_of[i]].format == Format::e2m1fn &&
                      checkpoint.tensors[i].info.dtype != DType::f4;
  return packed ? fmt::format("{} (FP4x2)", dtype) : std::string(dtype);
}

std::string_view role_of(const Checkpoint& checkpoint, const Pairing& pairing, std::size_t i) {
  if (pairing.roles[i] == Pairing::Role::scale) return "scale";
  if (pairing.roles[i] == Pairing::Role::activation_scale) return "activation scale";
  return tensor_role(checkpoint.tensors[i].info.name);
}

std::string scale_words(const Checkpoint& checkpoint, const Pairing& pairing, std::size_t i) {
  if (pairing.roles[i] != Pairing::Role::weight) return "";
  const QuantizedWeight& weight = pairing.weights[pairing.weight_of[i]];
  if (!weight.scale) return "none";
  const TensorInfo& scale = checkpoint.tensors[*weight.scale].info;
  return fmt::format("{} {}, {}", dtype_name(scale.dtype), to_string(scale.shape),
                     to_string(weight.layout.block));
}

std::vector<Row> rows_of(const Checkpoint& checkpoint, const Pairing& pairing, bool all) {
  struct Group {
    Row row;
    std::vector<std::uint64_t> least;
    std::vector<std::uint64_t> most;
  };
  std::vector<Group> groups;
  std::map<std::string, std::size_t> by_key;
  std::vector<std::size_t> order(checkpoint.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, natural_less, [&](std::size_t i) {
    return std::string_view(checkpoint.tensors[i].info.name);
  });
  for (const std::size_t i : order) {
    // A scale is shown beside its weight.
    if (!all && pairing.roles[i] == Pairing::Role::scale) continue;
    const TensorInfo& info = checkpoint.tensors[i].info;
    Row row{info.name,
            format_of(checkpoint, pairing, i),
            to_string(info.shape),
            scale_words(checkpoint, pairing, i),
            std::string(role_of(checkpoint, pairing, i)),
            1,
            info.bytes};
    std::vector<std::uint64_t> numbers;
    const std::string pattern = generalize(printable(info.name), numbers);
    row.name = printable(row.name);
    const std::string key =
        all ? info.name : fmt::format("{}\n{}\n{}\n{}", pattern, row.format, row.shape, row.scale);
    const auto [found, added] = by_key.emplace(key, groups.size());
    if (added) {
      if (!all) row.name = pattern;
      groups.push_back({std::move(row), numbers, numbers});
      continue;
    }
    Group& group = groups[found->second];
    ++group.row.count;
    group.row.bytes += info.bytes;
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      group.least[n] = std::min(group.least[n], numbers[n]);
      group.most[n] = std::max(group.most[n], numbers[n]);
    }
  }
  std::vector<Row> rows;
  for (Group& group : groups) {
    for (std::size_t n = 0; n < group.least.size() && !all; ++n) {
      const std::string range = group.least[n] == group.most[n]
                                    ? fmt::format("{}", group.least[n])
                                    : fmt::format("{{{}..{}}}", group.least[n], group.most[n]);
      group.row.name.replace(group.row.name.find(kNumber), 1, range);
    }
    rows.push_back(std::move(group.row));
  }
  return rows;
}

// "model.layers.{0..29}." of a row's name: its module that repeats; empty: none.
std::string_view repeated_prefix(std::string_view name) {
  const std::size_t end = name.find("}.");
  return name.substr(0, end == name.npos ? 0 : end + 2);
}

// Neighbours of one repeated module stand below its name, which keeps lines short.
void print_rows(const std::vector<Row>& rows) {
  struct Line {
    std::string_view above;
    std::string name;
    const Row* row;
  };
  std::vector<Line> lines;
  std::string_view prefix;
  std::size_t name = 6;
  std::size_t format = 5;
  std::size_t shape = 5;
  std::size_t scale = 12;
  for (const Row& row : rows) {
    const std::string_view own = repeated_prefix(row.name);
    const std::string_view above = own == prefix ? "" : own;
    prefix = own;
    lines.push_back({above, own.empty() ? row.name : "  " + row.name.substr(own.size()), &row});
    name = std::max(name, lines.back().name.size());
    format = std::max(format, row.format.size());
    shape = std::max(shape, row.shape.size());
    scale = std::max(scale, row.scale.size());
  }
  print_out("{:<{}}  {:>5}  {:<{}}  {:<{}}  {:>8}  {:<{}}  role\n", "tensor", name, "count",
            "dtype", format, "shape", shape, "size", "scale, block", scale);
  for (const Line& line : lines) {
    if (!line.above.empty()) print_out("{}\n", line.above);
    print_out("{:<{}}  {:>5}  {:<{}}  {:<{}}  {:>8}  {:<{}}  {}\n", line.name, name,
              line.row->count, line.row->format, format, line.row->shape, shape,
              human_bytes(static_cast<double>(line.row->bytes)), line.row->scale, scale,
              line.row->role);
  }
}

struct DTypeTotal {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
};

std::map<std::string, DTypeTotal> totals_of(const Checkpoint& checkpoint, const Pairing& pairing) {
  std::map<std::string, DTypeTotal> totals;
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    DTypeTotal& total = totals[format_of(checkpoint, pairing, i)];
    ++total.tensors;
    total.bytes += checkpoint.tensors[i].info.bytes;
  }
  return totals;
}

std::size_t scale_count(const Pairing& pairing) {
  return static_cast<std::size_t>(std::ranges::count(pairing.roles, Pairing::Role::scale)) +
         pairing.unpaired_scales;
}

void print_summary(const Checkpoint& checkpoint, const Pairing& pairing) {
  print_out("\n{} tensors in {} {}, {}\n", checkpoint.tensors.size(), checkpoint.shards.size(),
            checkpoint.shards.size() == 1 ? "file" : "files",
            human_bytes(static_cast<double>(checkpoint.tensor_bytes)));
  for (const auto& [dtype, total] : totals_of(checkpoint, pairing)) {
    print_out("  {:<12} {:>7} tensors  {:>9}\n", dtype, total.tensors,
              human_bytes(static_cast<double>(total.bytes)));
  }
  print_out("{} quantized weights, {} scales, {} unpaired\n",
            pairing.weights.size() + pairing.unpaired_weights, scale_count(pairing),
            pairing.unpaired_weights + pairing.unpaired_scales);
  const QuantConfig& config = checkpoint.quantization;
  if (!config.present) {
    print_out("config: no quantization_config\n");
  } else {
    print_out("config: quant_method {}, {}{}", printable(config.quant_method),
              config.weight_block_size ? "blocks of " + to_string(*config.weight_block_size)
                                       : "no weight_block_size",
              config.scale_fmt.empty() ? "" : ", scale_fmt " + printable(config.scale_fmt));
    if (!config.skip_key.empty())
      print_out(", {} entries in {}", config.skip.size(), config.skip_key);
    print_out("\n");
  }
  for (const Defect& problem : pairing.problems) print_warning(problem.message);
}

OrderedJson to_json(const Checkpoint& checkpoint, const Pairing& pairing) {
  OrderedJson json;
  json["tensors"] = OrderedJson::array();
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const CheckpointTensor& tensor = checkpoint.tensors[i];
    OrderedJson entry = {{"name", tensor.info.name},
                         {"dtype", dtype_name(tensor.info.dtype)},
                         {"shape", tensor.info.shape},
                         {"bytes", tensor.info.bytes},
                         {"file", checkpoint.shards[tensor.shard].file_name},
                         {"role", role_of(checkpoint, pairing, i)},
                         {"scale", nullptr}};
    if (pairing.roles[i] == Pairing::Role::weight) {
      const QuantizedWeight& weight = pairing.weights[pairing.weight_of[i]];
      if (weight.scale) {
        const TensorInfo& scale = checkpoint.tensors[*weight.scale].info;
        entry["scale"] = {{"name", scale.name},
                          {"dtype", dtype_name(scale.dtype)},
                          {"shape", scale.shape},
                          {"block", {weight.layout.block.rows, weight.layout.block.cols}}};
      }
    }
    json["tensors"].push_back(std::move(entry));
  }
  OrderedJson& summary = json["summary"];
  summary["tensors"] = checkpoint.tensors.size();
  summary["files"] = checkpoint.shards.size();
  summary["bytes"] = checkpoint.tensor_bytes;
  summary["dtypes"] = OrderedJson::object();
  for (const auto& [dtype, total] : totals_of(checkpoint, pairing)) {
    summary["dtypes"][dtype] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  summary["fp8_weights"] = pairing.weights.size() + pairing.unpaired_weights;
  summary["scales"] = scale_count(pairing);
  summary["unpaired"] = pairing.unpaired_weights + pairing.unpaired_scales;
  summary["modules_to_not_convert"] = checkpoint.quantization.skip;
  summary["modules_to_not_convert_key"] = checkpoint.quantization.skip_key;
  summary["problems"] = OrderedJson::array();
  for (const Defect& problem : pairing.problems) summary["problems"].push_back(problem.message);
  return json;
}

Result<void> run(const Arguments& arguments) {
  OCTAVO_TRY(const Checkpoint checkpoint, open_checkpoint(arguments.path, arguments.open));
  OCTAVO_TRY(const Pairing pairing, pair_scales(checkpoint, {}));
  if (arguments.json) {
    print_json(to_json(checkpoint, pairing));
    return {};
  }
  print_rows(rows_of(checkpoint, pairing, arguments.all));
  print_summary(checkpoint, pairing);
  return {};
}

}  // namespace

void add_inspect(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Tensors, formats, blocks, scales, what pairs with what, sizes");
  command->footer(kFooter);
  command->add_option("PATH", arguments->path, "Model directory, or one .safetensors file")
      ->required();
  command->add_flag("--all", arguments->all, "One row for each tensor");
  command->add_flag("--json", arguments->json, "Print everything as JSON");
  add_open_options(*command, arguments->open);
  command->callback([arguments, &status] {
    const Result<void> result = run(*arguments);
    status = result ? kFine : report_error(result.error());
  });
}

}  // namespace octavo::app
