#include <memory>

#include "command.h"
#include "convert_output.h"
#include "octavo/kernels/select.h"
#include "progress.h"

namespace octavo::app {
namespace {

struct Arguments : ConvertArguments {
  std::string dtype = "bf16";
  bool clamp = false;
};

constexpr const char* kFooter = R"(
Reads FP8 (E4M3, E5M2 and their FNUZ variants) with scales per tensor, channel or block, stored as F32, F16, BF16, E8M0 or
exponent bytes under .weight_scale_inv, .weight_scale, .scale or _scale_inv, and packed FP4 (two codes a byte, 1x32 E8M0).
Every value is code x scale in F32, rounded once. Tensors that are not quantized are copied.

Memory: at most 64 MB per thread, whatever the size of a tensor or of the model.

Examples:
  octavo dequantize DeepSeek-V3 DeepSeek-V3-BF16
  octavo dequantize Qwen3-8B-FP8 out --dtype f16 --clamp
  octavo dequantize model out --max-shard-size 5GB)";

Result<void> run(const Arguments& arguments) {
  DequantizeOptions options;
  options.dtype = arguments.dtype == "f16"   ? DType::f16
                  : arguments.dtype == "f32" ? DType::f32
                                             : DType::bf16;
  options.clamp = arguments.clamp;
  options.allow_non_finite = arguments.allow_non_finite;
  options.pairing.missing_scale_as_one = arguments.missing_scale_as_one;
  options.pairing.u8_as_e4m3 = arguments.u8_as_e4m3;
  if (!arguments.block_size.empty()) {
    OCTAVO_TRY(options.pairing.block, parse_block_size(arguments.block_size));
  }
  OCTAVO_TRY(ConversionOptions run, run_options(arguments));
  OCTAVO_CHECK(kernels::selected_isa());
  OCTAVO_TRY(const Checkpoint checkpoint, open_checkpoint(arguments.source));
  OCTAVO_TRY(const ConversionPlan plan, plan_dequantize(checkpoint, options));
  if (arguments.plan_only) {
    print_plan(checkpoint, plan, arguments.json);
    return {};
  }
  Progress progress("dequantize", arguments.quiet);
  run.on_progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  OCTAVO_TRY(const ConversionReport report,
             dequantize_checkpoint(checkpoint, plan, options, run, arguments.destination));
  progress.finish();
  print_report(report, arguments);
  return {};
}

}  // namespace

void add_dequantize(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "dequantize", "FP8 (any published layout) and packed FP4 to BF16, F16 or F32");
  command->footer(kFooter);
  command
      ->add_option("SRC", arguments->source,
                   "Model directory (config.json, *.safetensors), or one .safetensors file")
      ->required();
  command->add_option("DST", arguments->destination,
                      "Directory to write; it may not be the source");
  command->add_option("--dtype", arguments->dtype, "Of the dequantized weights")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->capture_default_str();
  command->add_option("--weight-block-size", arguments->block_size,
                      "Instead of what the config says (without one: 128,128)");
  command->add_flag("--clamp", arguments->clamp,
                    "What the dtype cannot hold becomes its largest value instead of an error");
  command->add_flag("--missing-scale-as-one", arguments->missing_scale_as_one,
                    "An FP8 weight without a scale has scale 1");
  command->add_flag("--u8-as-e4m3", arguments->u8_as_e4m3, "U8 with a scale beside it is E4M3");
  command->add_flag("--allow-non-finite", arguments->allow_non_finite,
                    "Multiply by scales that are NaN or infinite too");
  command->add_option("--max-shard-size", arguments->max_shard_size,
                      "5GB, 500MB; default: shards as in the source");
  command
      ->add_option("--threads", arguments->threads, "0: all cores that affinity and cgroup allow")
      ->capture_default_str();
  command->add_flag("--overwrite", arguments->overwrite, "Replace the model in DST");
  command->add_flag("--plan,--dry-run", arguments->plan_only,
                    "Print what would happen to each tensor and why; write nothing");
  command->add_flag("--json", arguments->json, "Print the summary, or the plan, as JSON");
  command->add_flag("-q,--quiet", arguments->quiet, "No progress, no summary");
  command->callback([arguments, &status] {
    if (arguments->destination.empty() && !arguments->plan_only) {
      status = report_error(
          {ErrorCode::bad_value, "dequantize: DST is missing (--plan works without one)"});
      return;
    }
    const Result<void> result = run(*arguments);
    status = result ? kFine : report_error(result.error());
  });
}

}  // namespace octavo::app
