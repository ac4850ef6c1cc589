#include "model_options.h"

#include "bus_error.h"
#include "octavo/base/file.h"
#include "octavo/base/machine.h"
#include "octavo/base/steady_seconds.h"
#include "octavo/checkpoint/fine_grained_fp8_config.h"
#include "octavo/kernels/select.h"
#include "progress.h"

namespace octavo::app {
namespace {

constexpr const char* kLoadGroup = "At load";
constexpr const char* kNumericsGroup = "Numerics";

nn::ActivationType activation_type(const std::string& name) {
  return name == "f32"    ? nn::ActivationType::f32
         : name == "bf16" ? nn::ActivationType::bf16
                          : nn::ActivationType::fp8;
}

Format kv_format(const std::string& name) {
  return name == "f32" ? Format::f32 : name == "fp8" ? Format::e4m3fn : Format::bf16;
}

models::WeightPlacement weight_placement(const std::string& name) {
  return name == "packed"   ? models::WeightPlacement::packed
         : name == "mapped" ? models::WeightPlacement::mapped
                            : models::WeightPlacement::automatic;
}

Result<runtime::GenerationConfig> read_generation(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "generation_config.json";
  if (!std::filesystem::exists(path)) return runtime::GenerationConfig{};
  constexpr std::uint64_t kMaxBytes = 1 << 20;
  OCTAVO_TRY(const std::string text, read_text(path, kMaxBytes));
  OCTAVO_TRY(const Json json, parse_json_object(text, path.string()));
  return runtime::read_generation_config(json, path.string());
}

// Program code and stacks that are touched while loading, and what malloc keeps of buffers that
// were freed: up to twice the largest, pieces of 8 MiB.
constexpr std::uint64_t kLoadSlack = std::uint64_t{32} << 20;

// What the process holds at most while it loads, and what comes on top for a token.
void print_memory(const RunningModel& running) {
  const models::LoadReport& report = running.loaded.report;
  const std::uint64_t weights = report.weight_bytes - report.placement.mapped_bytes;
  print_err(
      "memory: at most {} while loading: {} of weights, {} of buffers, {} before (program, "
      "tokenizer), {} to spare; KV cache {} a token\n",
      human_bytes(weights + report.buffer_bytes + running.bytes_before + kLoadSlack),
      human_bytes(weights), human_bytes(report.buffer_bytes), human_bytes(running.bytes_before),
      human_bytes(kLoadSlack),
      human_bytes(ops::kv_cache_bytes(running.engine->cache_shape(ops::kKvPage)) / ops::kKvPage));
}

// Where weights are in files: how many, and why.
void print_placement(const models::PlacementReport& placement) {
  if (placement.mapped_weights == 0) return;
  const std::string why =
      placement.available_bytes == 0
          ? "as asked"
          : fmt::format("packed they take {} beside {} of KV cache, {} are available",
                        human_bytes(placement.packed_bytes), human_bytes(placement.kv_bytes),
                        human_bytes(placement.available_bytes));
  print_err("       left mapped: {} of {} weights, {} ({})\n", placement.mapped_weights,
            placement.mapped_weights + placement.packed_weights,
            human_bytes(placement.mapped_bytes), why);
}

}  // namespace

void add_model_options(CLI::App& command, ModelArguments& arguments) {
  command.add_option("MODEL", arguments.model, "Directory in the Hugging Face layout")
      ->check(kNotEmpty)
      ->required();
  command.add_option("--threads,-t", arguments.threads, "0: all that this process may use")
      ->option_text("N")
      ->check(kNotEmpty)
      ->capture_default_str();
  command
      .add_option(
          "--quantize", arguments.quantize,
          "Quantize a wide model to block FP8 while it is loaded, with float or ue8m0 scales")
      ->option_text("FMT")
      ->check(CLI::IsMember({"float", "ue8m0"}))
      ->group(kLoadGroup);
  for (auto [name, list, words] :
       {std::tuple("--modules-to-not-convert", &arguments.not_convert, "Leave these wide too"),
        std::tuple("--modules-to-convert", &arguments.convert,
                   "Quantize these although a default would not: lm_head")}) {
    command.add_option(name, *list, words)
        ->option_text("NAMES")
        ->allow_extra_args(false)
        ->group(kLoadGroup);
  }
  command.add_flag("--dequantize", arguments.dequantize, "Run the FP8 weights of MODEL in BF16")
      ->group(kLoadGroup);
  add_pairing_options(command, arguments.pairing);
  command.get_option("--weight-block-size")
      ->description(
          "With --quantize its blocks, else instead of what the config says (usual: "
          "128,128)")
      ->group(kLoadGroup);
  for (const char* name : {"--missing-scale-as-one", "--u8-as-e4m3"})
    command.get_option(name)->group(kLoadGroup);
  command
      .add_option("--weights", arguments.weights,
                  "packed in memory, the fastest; mapped: left in their files, which must stay as "
                  "they are; auto: mapped where memory does not hold them")
      ->option_text("WHERE")
      ->check(CLI::IsMember({"auto", "packed", "mapped"}))
      ->capture_default_str()
      ->group(kLoadGroup);
  command
      .add_flag("--ignore-kv-scales", arguments.ignore_kv_scales,
                "Scales of keys and values in MODEL, which are not used, are not looked at either")
      ->group(kLoadGroup);
  command
      .add_option("--activations", arguments.activations,
                  "Against FP8 weights: fp8 (a scale per token and block, as Transformers does), "
                  "bf16 or f32; wide weights meet bf16, or f32")
      ->option_text("TYPE")
      ->check(CLI::IsMember({"fp8", "bf16", "f32"}))
      ->capture_default_str()
      ->group(kNumericsGroup);
  command
      .add_option("--kv-cache-dtype", arguments.kv_cache,
                  "Keys and values: bf16, fp8 (E4M3, a scale per token and head) or f32")
      ->option_text("TYPE")
      ->check(CLI::IsMember({"bf16", "fp8", "f32"}))
      ->capture_default_str()
      ->group(kNumericsGroup);
  command
      .add_option("--prompt-chunk", arguments.prompt_chunk,
                  "Tokens of a prompt that run together; changes no bit")
      ->option_text("N")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20))
      ->capture_default_str()
      ->group(kNumericsGroup);
  command.add_flag("--quiet,-q", arguments.quiet, "No progress, no notes");
  add_open_options(command, arguments.open);
}

