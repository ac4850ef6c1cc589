#include "tests/support/giant.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <stdexcept>

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kHidden = 7168;
constexpr std::uint64_t kVocabulary = 129280;
constexpr std::size_t kLayers = 61;  // and one more that predicts a second token
constexpr std::size_t kFiles = 163;

// A matrix of FP8 and its scales, one for each block of 128 x 128.
void add_linear(GiantFile& to, const std::string& name, std::uint64_t rows, std::uint64_t cols) {
  to.push_back({name + ".weight", "F8_E4M3", {rows, cols}});
  to.push_back({name + ".weight_scale_inv", "F32", {(rows + 127) / 128, (cols + 127) / 128}});
}

void add_wide(GiantFile& to, const std::string& name, Dims shape) {
  to.push_back({name + ".weight", "BF16", std::move(shape)});
}

void add_mlp(GiantFile& to, const std::string& prefix, std::uint64_t width) {
  add_linear(to, prefix + "gate_proj", width, kHidden);
  add_linear(to, prefix + "up_proj", width, kHidden);
  add_linear(to, prefix + "down_proj", kHidden, width);
}

void add_layer(GiantFile& to, std::size_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const std::string attention = prefix + "self_attn.";
  add_linear(to, attention + "q_a_proj", 1536, kHidden);
  add_wide(to, attention + "q_a_layernorm", {1536});
  add_linear(to, attention + "q_b_proj", 24576, 1536);
  add_linear(to, attention + "kv_a_proj_with_mqa", 576, kHidden);
  add_wide(to, attention + "kv_a_layernorm", {512});
  add_linear(to, attention + "kv_b_proj", 32768, 512);
  add_linear(to, attention + "o_proj", kHidden, 16384);
  const std::string mlp = prefix + "mlp.";
  if (layer < 3) {
    add_mlp(to, mlp, 18432);
  } else {
    add_wide(to, mlp + "gate", {256, kHidden});
    to.push_back({mlp + "gate.e_score_correction_bias", "F32", {256}});
    add_mlp(to, mlp + "shared_experts.", 2048);
    for (int expert = 0; expert < 256; ++expert)
      add_mlp(to, mlp + "experts." + std::to_string(expert) + ".", 2048);
  }
  add_wide(to, prefix + "input_layernorm", {kHidden});
  add_wide(to, prefix + "post_attention_layernorm", {kHidden});
}

void add_last(GiantFile& to) {
  add_wide(to, "model.norm", {kHidden});
  add_wide(to, "lm_head", {kVocabulary, kHidden});
  add_layer(to, kLayers);
  const std::string prefix = "model.layers." + std::to_string(kLayers) + ".";
  add_wide(to, prefix + "embed_tokens", {kVocabulary, kHidden});
  add_wide(to, prefix + "enorm", {kHidden});
  add_wide(to, prefix + "hnorm", {kHidden});
  add_wide(to, prefix + "eh_proj", {kHidden, 2 * kHidden});
  add_wide(to, prefix + "shared_head.norm", {kHidden});
  add_wide(to, prefix + "shared_head.head", {kVocabulary, kHidden});
}

std::uint64_t count_of(const TensorSpec& tensor) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : tensor.shape) count *= extent;
  return count;
}

std::uint64_t bytes_of(const TensorSpec& tensor) {
  return count_of(tensor) * dtype_bytes(tensor.dtype);
}

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw std::runtime_error(path.string() + ": " + what);
}

class OutputFile {
 public:
  explicit OutputFile(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail(path_, "cannot be created");
  }
  ~OutputFile() { ::close(fd_); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void resize(std::uint64_t bytes) {
    if (::ftruncate(fd_, static_cast<::off_t>(bytes)) != 0) fail(path_, "cannot be made as long");
  }
  void write(std::uint64_t at, const void* data, std::size_t size) {
    if (::pwrite(fd_, data, size, static_cast<::off_t>(at)) != static_cast<::ssize_t>(size))
      fail(path_, "cannot be written");
  }

 private:
  fs::path path_;
  int fd_;
};

std::vector<float> plausible_scales() {
  std::vector<float> scales(std::size_t{56} * 144);  // the largest tensor of scales
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = 1e-5F * (1 + static_cast<float>(i * 7919 % 9900) / 100);
  return scales;
}

void write_file(const fs::path& path, const GiantFile& file, std::span<const float> scales) {
  OutputFile out(path);
  const std::string header = giant_header(file);
  out.resize(header.size() + giant_data_bytes(file));
  out.write(0, header.data(), header.size());
  std::uint64_t at = header.size();
  for (const TensorSpec& tensor : file) {
    if (tensor.dtype == "F32") out.write(at, scales.data(), bytes_of(tensor));
    at += bytes_of(tensor);
  }
}

}  // namespace

