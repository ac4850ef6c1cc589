// A model directory in the Hugging Face layout, or one safetensors file: what is in it, by headers
// only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/file.h"
#include "octavo/base/json.h"
#include "octavo/checkpoint/defect.h"
#include "octavo/checkpoint/index.h"
#include "octavo/checkpoint/quant_config.h"
#include "octavo/checkpoint/safetensors.h"

namespace octavo {

struct Shard {
  std::string file_name;  // relative to the directory, "sub/a.safetensors"
  File file;
  std::map<std::string, std::string> metadata;
};

struct CheckpointTensor {
  TensorInfo info;
  std::size_t shard;
};

struct Checkpoint {
  std::filesystem::path directory;
  std::string index_name;   // "model.safetensors.index.json", or empty
  std::string config_text;  // config.json as it stands (also beside a single file), or empty
  Json config;              // parsed, or an empty object
  QuantConfig quantization;
  std::vector<Shard> shards;
  std::vector<CheckpointTensor> tensors;                    // by shard, in the order of their bytes
  std::map<std::string, std::size_t, std::less<>> by_name;  // index into `tensors`
  // Relative paths, sorted; none for a single file.
  std::vector<std::string> side_files;     // what is no weight file
  std::vector<std::string> other_weights;  // weights in another form or of another model
  std::uint64_t tensor_bytes = 0;

  // nullptr where there is none.
  const CheckpointTensor* find(std::string_view name) const;

  Result<void> read(const CheckpointTensor& tensor, std::uint64_t offset,
                    std::span<std::byte> to) const;
};

struct OpenOptions {
  std::uint64_t max_header_bytes = kMaxHeaderBytes;  // of a shard
};

// The first defect is the error: bad_file, bad_model, io; messages name the file and say what to
// do.
Result<Checkpoint> open_checkpoint(const std::filesystem::path& path,
                                   const OpenOptions& options = {});

// A directory that may be broken in any way, as far as it can be read.
struct Survey {
  Checkpoint checkpoint;
  Defects defects;
  Defects notes;                // worth knowing, and no reason to refuse the model
  WeightMap lost;               // tensors that the index puts into files that cannot be read
  bool weights_chosen = false;  // it is known which files hold the weights
  bool config_refused = false;  // what a config says of quantization is not known
  bool complete = false;        // `checkpoint` has the tensors of the whole model
};

// io where there is nothing to look at.
Result<Survey> survey_checkpoint(const std::filesystem::path& path,
                                 const OpenOptions& options = {});

}  // namespace octavo
