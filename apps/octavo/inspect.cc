#include "inspect.h"

#include <algorithm>
#include <charconv>
#include <memory>

namespace octavo::app {
namespace {

struct Arguments {
  std::string path;
  std::string quant_method;
  std::vector<std::string> degrees;
  bool all = false;
  bool json = false;
  OpenOptions open;
};

constexpr const char* kFooter =
    R"(Reads headers only. Tensors of repeated layers and experts share a row, scales stand beside their
weights; --all lists each tensor. (edge RxC) is the last block of a grid that does not divide.

--tp: which tensor-parallel degrees the model can be split into. "works"; "cut": it divides, but a
shard ends within a block of scales; "no": it does not divide.

Examples:
  octavo inspect Qwen3-0.6B-FP8
  octavo inspect Qwen3-30B-A3B-FP8 --tp 2,4,8
  octavo inspect DeepSeek-V3 --json | jq .summary)";

constexpr std::uint64_t kMaxDegree = 65536;

// "2,4,8" and "2", "4": ascending, each once.
Result<std::vector<std::uint64_t>> parse_degrees(const std::vector<std::string>& arguments) {
  std::vector<std::uint64_t> degrees;
  for (const std::string& argument : arguments) {
    const char* at = argument.data();
    const char* const end = at + argument.size();
    while (true) {
      std::uint64_t degree = 0;
      const auto [rest, error] = std::from_chars(at, end, degree);
      const bool number = error == std::errc() && degree >= 1 && degree <= kMaxDegree;
      if (!number || (rest != end && *rest != ',')) {
        return fail(
            ErrorCode::bad_value,
            fmt::format("--tp {}: numbers of devices from 1 to {} are expected, as in 2,4,8",
                        argument, kMaxDegree));
      }
      degrees.push_back(degree);
      if (rest == end) break;
      at = rest + 1;
    }
  }
  std::ranges::sort(degrees);
  degrees.erase(std::ranges::unique(degrees).begin(), degrees.end());
  return degrees;
}

Result<Inspection> inspect(const Arguments& arguments) {
  OCTAVO_TRY(const std::vector<std::uint64_t> degrees, parse_degrees(arguments.degrees));
  Inspection result;
  OCTAVO_TRY(result.checkpoint, open_checkpoint(arguments.path, arguments.open));
  OCTAVO_CHECK(check_asked_quant_method(result.checkpoint, arguments.quant_method));
  result.pairing = pair_scales(result.checkpoint, {});
  for (const auto& problem : result.pairing.problems) result.problems.push_back(problem.message);
  if (auto method = check_quant_method(result.checkpoint, result.pairing); !method)
    result.problems.push_back(std::move(method).error().message);
  if (auto list = check_skip_list(result.checkpoint, result.pairing)) {
    result.skip_list = std::move(*list);
  } else {
    result.problems.push_back(std::move(list).error().message);
  }
  result.facts = check_config(result.checkpoint, result.pairing);
  if (!degrees.empty())
    result.tensor_parallel = plan_tensor_parallel(result.checkpoint, result.pairing, degrees);
  return result;
}

Result<void> run(const Arguments& arguments) {
  OCTAVO_TRY(const Inspection inspection, inspect(arguments));
  if (arguments.json) {
    print_inspection_json(inspection);
    return {};
  }
  print_inspection(inspection, arguments.all);
  if (inspection.tensor_parallel) print_tensor_parallel(inspection, arguments.all);
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
  command
      ->add_option("--tp,--tensor-parallel-size", arguments->degrees,
                   "Which weights can be split over so many devices (2,4,8); may be repeated")
      ->option_text("N")
      ->allow_extra_args(false);
  command->add_flag("--all", arguments->all, "One row for each tensor, every entry of a list");
  command->add_flag("--json", arguments->json, "Print everything as JSON");
  add_open_options(*command, arguments->open);
  add_quant_method(*command, arguments->quant_method);
  command->callback([arguments, &status] {
    const Result<void> result = run(*arguments);
    status = result ? kFine : report_error(result.error());
  });
}

}  // namespace octavo::app
