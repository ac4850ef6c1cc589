#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/base/ceil_div.h"
#include "octavo/base/machine.h"
#include "octavo/base/parallel.h"
#include "octavo/base/steady_seconds.h"
#include "octavo/checkpoint/bands_internal.h"
#include "octavo/checkpoint/conversion.h"
#include "octavo/checkpoint/output_directory_internal.h"
#include "octavo/checkpoint/output_shards_internal.h"
#include "octavo/checkpoint/resume_internal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// Bands that are planned at a time: their number grows with the model, memory does not.
constexpr std::size_t kBatchBands = 4096;

OutputTensor output_of(const Checkpoint& checkpoint, const ConversionPlan& plan,
                       const PlannedTensor& planned, DType dequantized, const BlockRecipe& recipe,
                       DType scale_dtype) {
  const CheckpointTensor& source = checkpoint.tensors[planned.source];
  const bool paired = plan.pairing.roles[planned.source] == Pairing::Role::weight;
  OutputTensor output{&planned, &source, nullptr, source.info.shape, source.info, {}};
  if (paired) {
    output.codes = &plan.pairing.weights[plan.pairing.weight_of[planned.source]];
    output.shape = output.codes->shape;
  }
  if (planned.action == Action::dequantize) {
    output.main = {source.info.name, dequantized, output.shape, 0, 0};
  } else if (planned.action == Action::quantize) {
    output.main = {source.info.name, DType::f8_e4m3, output.shape, 0, 0};
    Shape grid = output.shape;
    grid[grid.size() - 2] = ceil_div(grid[grid.size() - 2], recipe.block.rows);
    grid[grid.size() - 1] = ceil_div(grid[grid.size() - 1], recipe.block.cols);
    output.scale = TensorInfo{scale_name(source.info.name), scale_dtype, std::move(grid), 0, 0};
  }
  return output;
}

void add_pairing(OrderedJson& json, const PairingOptions& pairing) {
  json["--missing-scale-as-one"] = pairing.missing_scale_as_one;
  json["--u8-as-e4m3"] = pairing.u8_as_e4m3;
}

std::string block_text(const BlockSize& block) {
  return fmt::format("{},{}", block.rows, block.cols);
}

// Threads and instruction sets do not change bytes.
OrderedJson options_json(const QuantizeOptions& options, const ConversionOptions& run) {
  OrderedJson json = {{"command", "quantize"},
                      {"--weight-block-size", block_text(options.recipe.block)},
                      {"--scale-fmt", scale_format_name(options.recipe.scale_fmt)},
                      {"--scale-dtype", dtype_name(options.scale_dtype)},
                      {"--rule", rule_name(options.recipe.rule)},
                      {"--modules-to-not-convert", options.not_convert},
                      {"--modules-to-convert", options.convert},
                      {"--no-default-skips", !options.default_skips},
                      {"--requantize", options.requantize},
                      {"--allow-non-finite", options.allow_non_finite},
                      {"--measure-error", options.measure_error},
                      {"--max-shard-size", run.max_shard_bytes}};
  json["blocks of the source"] = options.pairing.block ? block_text(*options.pairing.block) : "";
  add_pairing(json, options.pairing);
  return json;
}

OrderedJson options_json(const DequantizeOptions& options, const ConversionOptions& run) {
  OrderedJson json = {
      {"command", "dequantize"},
      {"--dtype", dtype_name(options.dtype)},
      {"--clamp", options.clamp},
      {"--allow-non-finite", options.allow_non_finite},
      {"--weight-block-size", options.pairing.block ? block_text(*options.pairing.block) : ""},
      {"--max-shard-size", run.max_shard_bytes}};
  add_pairing(json, options.pairing);
  return json;
}

// One run: the parts that both directions share.
class Conversion {
 public:
  Conversion(const Checkpoint& checkpoint, const ConversionPlan& plan, const ConversionOptions& run,
             BandSettings settings, fs::path destination)
      : checkpoint_(checkpoint),
        plan_(plan),
        run_(run),
        settings_(settings),
        destination_(std::move(destination)) {}