Result<std::optional<QuantizeOptions>> quantize_options(const ModelArguments& arguments) {
  if (arguments.quantize.empty()) {
    if (!arguments.not_convert.empty() || !arguments.convert.empty()) {
      return fail(ErrorCode::bad_value,
                  "--modules-to-not-convert and --modules-to-convert go with --quantize");
    }
    return std::nullopt;
  }
  if (arguments.dequantize) {
    return fail(ErrorCode::bad_value, "--quantize and --dequantize exclude each other");
  }
  FineGrainedFp8Config config;
  config.weight_block_size = arguments.pairing.block.value_or(BlockSize{});
  config.scale_fmt = scale_format_from_name(arguments.quantize).value();
  config.modules_to_not_convert = split_names(arguments.not_convert);
  config.modules_to_convert = split_names(arguments.convert);
  OCTAVO_TRY(QuantizeOptions options, octavo::quantize_options(config));
  options.pairing = arguments.pairing;
  return options;
}

Result<std::unique_ptr<RunningModel>> open_model(const ModelArguments& arguments) {
  const double start = steady_seconds();
  OCTAVO_TRY([[maybe_unused]] const Isa isa, kernels::selected_isa());
  models::LoadOptions options;
  OCTAVO_TRY(options.quantize, quantize_options(arguments));
  auto running = std::make_unique<RunningModel>();
  OCTAVO_TRY(const int threads, choose_threads(arguments.threads));
  running->threads_why =
      arguments.threads > 0 && arguments.threads <= threads ? "as asked" : allowed_threads().why;
  OCTAVO_TRY(running->checkpoint, open_checkpoint(arguments.model, arguments.open));
  OCTAVO_TRY(running->generation, read_generation(running->checkpoint.directory));
  OCTAVO_TRY(running->tokenizer, text::Tokenizer::load(running->checkpoint.directory));
  running->pool = std::make_unique<ThreadPool>(threads);
  running->context = {running->pool.get()};
  options.dequantize = arguments.dequantize;
  options.pairing = arguments.pairing;
  options.ignore_kv_scales = arguments.ignore_kv_scales;
  options.weights = weight_placement(arguments.weights);
  options.kv_cache = kv_format(arguments.kv_cache);
  options.context = &running->context;
  running->bytes_before = resident_bytes();
  Progress progress("load", arguments.quiet);
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    progress.update(done, total);
  };
  auto loaded = models::load_model(running->checkpoint, options);
  progress.finish();
  OCTAVO_TRY(running->loaded, std::move(loaded));
  catch_lost_pages(running->loaded.model.mapped_files);
  if (!arguments.quiet) {
    for (const std::string& note : running->loaded.report.notes) print_warning(note);
  }
  running->engine = std::make_unique<runtime::Engine>(
      running->loaded.model,
      runtime::EngineOptions{activation_type(arguments.activations), kv_format(arguments.kv_cache),
                             arguments.prompt_chunk, &running->context});
  running->load_seconds = steady_seconds() - start;
  return running;
}

Result<std::uint64_t> check_kv_cache(const RunningModel& running, std::size_t tokens,
                                     std::size_t sequences) {
  const std::uint64_t bytes = ops::kv_cache_bytes(running.engine->cache_shape(tokens)) * sequences;
  const std::uint64_t available = available_memory();
  if (available == 0 || bytes <= available) return bytes;
  return fail(
      ErrorCode::bad_value,
      fmt::format("a context of {} tokens takes {} of KV cache, {} of memory are available: "
                  "a smaller --ctx-size, fewer new tokens, or --kv-cache-dtype fp8",
                  tokens, human_bytes(bytes), human_bytes(available)));
}

void print_model_line(const RunningModel& running, const ModelArguments& arguments) {
  if (arguments.quiet) return;
  const models::LoadReport& report = running.loaded.report;
  print_err("model: {}, {} linear layers in FP8 and {} wide, {} of weights, loaded in {}\n",
            running.loaded.model.config.architecture, report.fp8_layers, report.wide_layers,
            human_bytes(report.weight_bytes), human_seconds(running.load_seconds));
  print_placement(report.placement);
  if (const models::KvScaleReport& scales = report.kv_scales; scales.count != 0) {
    print_err(
        "       {} of queries, keys and values in the files{} not needed: "
        "--kv-cache-dtype fp8 has its own, per token and head\n",
        counted(scales.count, "scale"),
        arguments.ignore_kv_scales
            ? ""
            : fmt::format(" ({:.4g} to {:.4g}),", scales.least, scales.most));
  }
  print_memory(running);
  print_err("run:   {}, activations {}, KV cache {}, {} ({})\n", isa_name(*kernels::selected_isa()),
            arguments.activations, arguments.kv_cache,
            counted(static_cast<std::size_t>(running.pool->threads()), "thread"),
            running.threads_why);
}

}  // namespace octavo::app
