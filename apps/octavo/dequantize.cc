#include <memory>

#include "convert_command.h"

namespace octavo::app {
namespace {

struct Arguments : ConvertArguments {
  std::string dtype = "bf16";
  std::string block_size;
  std::string quant_method;
  bool clamp = false;
  bool allow_non_finite = false;
};

constexpr const char* kFooter =
    R"(Reads FP8 (E4M3, E5M2 and their FNUZ variants) with scales per tensor, channel or block, stored as
F32, F16, BF16, E8M0 or exponent bytes under .weight_scale_inv, .weight_scale, .scale or _scale_inv,
and packed FP4 (two codes a byte, 1x32 E8M0). Every value is code x scale in F32, rounded once.
Tensors that are not quantized are copied.

Memory: at most 64 MB per thread, whatever the size of a tensor or of the model.

Examples:
  octavo dequantize DeepSeek-V3 DeepSeek-V3-BF16
  octavo dequantize Qwen3-8B-FP8 out --dtype f16 --clamp
  octavo dequantize model out --max-shard-size 5GB)";

Result<Conversion> conversion_of(const Arguments& arguments) {
  DequantizeOptions options;
  options.dtype = arguments.dtype == "f16"   ? DType::f16
                  : arguments.dtype == "f32" ? DType::f32
                                             : DType::bf16;
  options.clamp = arguments.clamp;
  options.allow_non_finite = arguments.allow_non_finite;
  options.quant_method = arguments.quant_method;
  options.pairing = arguments.pairing;
  if (!arguments.block_size.empty()) {
    OCTAVO_TRY(options.pairing.block, parse_block_size(arguments.block_size));
  }
  return Conversion{
      [options](const Checkpoint& checkpoint) { return plan_dequantize(checkpoint, options); },
      [options, destination = arguments.destination](
          const Checkpoint& checkpoint, const ConversionPlan& plan, const ConversionOptions& run) {
        return dequantize_checkpoint(checkpoint, plan, options, run, destination);
      }};
}

}  // namespace

void add_dequantize(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "dequantize", "FP8 (any published layout) and packed FP4 to BF16, F16 or F32");
  command->footer(kFooter);
  command->add_option("--dtype", arguments->dtype, "Of the dequantized weights: bf16, f16, f32")
      ->option_text("TYPE")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->capture_default_str();
  command->add_flag("--clamp", arguments->clamp,
                    "What the dtype cannot hold becomes its largest value, no error");
  command->add_flag("--allow-non-finite", arguments->allow_non_finite,
                    "Multiply by scales that are NaN or infinite too");
  command
      ->add_option("--weight-block-size", arguments->block_size,
                   "Instead of what the config says (without one: 128,128)")
      ->option_text("ROWS,COLS")
      ->group(kQuantizedSourceGroup);
  add_quant_method(*command, arguments->quant_method);
  add_conversion(*command, *arguments, status, [arguments] { return conversion_of(*arguments); });
}

}  // namespace octavo::app