  // `options`: what decides the bytes, for the journal.
  Result<ConversionReport> execute(std::vector<OutputTensor> outputs, OrderedJson options) {
    const double start = steady_seconds();
    std::optional<JournalState> before;
    if (run_.resume) {
      OCTAVO_TRY(before, read_journal(destination_));
    }
    const bool granted = run_.overwrite || (before && before->overwrite);
    const bool past_writing = before && before->phase != Phase::writing;
    OCTAVO_CHECK(check_destination(checkpoint_, destination_, granted || past_writing));
    describe(outputs);
    OCTAVO_TRY(shards_, arrange_shards(checkpoint_, std::move(outputs), run_.max_shard_bytes));
    results_.resize(shards_.size());
    report_.shards = shards_.size();
    OCTAVO_TRY(staged_, list_staged());
    OCTAVO_CHECK(check_names());
    OCTAVO_TRY(const RunIdentity identity,
               identify_run(checkpoint_, plan_, shards_, std::move(options)));
    if (before) {
      OCTAVO_CHECK(check_same_run(*before, identity, destination_));
      OCTAVO_CHECK(adopt_results(*before));
    }
    OCTAVO_CHECK(check_stop());
    const Phase phase = before ? before->phase : Phase::writing;
    if (phase == Phase::writing) OCTAVO_CHECK(check_space());

    OCTAVO_TRY(OutputDirectory directory, OutputDirectory::open(destination_));
    const bool created = directory.created() || (before && before->created);
    std::vector<std::string> lines = {header_line(identity, shards_.size(), granted, created)};
    for (const FinishedShard& shard : adopted_) lines.push_back(shard_line(shard));
    if (phase != Phase::writing) lines.push_back(phase_line(phase));
    OCTAVO_CHECK(directory.begin(lines, created));
    if (Result<void> written = write(directory, phase); !written)
      return std::unexpected(explained(std::move(written).error(), directory));
    report_.seconds = steady_seconds() - start;
    report_.peak_bytes = peak_anonymous_bytes();
    return std::move(report_);
  }

 private:
  // A file beside the shards: a copy of the source's, or a text.
  struct StagedFile {
    std::string name;
    std::uint64_t bytes;
    std::optional<std::string> text;
  };

  // In the order in which they get their names: side files, config, index; the weights follow.
  Result<std::vector<StagedFile>> list_staged() const {
    std::vector<StagedFile> files;
    for (const std::string& name : checkpoint_.side_files) {
      if (name == "config.json" ||
          std::ranges::find(plan_.dropped_files, name) != plan_.dropped_files.end()) {
        continue;
      }
      OCTAVO_TRY(const FileStamp stamp, stamp_of(checkpoint_.directory / name));
      files.push_back({name, stamp.size, std::nullopt});
    }
    const auto add_text = [&](std::string name, std::string text) {
      files.push_back({std::move(name), text.size(), std::move(text)});
    };
    if (!plan_.config_text.empty()) add_text("config.json", plan_.config_text);
    const bool as_source = run_.max_shard_bytes == 0 && !checkpoint_.index_name.empty();
    if (shards_.size() > 1 || as_source) {
      add_text(as_source ? checkpoint_.index_name : std::string(kIndexName),
               index_text(weight_map_of(shards_), report_.bytes_out));
    }
    return files;
  }

  // Nothing may stand in the way of a name: found now, it costs no work.
  Result<void> check_names() const {
    std::vector<std::string_view> names;
    for (const OutputShard& shard : shards_) names.push_back(shard.file_name);
    for (const StagedFile& file : staged_) names.push_back(file.name);
    for (const std::string_view name : names) {
      std::error_code error;
      if (fs::is_directory(destination_ / name, error)) {
        return fail(ErrorCode::io, fmt::format("{}: a directory stands where a file is to be "
                                               "written; remove it, or choose another output "
                                               "directory",
                                               (destination_ / name).string()));
      }
      if (partial_path(name) == kJournalName) {
        return fail(ErrorCode::unsupported,
                    fmt::format("{}: its name is what the journal of an unfinished run needs ({}); "
                                "rename it",
                                (checkpoint_.directory / name).string(), kJournalName));
      }
    }
    return {};
  }

