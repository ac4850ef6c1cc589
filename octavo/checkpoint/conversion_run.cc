#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <set>

#include "octavo/base/machine.h"
#include "octavo/base/parallel.h"
#include "octavo/checkpoint/bands_internal.h"
#include "octavo/checkpoint/conversion.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";

struct OutputShard {
  std::string file_name;
  std::map<std::string, std::string> metadata;
  std::vector<OutputTensor> outputs;
};

// What this run has put under final names, to be taken away again if it fails; and the flush that
// goes on in the background.
class Published {
 public:
  explicit Published(fs::path directory) : directory_(std::move(directory)) {
    std::error_code ignored;
    created_ = fs::create_directories(directory_, ignored);
  }
  ~Published() {
    if (pending_.valid()) pending_.wait();
    std::error_code ignored;
    for (const fs::path& path : files_) {
      fs::remove(partial_path(path), ignored);
      if (!keep_) fs::remove(path, ignored);
    }
    if (!keep_ && created_) remove_empty(directory_);
  }
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  // Before `path` is written.
  void announce(const fs::path& path) { files_.push_back(path); }
  void keep() { keep_ = true; }

  // The device writes a finished file while the next one is computed; one at a time waits for it.
  Result<void> flush_in_background(File file, fs::path path) {
    OCTAVO_CHECK(finish());
    pending_ = std::async(std::launch::async,
                          [file = std::move(file), path = std::move(path)]() -> Result<void> {
                            OCTAVO_CHECK(file.sync());
                            return publish(path);
                          });
    return {};
  }

  Result<void> finish() {
    if (!pending_.valid()) return {};
    return pending_.get();
  }

 private:
  static void remove_empty(const fs::path& directory) {
    std::error_code error;
    std::vector<fs::path> inner;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      if (entry.is_directory(error)) inner.push_back(entry.path());
    }
    for (const fs::path& path : inner) remove_empty(path);
    fs::remove(directory, error);  // refuses where something is left in it
  }

  fs::path directory_;
  std::vector<fs::path> files_;
  std::future<Result<void>> pending_;
  bool created_ = false;
  bool keep_ = false;
};

// Same directory, or one inside the source, whatever the spelling: links and dots are resolved.
Result<void> check_destination(const Checkpoint& checkpoint, const fs::path& destination,
                               bool overwrite) {
  std::error_code error;
  const fs::path source =
      fs::weakly_canonical(checkpoint.directory.empty() ? "." : checkpoint.directory, error);
  const fs::path target = fs::weakly_canonical(destination, error);
  if (error)
    return fail(ErrorCode::io, fmt::format("{}: {}", destination.string(), error.message()));
  const auto [in_source, in_target] = std::ranges::mismatch(source, target);
  if (in_source == source.end() || fs::equivalent(source, target, error)) {
    return fail(
        ErrorCode::bad_value,
        fmt::format("{}: the output would lie in the input directory {}; choose another one",
                    destination.string(), source.string()));
  }
  if (fs::exists(target, error) && !fs::is_directory(target, error)) {
    return fail(ErrorCode::bad_value,
                fmt::format("{}: is there and is not a directory", destination.string()));
  }
  if (fs::is_directory(target, error) && !fs::is_empty(target, error) && !overwrite) {
    return fail(ErrorCode::bad_value,
                fmt::format("{}: is not empty; --overwrite replaces the model in it",
                            destination.string()));
  }
  return {};
}

