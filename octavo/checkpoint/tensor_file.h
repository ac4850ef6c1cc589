// Named tensors in one safetensors file, whole in memory: golden data and training state. Models
// are read by ranges instead (checkpoint.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "octavo/base/error.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// io, or bad_file where the file is no safetensors file of whole tensors.
Result<TensorFile> read_tensor_file(const std::filesystem::path& path);

// Durably, the whole file or nothing: a file of that name stands until the new one is whole.
Result<void> write_tensor_file(const std::filesystem::path& path, const TensorFile& file);

}  // namespace octavo