  // What an earlier run finished and still stands there as it was left.
  Result<void> adopt_results(const JournalState& before) {
    std::vector<std::string> names;
    for (const OutputShard& shard : shards_) names.push_back(shard.file_name);
    for (const FinishedShard& shard : standing_shards(before, destination_, names)) {
      results_[shard.shard] = shard.result;
      adopted_.push_back(shard);
    }
    report_.resumed_shards = adopted_.size();
    if (before.phase == Phase::writing || adopted_.size() == shards_.size()) return {};
    return fail(
        ErrorCode::io,
        fmt::format("{}: {} of {} new shards are not as the run left them; start again "
                    "without --resume",
                    destination_.string(), shards_.size() - adopted_.size(), shards_.size()));
  }

  Result<void> check_space() const {
    std::uint64_t needed = 0;
    std::uint64_t reclaimed = 0;
    const auto add = [&](const std::string& name, std::uint64_t bytes) {
      if (__builtin_add_overflow(needed, bytes, &needed)) needed = ~std::uint64_t{0};
      reclaimed += allocated_bytes(partial_path(destination_ / name));
    };
    for (std::size_t i = 0; i < shards_.size(); ++i)
      if (!results_[i]) add(shards_[i].file_name, shards_[i].file_bytes);
    for (const StagedFile& file : staged_) add(file.name, file.bytes);
    return octavo::check_space(destination_, needed, reclaimed);
  }

  Result<void> check_stop() const {
    if (run_.stop == nullptr || !run_.stop->load(std::memory_order_relaxed)) return {};
    return fail(ErrorCode::interrupted, "interrupted before anything was written");
  }

