// What the commands that run a model share: how it is loaded and computed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "octavo/base/thread_pool.h"
#include "octavo/models/load.h"
#include "octavo/runtime/engine.h"
#include "octavo/runtime/generation_config.h"
#include "octavo/text/tokenizer.h"

namespace octavo::app {

struct ModelArguments {
  std::string model;
  int threads = 0;
  std::string quantize;  // "", "float", "ue8m0"
  std::vector<std::string> not_convert;
  std::vector<std::string> convert;
  bool dequantize = false;
  std::string weights = "auto";
  bool ignore_kv_scales = false;
  std::string activations = "fp8";
  std::string kv_cache = "bf16";
  std::size_t prompt_chunk = 512;
  bool quiet = false;
  OpenOptions open;
  PairingOptions pairing;  // its block is that of `quantize` where that is given
};

// MODEL and the shared options.
void add_model_options(CLI::App& command, ModelArguments& arguments);

// How a model is quantized at load; nullopt: as it is.
Result<std::optional<QuantizeOptions>> quantize_options(const ModelArguments& arguments);

// A model ready to run. Not moved: its parts point at one another.
struct RunningModel {
  Checkpoint checkpoint;
  std::unique_ptr<ThreadPool> pool;
  Context context{};
  models::LoadedModel loaded;
  std::optional<text::Tokenizer> tokenizer;
  runtime::GenerationConfig generation;
  std::unique_ptr<runtime::Engine> engine;
  std::string threads_why;
  double load_seconds = 0;
  std::uint64_t bytes_before = 0;  // resident before the weights came
};

// What a KV cache of so many tokens takes; bad_value where memory does not hold it.
Result<std::uint64_t> check_kv_cache(const RunningModel& running, std::size_t tokens,
                                     std::size_t sequences);

// Loads with a progress bar; notes of the loader go to stderr.
Result<std::unique_ptr<RunningModel>> open_model(const ModelArguments& arguments);

// One line on stderr: what was loaded, how it is computed, threads and why.
void print_model_line(const RunningModel& running, const ModelArguments& arguments);

}  // namespace octavo::app
