#include "octavo/checkpoint/verify.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "command.h"
#include "octavo/base/machine.h"
#include "octavo/base/words.h"
#include "octavo/checkpoint/rebuild_index.h"
#include "progress.h"

namespace octavo::app {
namespace {

struct Arguments {
  std::string path;
  bool full = false;
  bool all = false;
  bool rebuild_index = false;
  bool json = false;
  bool quiet = false;
  int threads = 0;
  PairingOptions pairing;
  OpenOptions open;
};

constexpr const char* kFooter =
    R"(By default: headers, index, config, how weights and scales pair, and the value of every scale.
--full reads every byte: NaN and infinity anywhere, and how many codes are saturated, subnormal or
zero. Exit status: 0 sound, 3 defects were found, 1 nothing could be looked at. docs/cli.md lists
the codes of defects.

Examples:
  octavo verify DeepSeek-V3
  octavo verify Qwen3-0.6B-FP8 --full
  octavo verify model --json | jq '.defects[].code'
  octavo verify model --rebuild-index)";

constexpr std::size_t kShownPerCode = 10;
constexpr std::size_t kShownTensors = 10;

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

OrderedJson defects_json(const Defects& defects) {
  OrderedJson list = OrderedJson::array();
  for (const Defect& defect : defects) {
    OrderedJson entry = {{"code", defect_name(defect.code)},
                         {"file", defect.file},
                         {"tensor", defect.tensor},
                         {"offset", nullptr},
                         {"message", defect.message}};
    if (defect.offset) entry["offset"] = *defect.offset;
    list.push_back(std::move(entry));
  }
  return list;
}

std::set<std::string> files_to_fetch(const Defects& defects) {
  std::set<std::string> files;
  for (const Defect& defect : defects) {
    if (defect_info(defect.code).fetch_again && !defect.file.empty()) files.insert(defect.file);
  }
  return files;
}

OrderedJson to_json(const VerifyReport& report) {
  OrderedJson json;
  json["ok"] = report.defects.empty();
  json["fp8_weights"] = report.fp8_weights;
  json["scales"] = report.scales;
  json["unpaired"] = report.unpaired;
  json["defects"] = defects_json(report.defects);
  json["notes"] = defects_json(report.notes);
  json["fetch_again"] = files_to_fetch(report.defects);
  json["files"] = report.files;
  json["tensors"] = report.tensors;
  json["bytes"] = report.tensor_bytes;
  json["scale_range"] = nullptr;
  if (report.least_scale <= report.largest_scale)
    json["scale_range"] = {report.least_scale, report.largest_scale};
  json["elements"] = OrderedJson::array();
  for (const TensorHealth& health : report.health) {
    const ElementCounts& counts = health.counts;
    json["elements"].push_back({{"name", health.name},
                                {"elements", counts.elements},
                                {"nan", counts.nan},
                                {"infinite", counts.infinite},
                                {"saturated", counts.saturated},
                                {"subnormal", counts.subnormal},
                                {"zero", counts.zero}});
  }
  json["reads"] = report.read.calls;
  json["bytes_read"] = report.read.bytes;
  return json;
}

// At most kShownPerCode of each code; files without `directory`, which a person has just given.
void print_defects(std::string_view label, const Defects& defects, const std::string& directory,
                   bool all) {
  std::map<DefectCode, std::size_t> shown;
  std::map<DefectCode, std::size_t> hidden;
  std::size_t width = 0;
  for (const Defect& defect : defects) width = std::max(width, defect_name(defect.code).size());
  for (const Defect& defect : defects) {
    if (!all && shown[defect.code] == kShownPerCode) {
      ++hidden[defect.code];
      continue;
    }
    ++shown[defect.code];
    print_out("{:<6}  {:<{}}  {}\n", label, defect_name(defect.code), width,
              std::string_view(defect.message)
                  .substr(defect.message.starts_with(directory) ? directory.size() : 0));
  }
  for (const auto& [code, count] : hidden)
    print_out("{:<6}  {:<{}}  and {} more like these (--all)\n", label, defect_name(code), width,
              count);
}

void print_health(const VerifyReport& report, bool all) {
  if (report.health.empty()) return;
  ElementCounts sum;
  std::size_t width = 6;
  std::vector<const TensorHealth*> order;
  for (const TensorHealth& health : report.health) {
    sum.elements += health.counts.elements;
    sum.saturated += health.counts.saturated;
    sum.subnormal += health.counts.subnormal;
    sum.zero += health.counts.zero;
    order.push_back(&health);
  }
  const auto odd = [](const TensorHealth* t) {
    return share(t->counts.saturated + t->counts.subnormal + t->counts.zero, t->counts.elements);
  };
  std::ranges::stable_sort(order, std::ranges::greater{}, odd);
  if (!all && order.size() > kShownTensors) order.resize(kShownTensors);
  for (const TensorHealth* t : order) width = std::max(width, printable(t->name).size());
  const auto print = [&](std::string_view name, const ElementCounts& counts) {
    print_out("{:<{}}  {:>8.4f} %  {:>8.4f} %  {:>8.4f} %\n", name, width,
              100 * share(counts.saturated, counts.elements),
              100 * share(counts.subnormal, counts.elements),
              100 * share(counts.zero, counts.elements));
  };
  print_out("\n{:<{}}  {:>10}  {:>10}  {:>10}\n", "tensor", width, "saturated", "subnormal",
            "zero");
  for (const TensorHealth* t : order) print(printable(t->name), t->counts);
  if (order.size() < report.health.size())
    print_out("and {} more (--all)\n", report.health.size() - order.size());
  print("all " + counted(report.health.size(), "weight"), sum);
  print_out("\n");
}

void print_report(const VerifyReport& report, const Arguments& arguments) {
  const std::string directory = printable((std::filesystem::path(arguments.path) / "").string());
  print_defects("defect", report.defects, directory, arguments.all);
  print_defects("note", report.notes, directory, arguments.all);
  print_health(report, arguments.all);
  if (report.health.empty() && !(report.defects.empty() && report.notes.empty())) print_out("\n");
  print_out("{} FP8 weights, {} scales, {} unpaired", report.fp8_weights, report.scales,
            report.unpaired);
  if (report.least_scale <= report.largest_scale)
    print_out("; scales from {:.4g} to {:.4g}", report.least_scale, report.largest_scale);
  print_out("\n{}, {}, in {}; {} read in {}\n", counted(report.tensors, "tensor"),
            human_bytes(report.tensor_bytes), counted(report.files, "file"),
            human_bytes(report.read.bytes), counted(report.read.calls, "call"));
  for (const std::string& file : files_to_fetch(report.defects))
    print_out("fetch again: {}\n", printable(file));
  if (!report.defects.empty()) {
    print_out("NOT SOUND: {}\n", counted(report.defects.size(), "defect"));
  } else {
    print_out("sound{}\n",
              arguments.full ? ", every byte read" : ", by headers and scales (--full reads all)");
  }
}

Result<int> run(const Arguments& arguments) {
  if (arguments.rebuild_index) {
    OCTAVO_TRY(const RebuiltIndex index, rebuild_index(arguments.path, arguments.open));
    if (!arguments.quiet) {
      print_err("octavo: wrote {}: {} in {}\n", printable(index.path.string()),
                counted(index.tensors, "tensor"), counted(index.files, "file"));
    }
  }
  VerifyOptions options;
  options.full = arguments.full;
  options.pairing = arguments.pairing;
  options.open = arguments.open;
  OCTAVO_TRY(options.threads, choose_threads(arguments.threads));
  Progress progress("verify", arguments.quiet || !arguments.full);
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    progress.update(done, total);
  };
  OCTAVO_TRY(const VerifyReport report, verify_checkpoint(arguments.path, options));
  progress.finish();
  if (arguments.json) {
    print_json(to_json(report));
  } else if (!arguments.quiet) {
    print_report(report, arguments);
  }
  return report.defects.empty() ? kFine : kFound;
}

}  // namespace

void add_verify(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("verify", "Is this checkpoint whole and sound?");
  command->footer(kFooter);
  command->add_option("PATH", arguments->path, "Model directory, or one .safetensors file")
      ->required();
  command->add_flag("--full", arguments->full, "Read every byte of every tensor");
  command->add_flag("--all", arguments->all, "List every defect and every tensor");
  command->add_flag("--rebuild-index", arguments->rebuild_index,
                    "First write the index anew, from the complete set of shards that is there");
  command->add_option("--threads", arguments->threads, "0: all that affinity and cgroup allow")
      ->option_text("N")
      ->check(kNotEmpty)
      ->capture_default_str();
  add_open_options(*command, arguments->open);
  add_pairing_options(*command, arguments->pairing);
  command->add_flag("--json", arguments->json, "Print the report as JSON");
  command->add_flag("-q,--quiet", arguments->quiet,
                    "No progress, no report; the exit status alone");
  command->callback([arguments, &status] {
    const Result<int> result = run(*arguments);
    status = result ? *result : report_error(result.error());
  });
}

}  // namespace octavo::app