  // From nothing, or from where an earlier run stood, to the end.
  Result<void> write(OutputDirectory& directory, Phase phase) {
    for (const FinishedShard& finished : adopted_) {
      const OutputShard& shard = shards_[finished.shard];
      directory.adopt_shard(shard.file_name);
      for (const OutputTensor& output : shard.outputs) done_ += output.source->info.bytes;
    }
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (!results_[i]) OCTAVO_CHECK(write_shard(i, directory));
    }
    OCTAVO_CHECK(directory.finish_flushing());
    for (const std::optional<ShardResult>& result : results_) add_to_report(*result);
    OCTAVO_CHECK(check_counts());
    for (const StagedFile& file : staged_) {
      if (phase != Phase::writing) {
        directory.adopt_staged(file.name, file.bytes);
        continue;
      }
      OCTAVO_CHECK(check_stop());
      OCTAVO_CHECK(file.text ? directory.stage_text(file.name, *file.text)
                             : directory.stage_copy(checkpoint_.directory / file.name, file.name));
    }
    if (phase == Phase::writing) OCTAVO_CHECK(check_stop());
    return directory.commit(phase);
  }

  // What stays and how to go on. Bad data stays bad: nothing of it is kept.
  Error explained(Error error, OutputDirectory& directory) const {
    if (directory.committing()) {
      error.message +=
          fmt::format("; the new model is whole, {} puts it in place", run_.resume_command);
      return error;
    }
    if (error.code != ErrorCode::io && error.code != ErrorCode::interrupted) return error;
    const std::size_t kept = directory.keep_finished();
    const std::string done = fmt::format("{} of {} shards are finished", kept, shards_.size());
    if (error.code == ErrorCode::interrupted) {
      error.message = fmt::format(
          "interrupted: {}; {}", done,
          kept > 0 ? run_.resume_command + " goes on from there" : "nothing of it is kept");
    } else if (kept > 0) {
      error.message +=
          fmt::format("; {} and kept: {} goes on from there", done, run_.resume_command);
    }
    return error;
  }

  void describe(const std::vector<OutputTensor>& outputs) {
    report_.threads = run_.threads;
    report_.bytes_in = checkpoint_.tensor_bytes;
    report_.warnings = plan_.warnings;
    for (const OutputTensor& output : outputs) {
      report_.bytes_out += output_bytes(output);
      source_bytes_ += output.source->info.bytes;
    }
    for (const PlannedTensor& planned : plan_.tensors) {
      switch (planned.action) {
        case Action::quantize:
          ++report_.quantized;
          break;
        case Action::dequantize:
          ++report_.dequantized;
          break;
        case Action::keep:
          ++report_.kept;
          break;
        case Action::drop:
          ++report_.dropped;
          break;
      }
      if (planned.skipped)
        report_.skipped.emplace_back(checkpoint_.tensors[planned.source].info.name, planned.reason);
    }
    for (const std::string& file : plan_.dropped_files)
      report_.warnings.push_back(file + " is left out: it describes the source");
    for (const std::string& file : checkpoint_.other_weights) {
      report_.warnings.push_back(file + " is left out: weights in another form");
    }
    if (settings_.measure_error) report_.error.emplace();
  }

  Result<void> write_shard(std::size_t index, OutputDirectory& directory) {
    const OutputShard& shard = shards_[index];
    OCTAVO_TRY(File file, directory.create(shard.file_name));
    OCTAVO_CHECK(file.write_at(0, std::as_bytes(std::span(shard.head))));
    ShardResult result;
    std::vector<Band> batch;
    for (std::size_t i = 0; i < shard.outputs.size(); ++i) {
      OCTAVO_CHECK(cut_bands(shard.outputs[i], i, settings_.recipe.block,
                             [&](const Band& band) -> Result<void> {
                               batch.push_back(band);
                               if (batch.size() < kBatchBands) return {};
                               return convert_batch(shard, batch, file, result);
                             }));
    }
    OCTAVO_CHECK(convert_batch(shard, batch, file, result));
    results_[index] = result;
    return directory.finish_in_background(std::move(file),
                                          {index, shard.file_name, 0, 0, std::move(result)});
  }

  // Empties `batch`.
  Result<void> convert_batch(const OutputShard& shard, std::vector<Band>& batch, const File& file,
                             ShardResult& result) {
    std::vector<BandResult> results(batch.size());
    OCTAVO_CHECK(
        parallel_for(batch.size(), run_.threads, [&](int worker, std::size_t i) -> Result<void> {
          if (Result<void> stopped = check_stop(); !stopped) return stopped;
          const OutputTensor& output = shard.outputs[batch[i].output];
          OCTAVO_TRY(results[i], convert_band(settings_, output, batch[i], file,
                                              scratch_[static_cast<std::size_t>(worker)]));
          const std::uint64_t done = done_.fetch_add(batch[i].bytes) + batch[i].bytes;
          if (run_.on_progress) run_.on_progress(done, source_bytes_);
          return {};
        }));
    gather(shard, batch, results, result);
    peak_anonymous_bytes();
    batch.clear();
    return {};
  }

  // In the order of bands, so that sums do not depend on threads.
  static void gather(const OutputShard& shard, const std::vector<Band>& bands,
                     const std::vector<BandResult>& results, ShardResult& sum) {
    for (std::size_t i = 0; i < bands.size(); ++i) {
      const BandResult& result = results[i];
      sum.non_finite += result.non_finite;
      add(sum.error, result.error);
      const kernels::DequantizeCounts& counts = result.counts;
      if (counts.overflow + counts.underflow + counts.nan == 0) continue;
      const std::string& name = shard.outputs[bands[i].output].main.name;
      if (sum.counts.empty() || sum.counts.back().name != name) sum.counts.push_back({name, {}});
      sum.counts.back().counts.overflow += counts.overflow;
      sum.counts.back().counts.underflow += counts.underflow;
      sum.counts.back().counts.nan += counts.nan;
    }
  }

  static void add(QuantizationError& sum, const QuantizationError& error) {
    sum.max_abs = std::max(sum.max_abs, error.max_abs);
    sum.sum_squared_error += error.sum_squared_error;
    sum.sum_squared_source += error.sum_squared_source;
    sum.elements += error.elements;
  }

  // In the order of shards, so that sums do not depend on which an earlier run finished.
  void add_to_report(const ShardResult& result) {
    report_.non_finite += result.non_finite;
    if (report_.error) add(*report_.error, result.error);
    report_.counts.insert(report_.counts.end(), result.counts.begin(), result.counts.end());
  }

  Result<void> check_counts() const {
    std::size_t tensors = 0;
    const TensorCounts* worst = nullptr;
    for (const TensorCounts& entry : report_.counts) {
      if (entry.counts.overflow == 0) continue;
      ++tensors;
      if (worst == nullptr || entry.counts.overflow > worst->counts.overflow) worst = &entry;
    }
    if (worst == nullptr || settings_.clamp) return {};
    std::string remedy;
    if (settings_.can_clamp) {
      remedy = "; --clamp makes them its largest value";
      if (settings_.dequantized == DType::f16) remedy += ", --dtype bf16 or f32 has more range";
    }
    return fail(ErrorCode::bad_model,
                fmt::format("{}: {} elements are too large for {} ({} tensors overflow in all); "
                            "nothing is kept{}",
                            worst->name, worst->counts.overflow, dtype_name(settings_.dequantized),
                            tensors, remedy));
  }

  const Checkpoint& checkpoint_;
  const ConversionPlan& plan_;
  const ConversionOptions& run_;
  BandSettings settings_;
  fs::path destination_;
  std::vector<OutputShard> shards_;
  std::vector<std::optional<ShardResult>> results_;  // by shard; none: to be written
  std::vector<FinishedShard> adopted_;               // of an earlier run
  std::vector<StagedFile> staged_;
  std::vector<Scratch> scratch_ = std::vector<Scratch>(static_cast<std::size_t>(run_.threads));
  std::uint64_t source_bytes_ = 0;  // of what is written
  std::atomic<std::uint64_t> done_ = 0;
  ConversionReport report_;
};

}  // namespace

