// The tiny models that Transformers wrote (tests/golden/models), whole or changed, and runs of
// them.
#pragma once

#include <gtest/gtest.h>
#include <xxhash.h>

#include <map>
#include <string>
#include <vector>

#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/checkpoint_testing.h"
#include "octavo/models/load.h"

namespace octavo::testing {

inline constexpr const char* kTinyModels[] = {"llama3",  "llama_tied", "llama_yarn",
                                              "mistral", "qwen2",      "qwen3"};

inline std::filesystem::path golden_models() { return OCTAVO_GOLDEN_DIR "/models"; }

// What a test cannot do without; its message where it is not there.
template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

// A model directory in memory, to change and to write.
struct ModelFiles {
  Json config;
  std::map<std::string, RawTensor> tensors;

  RawTensor& at(const std::string& name) { return tensors.at(name); }
  void add(RawTensor tensor) { tensors[tensor.name] = std::move(tensor); }
  void rename(const std::string& from, const std::string& to) {
    RawTensor tensor = std::move(at(from));
    tensors.erase(from);
    tensor.name = to;
    add(std::move(tensor));
  }

  void write(const std::filesystem::path& directory) const {
    std::filesystem::create_directories(directory);
    std::ofstream(directory / "config.json") << config.dump();
    std::vector<RawTensor> all;
    for (const auto& [name, tensor] : tensors) all.push_back(tensor);
    std::ofstream(directory / "model.safetensors", std::ios::binary) << safetensors_bytes(all);
  }
};

inline ModelFiles read_files(const std::filesystem::path& directory) {
  const Checkpoint checkpoint = must(open_checkpoint(directory));
  ModelFiles files{checkpoint.config, {}};
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    std::vector<std::byte> bytes(tensor.info.bytes);
    if (!checkpoint.read(tensor, 0, bytes)) throw std::runtime_error(tensor.info.name);
    files.add({tensor.info.name, std::string(dtype_name(tensor.info.dtype)), tensor.info.shape,
               std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  }
  return files;
}

inline models::LoadOptions quantizing(const std::optional<QuantizeOptions>& quantize) {
  models::LoadOptions options;
  options.quantize = quantize;
  return options;
}

inline models::LoadOptions dequantizing() {
  models::LoadOptions options;
  options.dequantize = true;
  return options;
}

inline models::LoadedModel load(const std::filesystem::path& directory,
                                const models::LoadOptions& options = {}) {
  return must(models::load_model(must(open_checkpoint(directory)), options));
}

// How a model is run; `chunk` tokens together.
struct RunOptions {
  nn::ActivationType activations = nn::ActivationType::fp8;
  Format kv_cache = Format::bf16;
  std::size_t chunk = 512;
  int threads = 1;
};

using Tokens = std::vector<std::int32_t>;

// Logits (tokens, vocabulary) of each sequence, all of them side by side. Sequence i takes its
// tokens in pieces of chunk + i, so that neighbours change.
inline std::vector<std::vector<float>> run_batch(const models::Llama& model,
                                                 const std::vector<Tokens>& sequences,
                                                 const RunOptions& run) {
  const models::ModelConfig& config = model.config;
  ThreadPool pool(run.threads);
  const Context context{&pool};
  nn::Arena arena;
  std::vector<ops::KvCache> caches;
  for (const Tokens& tokens : sequences) {
    caches.emplace_back(ops::KvCacheShape{config.num_hidden_layers, config.num_key_value_heads,
                                          config.head_dim, tokens.size(), run.kv_cache});
  }
  std::vector<std::vector<float>> logits(sequences.size());
  std::vector<std::size_t> done(sequences.size());
  while (true) {
    Tokens ids;
    std::vector<nn::Segment> segments;
    std::vector<std::size_t> owners;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::size_t count = std::min(run.chunk + i, sequences[i].size() - done[i]);
      if (count == 0) continue;
      segments.push_back({&caches[i], ids.size(), count, done[i]});
      owners.push_back(i);
      const auto first = sequences[i].begin() + static_cast<std::ptrdiff_t>(done[i]);
      ids.insert(ids.end(), first, first + static_cast<std::ptrdiff_t>(count));
      done[i] += count;
    }
    if (ids.empty()) return logits;
    arena.reset();
    const nn::Step step{arena, run.activations, context};
    const nn::Value out =
        models::logits(step, model, models::hidden_states(step, model, ids, segments));
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const float* rows = out.row(segments[s].first_row);
      std::vector<float>& to = logits[owners[s]];
      to.insert(to.end(), rows, rows + segments[s].rows * out.cols);
    }
  }
}

inline std::vector<float> run_alone(const models::Llama& model, const Tokens& tokens,
                                    const RunOptions& run) {
  return run_batch(model, {tokens}, run).front();
}

// XXH3 of the bytes, as 16 hexadecimal digits.
inline std::string hash_of(const std::vector<float>& values) {
  char text[17];
  std::snprintf(
      text, sizeof text, "%016llx",
      static_cast<unsigned long long>(XXH3_64bits(values.data(), values.size() * sizeof(float))));
  return text;
}

}  // namespace octavo::testing
