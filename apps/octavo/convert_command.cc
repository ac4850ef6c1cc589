#include "convert_command.h"

#include "convert_output.h"
#include "interrupt.h"
#include "octavo/base/machine.h"
#include "octavo/kernels/select.h"
#include "progress.h"

namespace octavo::app {
namespace {

void add_options(CLI::App& command, ConvertArguments& arguments) {
  command.add_option("SRC", arguments.source, "Model directory, or one .safetensors file")
      ->required();
  command.add_option("DST", arguments.destination,
                     "Directory to write, never the source itself; --plan needs none");
  command
      .add_flag("--missing-scale-as-one", arguments.pairing.missing_scale_as_one,
                "An FP8 weight without a scale has scale 1")
      ->group(kQuantizedSourceGroup);
  command
      .add_flag("--u8-as-e4m3", arguments.pairing.u8_as_e4m3, "U8 with a scale beside it is E4M3")
      ->group(kQuantizedSourceGroup);
  command
      .add_option("--max-shard-size", arguments.max_shard_size,
                  "As in 5GB or 500MB (default: shards as in the source)")
      ->option_text("SIZE")
      ->check(kNotEmpty);
  add_open_options(command, arguments.open);
  command.add_option("--threads", arguments.threads, "0: all that affinity and cgroup allow")
      ->option_text("N")
      ->check(kNotEmpty)
      ->capture_default_str();
  command.add_flag("--overwrite", arguments.overwrite, "Replace the model in DST");
  command.add_flag("--resume", arguments.resume,
                   "Go on where a run that was killed or stopped left off; else begin");
  command.add_flag("--plan,--dry-run", arguments.plan_only,
                   "Print what would happen to each tensor and why; write nothing");
  command.add_flag("--json", arguments.json, "Print the summary, or the plan, as JSON");
  command.add_flag("-q,--quiet", arguments.quiet, "No progress, no summary");
}

// What the run that begins here throws away.
void tell_of_unfinished_run(const ConvertArguments& arguments) {
  if (arguments.resume) return;
  const std::optional<UnfinishedRun> left = find_unfinished_run(arguments.destination);
  if (!left) return;
  print_warning(
      fmt::format("{} holds an unfinished run: {} of {} shards, which --resume would keep",
                  arguments.destination, left->finished_shards, left->shards));
}

Result<void> run(const std::string& name, const ConvertArguments& arguments,
                 const std::function<Result<Conversion>()>& prepare) {
  OCTAVO_TRY(const Conversion conversion, prepare());
  ConversionOptions options;
  OCTAVO_TRY(options.threads, choose_threads(arguments.threads));
  if (!arguments.max_shard_size.empty()) {
    OCTAVO_TRY(options.max_shard_bytes, parse_bytes("--max-shard-size", arguments.max_shard_size));
  }
  options.overwrite = arguments.overwrite;
  options.resume = arguments.resume;
  OCTAVO_CHECK(kernels::selected_isa());
  OCTAVO_TRY(const Checkpoint checkpoint, open_checkpoint(arguments.source, arguments.open));
  OCTAVO_TRY(const ConversionPlan plan, conversion.plan(checkpoint));
  if (arguments.plan_only) {
    print_plan(checkpoint, plan, arguments.json);
    return {};
  }
  tell_of_unfinished_run(arguments);
  options.stop = &catch_interrupts();
  Progress progress(name, arguments.quiet);
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    progress.update(done, total);
  };
  OCTAVO_TRY(const ConversionReport report, conversion.convert(checkpoint, plan, options));
  progress.finish();
  print_report(report, arguments);
  return {};
}

}  // namespace

void add_conversion(CLI::App& command, ConvertArguments& arguments, int& status,
                    std::function<Result<Conversion>()> prepare) {
  add_options(command, arguments);
  command.callback([name = command.get_name(), &arguments, &status, prepare = std::move(prepare)] {
    if (arguments.destination.empty() && !arguments.plan_only) throw CLI::RequiredError("DST");
    const Result<void> result = run(name, arguments, prepare);
    status = result ? kFine : report_error(result.error());
    if (!result && result.error().code == ErrorCode::interrupted) status = 128 + caught_signal();
  });
}

}  // namespace octavo::app
