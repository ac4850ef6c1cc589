#include <algorithm>
#include <memory>

#include "command.h"
#include "compare_html.h"
#include "compare_output.h"
#include "octavo/base/machine.h"
#include "octavo/checkpoint/compare.h"
#include "octavo/kernels/select.h"
#include "progress.h"

namespace octavo::app {
namespace {

constexpr std::size_t kTableLines = 20;

struct Arguments {
  std::string a;
  std::string b;
  int threads = 0;
  std::optional<double> min_snr;
  std::string html;
  PairingOptions pairing;
  OpenOptions open;
  bool all = false;
  bool json = false;
  bool quiet = false;
};

constexpr const char* kFooter =
    R"(Tensors are matched by name and compared as the numbers they stand for, whatever their format: an
FP8 weight is code x scale. A is the reference of the SNR. Verdicts, worst first:

  missing       only one of the two has it
  different     other shapes, or differences that no rounding explains
  rounded       every element within half a step of the coarser of both formats
  equal_values  the same numbers
  equal_bits    the same bytes, scales included

Exit status: 0 all equal, 3 differences.

Examples:
  octavo compare Qwen3-0.6B Qwen3-0.6B-FP8
  octavo compare Qwen3-0.6B Qwen3-0.6B-FP8 --min-snr 30 --html report.html
  octavo compare a.safetensors b.safetensors --json | jq .summary)";

bool is_difference(const TensorComparison& tensor, std::optional<double> min_snr) {
  if (tensor.verdict >= Verdict::equal_values) return false;
  if (!min_snr || !tensor.difference) return true;
  return tensor.difference->snr_db < *min_snr;
}

Result<int> run(const Arguments& arguments) {
  CompareOptions options;
  OCTAVO_TRY(options.threads, choose_threads(arguments.threads));
  options.pairing = arguments.pairing;
  OCTAVO_CHECK(kernels::selected_isa());
  OCTAVO_TRY(const Checkpoint a, open_checkpoint(arguments.a, arguments.open));
  OCTAVO_TRY(const Checkpoint b, open_checkpoint(arguments.b, arguments.open));
  if (!arguments.html.empty()) OCTAVO_CHECK(check_html_path(arguments.html, {&a, &b}));
  Progress progress("compare", arguments.quiet);
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    progress.update(done, total);
  };
  OCTAVO_TRY(const Comparison comparison, compare_checkpoints(a, b, options));
  progress.finish();
  for (const std::string& warning : comparison.warnings) print_warning(warning);
  const auto differences = static_cast<std::uint64_t>(std::ranges::count_if(
      comparison.tensors,
      [&](const TensorComparison& tensor) { return is_difference(tensor, arguments.min_snr); }));
  if (arguments.json) {
    print_json(comparison_json(comparison, arguments.a, arguments.b, differences));
  } else if (!arguments.quiet) {
    print_comparison(comparison, arguments.all ? 0 : kTableLines);
  }
  if (!arguments.html.empty()) {
    OCTAVO_CHECK(write_html(arguments.html, comparison_html(comparison, arguments.a, arguments.b)));
    if (!arguments.quiet) print_err("octavo: wrote {}\n", printable(arguments.html));
  }
  return differences == 0 ? kFine : kFound;
}

}  // namespace

void add_compare(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "compare", "Tensor by tensor: equal, rounded or different, and by how much");
  command->footer(kFooter);
  for (auto& [name, path] : {std::pair("A", &arguments->a), std::pair("B", &arguments->b)}) {
    command->add_option(name, *path, "Model directory, or one .safetensors file")->required();
  }
  command->add_flag("--all", arguments->all, "One line for each tensor, not the worst 20");
  command
      ->add_option("--min-snr", arguments->min_snr,
                   "Tensors of one shape with at least this SNR are no differences")
      ->option_text("DB");
  command->add_option("--html", arguments->html, "Write a page with a heat map by layer and module")
      ->option_text("FILE");
  command->add_option("--threads", arguments->threads, "0: all that affinity and cgroup allow")
      ->option_text("N")
      ->check(kNotEmpty)
      ->capture_default_str();
  add_open_options(*command, arguments->open);
  command->add_flag("--json", arguments->json, "Print as JSON");
  command->add_flag("-q,--quiet", arguments->quiet, "No progress, no table");
  add_pairing_options(*command, arguments->pairing);
  command->callback([arguments, &status] {
    const Result<int> result = run(*arguments);
    status = result ? *result : report_error(result.error());
  });
}

}  // namespace octavo::app
