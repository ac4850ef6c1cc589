// From one checkpoint directory to another: what happens to each tensor and why (the plan, from
// headers; read are only scales under two names, and a head that is declared tied), and doing it in
// bounded memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/pairing.h"

namespace octavo {

enum class Action : std::uint8_t {
  keep,        // bytes as they are
  quantize,    // to e4m3fn codes and scales; from codes by way of f32 where the source is quantized
               // already
  dequantize,  // codes and scales to a wide float
  drop,        // a scale whose weight is written without it
};

struct PlannedTensor {
  std::size_t source;  // index into Checkpoint::tensors
  Action action;
  std::string
      reason;    // one phrase: "norm", "--modules-to-not-convert lm_head", "FP8, blocks of 128x128"
  bool skipped;  // a matrix (rank >= 2) of a wide float that stays as it is: never silent
};

struct ConversionOptions {
  int threads = 1;
  std::uint64_t max_shard_bytes = 0;  // 0: shards follow the input's
  bool overwrite = false;  // an output directory that is not empty is accepted, its files replaced
  bool resume = false;     // goes on where an earlier run of the same conversion was cut off
  std::string resume_command = "the same command with --resume";  // for messages: what goes on
  const std::atomic<bool>* stop = nullptr;  // looked at all along; once set: ErrorCode::interrupted
  std::function<void(std::uint64_t done, std::uint64_t total)>
      on_progress;  // source bytes; from any thread
};

struct QuantizeOptions {
  BlockRecipe recipe;
  DType scale_dtype = DType::f32;        // of the stored scales: f8_e8m0 or f32
  std::vector<std::string> not_convert;  // --modules-to-not-convert
  std::vector<std::string> convert;  // --modules-to-convert: although the defaults would skip them
  bool default_skips = true;
  bool requantize = false;  // a source that is quantized already is dequantized first
  bool allow_non_finite =
      false;  // NaN and infinities in the source become NaN codes, scales come from the finite rest
  bool measure_error = false;
  PairingOptions pairing;  // of a quantized source
};

struct DequantizeOptions {
  DType dtype = DType::bf16;      // bf16, f16, f32
  bool clamp = false;             // what the dtype cannot hold becomes its largest finite value
  bool allow_non_finite = false;  // scales that are NaN or infinite are multiplied all the same
  std::string quant_method;       // what the source is taken to be, or empty: the config's
  PairingOptions pairing;
};

struct ConversionPlan {
  std::vector<PlannedTensor> tensors;  // one for each source tensor, in its order
  Pairing pairing;
  std::vector<std::string> not_converted;  // modules for the written skip list, full names
  std::string config_text;                 // config.json to write; empty: none
  std::vector<std::string> dropped_files;  // side files that would contradict the result
  std::vector<std::string> warnings;
};

// bad_model, bad_value, unsupported; nothing is written.
Result<ConversionPlan> plan_quantize(const Checkpoint& checkpoint, const QuantizeOptions& options);
Result<ConversionPlan> plan_dequantize(const Checkpoint& checkpoint,
                                       const DequantizeOptions& options);

// Whether config.json declares output head and embeddings to be one, but both are stored with other
// bits: they are then two weights, for what is written and for what is run.
Result<bool> head_differs(const Checkpoint& checkpoint);

// Of the dequantized result against the source, over all quantized elements.
struct QuantizationError {
  double max_abs = 0;
  double sum_squared_error = 0;
  double sum_squared_source = 0;
  std::uint64_t elements = 0;
  double rms() const;
  double snr_db() const;  // infinity where nothing was lost
};

struct TensorCounts {
  std::string name;
  kernels::DequantizeCounts counts;
};

struct ConversionReport {
  std::size_t quantized = 0;
  std::size_t dequantized = 0;
  std::size_t kept = 0;  // with the skipped
  std::size_t dropped = 0;
  std::vector<std::pair<std::string, std::string>> skipped;  // name, reason
  std::uint64_t bytes_in = 0;                                // of tensors
  std::uint64_t bytes_out = 0;
  double seconds = 0;
  std::uint64_t peak_bytes = 0;  // anonymous memory of the process
  int threads = 1;
  std::size_t shards = 0;
  std::size_t resumed_shards = 0;          // that an earlier run had finished
  std::uint64_t non_finite = 0;            // source elements that became NaN codes
  std::vector<TensorCounts> counts;        // tensors that overflowed, underflowed or held NaN codes
  std::optional<QuantizationError> error;  // with measure_error
  std::vector<std::string> warnings;       // the plan's and what came up
};

// Writes `destination`: shards, index, config.json, side files. Space is checked before anything is
// written. Every file is written beside its final name and flushed; when all are whole, an old
// model goes and they get their names. A run that is cut off (killed, interrupted, full device)
// leaves finished shards and a journal for `resume`, which ends with the same bytes as one that was
// not, and refuses another input (bad_model) or other options (bad_value). A run that fails for its
// data leaves nothing. The source is never opened for writing, and a destination that is the source
// is refused whatever the path is spelled like. At most 64 MB per thread.
Result<ConversionReport> quantize_checkpoint(const Checkpoint& checkpoint,
                                             const ConversionPlan& plan,
                                             const QuantizeOptions& options,
                                             const ConversionOptions& run,
                                             const std::filesystem::path& destination);
Result<ConversionReport> dequantize_checkpoint(const Checkpoint& checkpoint,
                                               const ConversionPlan& plan,
                                               const DequantizeOptions& options,
                                               const ConversionOptions& run,
                                               const std::filesystem::path& destination);

// What an earlier run left in `destination` for `resume`.
struct UnfinishedRun {
  std::size_t finished_shards;
  std::size_t shards;
};
std::optional<UnfinishedRun> find_unfinished_run(const std::filesystem::path& destination);

}  // namespace octavo