// The authors wrote eight groups of layers one after the other. A file is closed once it holds more
// than 8 GiB, counted at two bytes for every element: as it was cut before the weights became FP8.
// So a weight is often the last tensor of a file, and its scale the first of the next.
std::vector<GiantFile> deepseek_v3_files() {
  constexpr std::array<std::size_t, 9> kGroups = {0, 7, 15, 23, 31, 39, 47, 54, kLayers};
  constexpr std::uint64_t kMaxElements = (std::uint64_t{8} << 30) / 2;
  std::vector<GiantFile> files;
  for (std::size_t group = 0; group + 1 < kGroups.size(); ++group) {
    GiantFile all;
    if (group == 0) add_wide(all, "model.embed_tokens", {kVocabulary, kHidden});
    for (std::size_t layer = kGroups[group]; layer < kGroups[group + 1]; ++layer)
      add_layer(all, layer);
    if (group + 2 == kGroups.size()) add_last(all);
    std::uint64_t elements = kMaxElements + 1;  // a group begins a file
    for (TensorSpec& tensor : all) {
      if (elements > kMaxElements) {
        files.emplace_back();
        elements = 0;
      }
      elements += count_of(tensor);
      files.back().push_back(std::move(tensor));
    }
  }
  return files;
}

std::string giant_file_name(std::size_t number) {
  std::array<char, 64> name;
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%06zu.safetensors", number + 1, kFiles);
  return name.data();
}

std::string giant_header(const GiantFile& file) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t at = 0;
  for (const TensorSpec& tensor : file) {
    json += ",\"" + tensor.name + R"(":{"dtype":")" + std::string(tensor.dtype) + R"(","shape":[)";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i)
      json += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    json += R"(],"data_offsets":[)" + std::to_string(at);
    at += bytes_of(tensor);
    json += "," + std::to_string(at) + "]}";
  }
  json += "}";
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return length + json;
}

std::uint64_t giant_data_bytes(const GiantFile& file) {
  std::uint64_t bytes = 0;
  for (const TensorSpec& tensor : file) bytes += bytes_of(tensor);
  return bytes;
}

std::string giant_index(const std::vector<GiantFile>& files) {
  // Two bytes for every element, scales included.
  std::uint64_t total = 0;
  for (const GiantFile& file : files) {
    for (const TensorSpec& tensor : file) total += 2 * count_of(tensor);
  }
  std::string json = "{\n  \"metadata\": {\n    \"total_size\": " + std::to_string(total) +
                     "\n  },\n  \"weight_map\": {";
  const char* separator = "\n";
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (const TensorSpec& tensor : files[i]) {
      json += separator;
      json += "    \"" + tensor.name + "\": \"" + giant_file_name(i) + "\"";
      separator = ",\n";
    }
  }
  return json + "\n  }\n}";
}

const std::string_view kDeepseekV3Config = R"({
  "architectures": [
    "DeepseekV3ForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "auto_map": {
    "AutoConfig": "configuration_deepseek.DeepseekV3Config",
    "AutoModel": "modeling_deepseek.DeepseekV3Model",
    "AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"
  },
  "bos_token_id": 0,
  "eos_token_id": 1,
  "ep_size": 1,
  "first_k_dense_replace": 3,
  "hidden_act": "silu",
  "hidden_size": 7168,
  "initializer_range": 0.02,
  "intermediate_size": 18432,
  "kv_lora_rank": 512,
  "max_position_embeddings": 163840,
  "model_type": "deepseek_v3",
  "moe_intermediate_size": 2048,
  "moe_layer_freq": 1,
  "n_group": 8,
  "n_routed_experts": 256,
  "n_shared_experts": 1,
  "norm_topk_prob": true,
  "num_attention_heads": 128,
  "num_experts_per_tok": 8,
  "num_hidden_layers": 61,
  "num_key_value_heads": 128,
  "num_nextn_predict_layers": 1,
  "q_lora_rank": 1536,
  "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64,
  "quantization_config": {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [
      128,
      128
    ]
  },
  "rms_norm_eps": 1e-06,
  "rope_scaling": {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "type": "yarn"
  },
  "rope_theta": 10000,
  "routed_scaling_factor": 2.5,
  "scoring_func": "sigmoid",
  "tie_word_embeddings": false,
  "topk_group": 4,
  "topk_method": "noaux_tc",
  "torch_dtype": "bfloat16",
  "transformers_version": "4.33.1",
  "use_cache": true,
  "v_head_dim": 128,
  "vocab_size": 129280
}
)";

void write_deepseek_v3(const fs::path& directory) {
  fs::create_directories(directory);
  const std::vector<GiantFile> files = deepseek_v3_files();
  const std::vector<float> scales = plausible_scales();
  for (std::size_t i = 0; i < files.size(); ++i)
    write_file(directory / giant_file_name(i), files[i], scales);
  write_string(directory / "model.safetensors.index.json", giant_index(files));
  write_string(directory / "config.json", kDeepseekV3Config);
}

bool has_sparse_files(const fs::path& directory) {
  const fs::path path = directory / "holes";
  {
    OutputFile(path).resize(16 << 20);
  }
  struct ::stat status{};
  const bool sparse = ::stat(path.c_str(), &status) == 0 && status.st_blocks < 2048;
  fs::remove(path);
  return sparse;
}

}  // namespace octavo::tests
