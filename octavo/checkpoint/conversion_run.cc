#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "octavo/base/machine.h"
#include "octavo/base/parallel.h"
#include "octavo/checkpoint/bands_internal.h"
#include "octavo/checkpoint/conversion.h"
#include "octavo/checkpoint/output_directory_internal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";

// Bands that are planned at a time: their number grows with the model, memory does not.
constexpr std::size_t kBatchBands = 4096;

struct OutputShard {
  std::string file_name;
  std::map<std::string, std::string> metadata;
  std::vector<OutputTensor> outputs;
};

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

std::uint64_t output_bytes(const OutputTensor& output) {
  std::uint64_t bytes = byte_count(output.main.dtype, output.main.shape).value();
  if (output.scale) bytes += byte_count(output.scale->dtype, output.scale->shape).value();
  return bytes;
}

// Shards as the input has them, or filled in input order up to `max_bytes`; a weight and its scales
// stay together.
std::vector<OutputShard> arrange(const Checkpoint& checkpoint, std::vector<OutputTensor> outputs,
                                 std::uint64_t max_bytes) {
  std::vector<OutputShard> shards;
  if (max_bytes == 0) {
    for (const Shard& shard : checkpoint.shards)
      shards.push_back({shard.file_name, shard.metadata, {}});
    for (OutputTensor& output : outputs)
      shards[output.source->shard].outputs.push_back(std::move(output));
    // A shard that held nothing but scales of weights in other shards is not written.
    if (shards.size() > 1)
      std::erase_if(shards, [](const OutputShard& shard) { return shard.outputs.empty(); });
  } else {
    std::uint64_t filled = 0;
    for (OutputTensor& output : outputs) {
      const std::uint64_t bytes = output_bytes(output);
      if (shards.empty() || (filled > 0 && filled + bytes > max_bytes)) {
        shards.push_back({"", checkpoint.shards[0].metadata, {}});
        filled = 0;
      }
      filled += bytes;
      shards.back().outputs.push_back(std::move(output));
    }
    if (shards.empty()) shards.push_back({"", checkpoint.shards[0].metadata, {}});
    for (std::size_t i = 0; i < shards.size(); ++i) {
      shards[i].file_name = shards.size() == 1 ? "model.safetensors"
                                               : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                             i + 1, shards.size());
    }
  }
  for (OutputShard& shard : shards) shard.metadata.try_emplace("format", "pt");
  return shards;
}

// Fixes the offsets of a shard's tensors; returns its layout.
Result<SafetensorsLayout> lay_out(OutputShard& shard) {
  std::vector<TensorInfo> tensors;
  for (const OutputTensor& output : shard.outputs) {
    tensors.push_back(output.main);
    if (output.scale) tensors.push_back(*output.scale);
  }
  SafetensorsLayout layout = layout_safetensors(std::move(tensors), shard.metadata);
  if (layout.head.size() - 8 > kMaxHeaderBytes) {
    return fail(
        ErrorCode::unsupported,
        fmt::format("{}: its header would have {} bytes, readers accept {}; --max-shard-size "
                    "makes smaller shards",
                    shard.file_name, layout.head.size() - 8, kMaxHeaderBytes));
  }
  std::map<std::string_view, const TensorInfo*> placed;
  for (const TensorInfo& tensor : layout.tensors) placed.emplace(tensor.name, &tensor);
  for (OutputTensor& output : shard.outputs) {
    output.main = *placed.at(output.main.name);
    if (output.scale) output.scale = *placed.at(output.scale->name);
  }
  return layout;
}

