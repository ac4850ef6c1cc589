#include <memory>

#include "convert_command.h"
#include "octavo/checkpoint/fine_grained_fp8_config.h"

namespace octavo::app {
namespace {

struct Arguments : ConvertArguments {
  std::string block_size = "128,128";
  std::string rule = "transformers";
  std::string scale_fmt = "float";
  std::string scale_dtype;
  std::vector<std::string> not_convert;
  std::vector<std::string> convert;
  bool no_default_skips = false;
  bool requantize = false;
  bool allow_non_finite = false;
  bool measure_error = false;
};

constexpr const char* kFooter =
    R"(NAMES: whole dotted names or their ends (mlp.down_proj), with '*' for any characters, separated by
commas; re:REGEX matches a whole name, and is the last of its list: a comma belongs to it.

Left wide by default: output head, embeddings, norms, routers, 1-D tensors, indexer weight
projection, compressor, the multi-token prediction projection (eh_proj), convolutions. --plan shows
every tensor and why.

Memory: at most 64 MB per thread, whatever the size of a tensor or of the model.

Examples:
  octavo quantize Qwen3-0.6B Qwen3-0.6B-FP8
  octavo quantize Qwen3-0.6B --plan
  octavo quantize DeepSeek-V3-BF16 DeepSeek-V3-FP8 --scale-fmt ue8m0 --scale-dtype f32
  octavo quantize model out --modules-to-not-convert 'mlp.down_proj,re:.*layers\.\d{1,2}\..*')";

Result<Conversion> conversion_of(const Arguments& arguments) {
  FineGrainedFp8Config config;
  OCTAVO_TRY(config.weight_block_size, parse_block_size(arguments.block_size));
  config.scale_fmt = scale_format_from_name(arguments.scale_fmt).value();
  config.modules_to_not_convert = split_names(arguments.not_convert);
  config.modules_to_convert = split_names(arguments.convert);
  OCTAVO_TRY(QuantizeOptions options, quantize_options(config));
  if (!arguments.scale_dtype.empty())
    options.scale_dtype = arguments.scale_dtype == "e8m0" ? DType::f8_e8m0 : DType::f32;
  options.recipe.rule = rule_from_name(arguments.rule).value();
  options.default_skips = !arguments.no_default_skips;
  options.requantize = arguments.requantize;
  options.allow_non_finite = arguments.allow_non_finite;
  options.measure_error = arguments.measure_error;
  options.pairing = arguments.pairing;
  return Conversion{
      [options](const Checkpoint& checkpoint) { return plan_quantize(checkpoint, options); },
      [options, destination = arguments.destination](
          const Checkpoint& checkpoint, const ConversionPlan& plan, const ConversionOptions& run) {
        return quantize_checkpoint(checkpoint, plan, options, run, destination);
      }};
}

void add_format_options(CLI::App& command, Arguments& arguments) {
  command
      .add_option("--weight-block-size", arguments.block_size,
                  "Rows and columns that share a scale")
      ->option_text("ROWS,COLS")
      ->capture_default_str();
  command
      .add_option("--scale-fmt", arguments.scale_fmt, "float, or ue8m0: scales are powers of two")
      ->option_text("FMT")
      ->check(CLI::IsMember({"float", "ue8m0"}))
      ->capture_default_str();
  command
      .add_option("--scale-dtype", arguments.scale_dtype,
                  "Scales are stored as f32, or e8m0 (default with ue8m0)")
      ->option_text("TYPE")
      ->check(CLI::IsMember({"f32", "e8m0"}));
  command
      .add_option("--rule", arguments.rule,
                  "Whose arithmetic gives the scales: transformers, deepseek or deepgemm, as "
                  "docs/numerics.md describes")
      ->option_text("RULE")
      ->check(CLI::IsMember({"transformers", "deepseek", "deepgemm"}))
      ->capture_default_str();
}

// Each use takes one argument, so that the positionals may follow.
void add_list_option(CLI::App& command, const char* name, std::vector<std::string>& arguments,
                     const char* description) {
  command.add_option(name, arguments, description)->option_text("NAMES")->allow_extra_args(false);
}

}  // namespace

void add_quantize(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("quantize", "BF16, F16 or F32 to block FP8, streaming");
  command->footer(kFooter);
  add_format_options(*command, *arguments);
  add_list_option(*command, "--modules-to-not-convert", arguments->not_convert,
                  "Leave these wide too; may be repeated");
  add_list_option(*command, "--modules-to-convert", arguments->convert,
                  "Quantize these although a default would not; may be repeated");
  command->add_flag("--no-default-skips", arguments->no_default_skips,
                    "Leave nothing wide by name");
  command->add_flag("--allow-non-finite", arguments->allow_non_finite,
                    "NaN and infinities become NaN codes instead of an error");
  command->add_flag("--measure-error", arguments->measure_error,
                    "Compare what was written with the source (max, RMS, SNR)");
  command
      ->add_flag("--requantize", arguments->requantize,
                 "Accept an FP8 or FP4 source: dequantize, then quantize anew")
      ->group(kQuantizedSourceGroup);
  add_conversion(*command, *arguments, status, [arguments] { return conversion_of(*arguments); });
}

}  // namespace octavo::app