double QuantizationError::rms() const {
  return elements == 0 ? 0 : std::sqrt(sum_squared_error / static_cast<double>(elements));
}

double QuantizationError::snr_db() const {
  if (sum_squared_error == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(sum_squared_source / sum_squared_error);
}

Result<ConversionReport> quantize_checkpoint(const Checkpoint& checkpoint,
                                             const ConversionPlan& plan,
                                             const QuantizeOptions& options,
                                             const ConversionOptions& run,
                                             const fs::path& destination) {
  std::vector<OutputTensor> outputs;
  for (const PlannedTensor& planned : plan.tensors) {
    if (planned.action == Action::drop) continue;
    outputs.push_back(
        output_of(checkpoint, plan, planned, DType::bf16, options.recipe, options.scale_dtype));
  }
  const BandSettings settings{.checkpoint = checkpoint,
                              .kernels = kernels::cast_kernels(),
                              .recipe = options.recipe,
                              .allow_non_finite = options.allow_non_finite,
                              .measure_error = options.measure_error};
  return Conversion(checkpoint, plan, run, settings, destination)
      .execute(std::move(outputs), options_json(options, run));
}

Result<ConversionReport> dequantize_checkpoint(const Checkpoint& checkpoint,
                                               const ConversionPlan& plan,
                                               const DequantizeOptions& options,
                                               const ConversionOptions& run,
                                               const fs::path& destination) {
  std::vector<OutputTensor> outputs;
  for (const PlannedTensor& planned : plan.tensors) {
    if (planned.action == Action::drop) continue;
    outputs.push_back(output_of(checkpoint, plan, planned, options.dtype, {}, DType::f32));
  }
  const BandSettings settings{.checkpoint = checkpoint,
                              .kernels = kernels::cast_kernels(),
                              .recipe = {},
                              .allow_non_finite = options.allow_non_finite,
                              .dequantized = options.dtype,
                              .can_clamp = true,
                              .clamp = options.clamp};
  return Conversion(checkpoint, plan, run, settings, destination)
      .execute(std::move(outputs), options_json(options, run));
}

}  // namespace octavo