// With --overwrite: what makes the directory look like a model goes first, so that nothing of the
// old one is left beside the new.
Result<void> clear_old_model(const fs::path& destination) {
  std::error_code error;
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(destination, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name == "hf_quant_config.json" || name.ends_with(".safetensors") ||
        name.ends_with(kIndexSuffix) || name.ends_with(".partial")) {
      old.push_back(entry.path());
    }
  }
  for (const fs::path& path : old) {
    if (!fs::remove(path, error) && error) {
      return fail(ErrorCode::io,
                  fmt::format("cannot remove {}: {}", path.string(), error.message()));
    }
  }
  return {};
}

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
SafetensorsLayout lay_out(OutputShard& shard) {
  std::vector<TensorInfo> tensors;
  for (const OutputTensor& output : shard.outputs) {
    tensors.push_back(output.main);
    if (output.scale) tensors.push_back(*output.scale);
  }
  SafetensorsLayout layout = layout_safetensors(std::move(tensors), shard.metadata);
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
    Published published(destination_);
    OCTAVO_CHECK(clear_old_model(destination_));
    describe(outputs);
    std::vector<OutputShard> shards =
        arrange(checkpoint_, std::move(outputs), run_.max_shard_bytes);
    if (!plan_.config_text.empty()) published.announce(destination_ / "config.json");
    for (OutputShard& shard : shards) OCTAVO_CHECK(write_shard(shard, published));
    OCTAVO_CHECK(published.finish());
    OCTAVO_CHECK(check_counts());
    OCTAVO_CHECK(write_side_files(published));
    if (!plan_.config_text.empty())
      OCTAVO_CHECK(write_text(destination_ / "config.json", plan_.config_text));
    if (shards.size() > 1 || (!checkpoint_.index_name.empty() && run_.max_shard_bytes == 0)) {
      const std::string name = checkpoint_.index_name.empty() || run_.max_shard_bytes != 0
                                   ? std::string(kIndexName)
                                   : checkpoint_.index_name;
      published.announce(destination_ / name);
      OCTAVO_CHECK(write_text(destination_ / name, index_text(shards, report_.bytes_out)));
    }
    published.keep();
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
    for (const OutputTensor& output : outputs) report_.bytes_out += output_bytes(output);
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

  Result<void> write_shard(OutputShard& shard, Published& published) {
    const SafetensorsLayout layout = lay_out(shard);
    const fs::path path = destination_ / shard.file_name;
    std::error_code ignored;
    fs::create_directories(path.parent_path(), ignored);
    published.announce(path);
    OCTAVO_TRY(File file, File::create(partial_path(path)));
    OCTAVO_CHECK(file.write_at(0, std::as_bytes(std::span(layout.head))));

    std::vector<Band> bands;
    for (std::size_t i = 0; i < shard.outputs.size(); ++i) {
      const std::vector<Band> cut = cut_bands(shard.outputs[i], i, settings_.recipe.block);
      bands.insert(bands.end(), cut.begin(), cut.end());
    }
    std::vector<BandResult> results(bands.size());
    OCTAVO_CHECK(
        parallel_for(bands.size(), run_.threads, [&](int worker, std::size_t i) -> Result<void> {
          const OutputTensor& output = shard.outputs[bands[i].output];
          OCTAVO_TRY(results[i], convert_band(settings_, output, bands[i], file,
                                              scratch_[static_cast<std::size_t>(worker)]));
          const std::uint64_t done = done_.fetch_add(bands[i].bytes) + bands[i].bytes;
          if (run_.on_progress) run_.on_progress(done, checkpoint_.tensor_bytes);
          return {};
        }));
    gather(shard, bands, results);
    peak_anonymous_bytes();
    return published.flush_in_background(std::move(file), path);
  }

  // In the order of bands, so that sums do not depend on threads.
  void gather(const OutputShard& shard, const std::vector<Band>& bands,
              const std::vector<BandResult>& results) {
    std::size_t last = std::numeric_limits<std::size_t>::max();
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
      if (last != bands[i].output)
        report_.counts.push_back({shard.outputs[bands[i].output].main.name, {}});
      last = bands[i].output;
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
    return fail(ErrorCode::bad_model,
                fmt::format("{}: {} elements are too large for the dtype ({} tensors overflow in "
                            "all); nothing is kept. --clamp "
                            "makes them its largest value, --dtype bf16 holds them",
                            worst->name, worst->counts.overflow, tensors));
  }

  Result<void> write_side_files(Published& published) {
    for (const std::string& file : checkpoint_.side_files) {
      if (file == "config.json" ||
          std::ranges::find(plan_.dropped_files, file) != plan_.dropped_files.end())
        continue;
      const fs::path to = destination_ / file;
      std::error_code ignored;
      fs::create_directories(to.parent_path(), ignored);
      published.announce(to);
      OCTAVO_CHECK(copy_regular_file(checkpoint_.directory / file, to));
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const ConversionPlan& plan_;
  const ConversionOptions& run_;
  BandSettings settings_;
  fs::path destination_;
  std::vector<Scratch> scratch_ = std::vector<Scratch>(static_cast<std::size_t>(run_.threads));
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
                              .clamp = options.clamp};
  return Conversion(checkpoint, plan, run, settings, destination).execute(std::move(outputs));
}

}  // namespace octavo