std::string index_text(const std::vector<OutputShard>& shards, std::uint64_t total_size) {
  std::map<std::string, std::string_view> map;
  for (const OutputShard& shard : shards) {
    for (const OutputTensor& output : shard.outputs) {
      map.emplace(output.main.name, shard.file_name);
      if (output.scale) map.emplace(output.scale->name, shard.file_name);
    }
  }
  std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total_size);
  bool first = true;
  for (const auto& [tensor, file] : map) {
    text += fmt::format("{}\n    {}: {}", first ? "" : ",", Json(tensor).dump(), Json(file).dump());
    first = false;
  }
  return text + (first ? "}\n}\n" : "\n  }\n}\n");
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

  Result<ConversionReport> execute(std::vector<OutputTensor> outputs) {
    const auto start = std::chrono::steady_clock::now();
    OCTAVO_CHECK(check_destination(checkpoint_, destination_, run_.overwrite));
    OCTAVO_TRY(OutputDirectory directory, OutputDirectory::open(destination_));
    describe(outputs);
    std::vector<OutputShard> shards =
        arrange(checkpoint_, std::move(outputs), run_.max_shard_bytes);
    for (OutputShard& shard : shards) OCTAVO_CHECK(write_shard(shard, directory));
    OCTAVO_CHECK(directory.finish_flushing());
    OCTAVO_CHECK(check_counts());

    OCTAVO_CHECK(stage_side_files(directory));
    if (!plan_.config_text.empty()) {
      OCTAVO_CHECK(directory.stage_text("config.json", plan_.config_text));
    }
    const bool as_source = run_.max_shard_bytes == 0 && !checkpoint_.index_name.empty();
    if (shards.size() > 1 || as_source) {
      OCTAVO_CHECK(
          directory.stage_text(as_source ? checkpoint_.index_name : std::string(kIndexName),
                               index_text(shards, report_.bytes_out)));
    }
    OCTAVO_CHECK(directory.commit());
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report_.peak_bytes = peak_anonymous_bytes();
    return std::move(report_);
  }

 private:
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

  Result<void> write_shard(OutputShard& shard, OutputDirectory& directory) {
    OCTAVO_TRY(const SafetensorsLayout layout, lay_out(shard));
    OCTAVO_TRY(File file, directory.create(shard.file_name));
    OCTAVO_CHECK(file.write_at(0, std::as_bytes(std::span(layout.head))));
    std::vector<Band> batch;
    for (std::size_t i = 0; i < shard.outputs.size(); ++i) {
      OCTAVO_CHECK(cut_bands(shard.outputs[i], i, settings_.recipe.block,
                             [&](const Band& band) -> Result<void> {
                               batch.push_back(band);
                               if (batch.size() < kBatchBands) return {};
                               return convert_batch(shard, batch, file);
                             }));
    }
    OCTAVO_CHECK(convert_batch(shard, batch, file));
    return directory.flush_in_background(std::move(file));
  }

  // Empties `batch`.
  Result<void> convert_batch(const OutputShard& shard, std::vector<Band>& batch, const File& file) {
    std::vector<BandResult> results(batch.size());
    OCTAVO_CHECK(
        parallel_for(batch.size(), run_.threads, [&](int worker, std::size_t i) -> Result<void> {
          const OutputTensor& output = shard.outputs[batch[i].output];
          OCTAVO_TRY(results[i], convert_band(settings_, output, batch[i], file,
                                              scratch_[static_cast<std::size_t>(worker)]));
          const std::uint64_t done = done_.fetch_add(batch[i].bytes) + batch[i].bytes;
          if (run_.on_progress) run_.on_progress(done, source_bytes_);
          return {};
        }));
    gather(shard, batch, results);
    peak_anonymous_bytes();
    batch.clear();
    return {};
  }

  // In the order of bands, so that sums do not depend on threads.
  void gather(const OutputShard& shard, const std::vector<Band>& bands,
              const std::vector<BandResult>& results) {
    for (std::size_t i = 0; i < bands.size(); ++i) {
      const BandResult& result = results[i];
      report_.non_finite += result.non_finite;
      if (report_.error) {
        report_.error->max_abs = std::max(report_.error->max_abs, result.error.max_abs);
        report_.error->sum_squared_error += result.error.sum_squared_error;
        report_.error->sum_squared_source += result.error.sum_squared_source;
        report_.error->elements += result.error.elements;
      }
      const kernels::DequantizeCounts& counts = result.counts;
      if (counts.overflow + counts.underflow + counts.nan == 0) continue;
      const std::string& name = shard.outputs[bands[i].output].main.name;
      if (report_.counts.empty() || report_.counts.back().name != name) {
        report_.counts.push_back({name, {}});
      }
      report_.counts.back().counts.overflow += counts.overflow;
      report_.counts.back().counts.underflow += counts.underflow;
      report_.counts.back().counts.nan += counts.nan;
    }
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
    return fail(
        ErrorCode::bad_model,
        fmt::format("{}: {} elements are too large for {} ({} tensors overflow in all); "
                    "nothing is kept{}",
                    worst->name, worst->counts.overflow, dtype_name(settings_.dequantized), tensors,
                    settings_.can_clamp ? ". --clamp makes them its largest value"
                                          "bf16 or f32 has more range"
                                        : ""));
  }

  Result<void> stage_side_files(OutputDirectory& directory) {
    for (const std::string& file : checkpoint_.side_files) {
      if (file == "config.json" ||
          std::ranges::find(plan_.dropped_files, file) != plan_.dropped_files.end()) {
        continue;
      }
      OCTAVO_CHECK(directory.stage_copy(checkpoint_.directory / file, file));
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const ConversionPlan& plan_;
  const ConversionOptions& run_;
  BandSettings settings_;
  fs::path destination_;
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
  return Conversion(checkpoint, plan, run, settings, destination).execute(std::move(outputs));
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
  return Conversion(checkpoint, plan, run, settings, destination).execute(std::move(outputs));
}

}  // namespace octavo
