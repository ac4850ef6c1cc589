#include <memory>

#include "command.h"
#include "convert_output.h"
#include "octavo/kernels/select.h"
#include "progress.h"

namespace octavo::app {
namespace {

struct Arguments : ConvertArguments {
  std::string rule = "transformers";
  std::string scale_fmt = "float";
  std::string scale_dtype;
  std::vector<std::string> not_convert;
  std::vector<std::string> convert;
  bool no_default_skips = false;
  bool requantize = false;
  bool measure_error = false;
};

constexpr const char* kFooter = R"(
Left wide by default: output head, embeddings, norms, routers, 1-D tensors, indexer weight projection, compressor,
the multi-token prediction projection (eh_proj), convolutions. --plan shows every tensor and why.

Memory: at most 64 MB per thread, whatever the size of a tensor or of the model.

Examples:
  octavo quantize Qwen3-0.6B Qwen3-0.6B-FP8
  octavo quantize Qwen3-0.6B out --plan
  octavo quantize DeepSeek-V3-BF16 DeepSeek-V3-FP8 --scale-fmt ue8m0 --scale-dtype f32
  octavo quantize model out --modules-to-not-convert mlp.down_proj,re:.*layers\.0\..*)";

Result<QuantizeOptions> quantize_options(const Arguments& arguments) {
  QuantizeOptions options;
  OCTAVO_TRY(options.recipe.block, parse_block_size(arguments.block_size));
  options.recipe.rule = rule_from_name(arguments.rule).value();
  options.recipe.scale_fmt = scale_format_from_name(arguments.scale_fmt).value();
  const bool ue8m0 = options.recipe.scale_fmt == ScaleFormat::ue8m0;
  const std::string dtype =
      arguments.scale_dtype.empty() ? (ue8m0 ? "e8m0" : "f32") : arguments.scale_dtype;
  options.scale_dtype = dtype == "e8m0" ? DType::f8_e8m0 : DType::f32;
  options.not_convert = arguments.not_convert;
  options.convert = arguments.convert;
  options.default_skips = !arguments.no_default_skips;
  options.requantize = arguments.requantize;
  options.allow_non_finite = arguments.allow_non_finite;
  options.measure_error = arguments.measure_error;
  options.pairing.missing_scale_as_one = arguments.missing_scale_as_one;
  options.pairing.u8_as_e4m3 = arguments.u8_as_e4m3;
  return options;
}

Result<void> run(const Arguments& arguments) {
  OCTAVO_TRY(const QuantizeOptions options, quantize_options(arguments));
  OCTAVO_TRY(ConversionOptions run, run_options(arguments));
  OCTAVO_CHECK(kernels::selected_isa());
  OCTAVO_TRY(const Checkpoint checkpoint, open_checkpoint(arguments.source));
  OCTAVO_TRY(const ConversionPlan plan, plan_quantize(checkpoint, options));
  if (arguments.plan_only) {
    print_plan(checkpoint, plan, arguments.json);
    return {};
  }
  Progress progress("quantize", arguments.quiet);
  run.on_progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  OCTAVO_TRY(const ConversionReport report,
             quantize_checkpoint(checkpoint, plan, options, run, arguments.destination));
  progress.finish();
  print_report(report, arguments);
  return {};
}

}  // namespace

void add_quantize(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  arguments->block_size = "128,128";
  CLI::App* command = app.add_subcommand("quantize", "BF16, F16 or F32 to block FP8, streaming");
  command->footer(kFooter);
  command
      ->add_option("SRC", arguments->source,
                   "Model directory (config.json, *.safetensors), or one .safetensors file")
      ->required();
  command->add_option("DST", arguments->destination,
                      "Directory to write; it may not be the source");
  command
      ->add_option("--weight-block-size", arguments->block_size,
                   "Rows and columns that share a scale")
      ->capture_default_str();
  command
      ->add_option("--scale-fmt", arguments->scale_fmt,
                   "Scales: any float, or powers of two rounded up")
      ->check(CLI::IsMember({"float", "ue8m0"}))
      ->capture_default_str();
  command
      ->add_option("--scale-dtype", arguments->scale_dtype,
                   "Stored as f32, or as e8m0 (default with ue8m0)")
      ->check(CLI::IsMember({"f32", "e8m0"}));
  command
      ->add_option("--rule", arguments->rule,
                   "Whose arithmetic gives the scales (docs/numerics.md)")
      ->check(CLI::IsMember({"transformers", "deepseek", "deepgemm"}))
      ->capture_default_str();
  command
      ->add_option("--modules-to-not-convert", arguments->not_convert,
                   "Also leave these wide: whole dotted names or their ends, '*', or re:REGEX; "
                   "comma-separated")
      ->delimiter(',');
  command
      ->add_option("--modules-to-convert", arguments->convert,
                   "Quantize these although a default would not")
      ->delimiter(',');
  command->add_flag("--no-default-skips", arguments->no_default_skips,
                    "Leave nothing wide by name");
  command->add_option("--max-shard-size", arguments->max_shard_size,
                      "5GB, 500MB; default: shards as in the source");
  command
      ->add_option("--threads", arguments->threads, "0: all cores that affinity and cgroup allow")
      ->capture_default_str();
  command->add_flag("--overwrite", arguments->overwrite, "Replace the model in DST");
  command->add_flag("--plan,--dry-run", arguments->plan_only,
                    "Print what would happen to each tensor and why; write nothing");
  command->add_flag("--measure-error", arguments->measure_error,
                    "Compare what was written with the source (max, RMS, SNR)");
  command->add_flag("--requantize", arguments->requantize,
                    "Accept a source that is FP8 or FP4 already: dequantize, quantize anew");
  command->add_flag("--missing-scale-as-one", arguments->missing_scale_as_one,
                    "With --requantize: an FP8 weight without a scale has scale 1");
  command->add_flag("--u8-as-e4m3", arguments->u8_as_e4m3,
                    "With --requantize: U8 with a scale beside it is E4M3");
  command->add_flag("--allow-non-finite", arguments->allow_non_finite,
                    "NaN and infinities become NaN codes instead of an error");
  command->add_flag("--json", arguments->json, "Print the summary, or the plan, as JSON");
  command->add_flag("-q,--quiet", arguments->quiet, "No progress, no summary");
  command->callback([arguments, &status] {
    if (arguments->destination.empty() && !arguments->plan_only) {
      status = report_error(
          {ErrorCode::bad_value, "quantize: DST is missing (--plan works without one)"});
      return;
    }
    const Result<void> result = run(*arguments);
    status = result ? kFine : report_error(result.error());
  });
}

}  // namespace octavo::app
