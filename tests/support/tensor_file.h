// A second, small reader and writer of safetensors files and model directories; strict where the
// library may be lenient.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/reference.h"

namespace octavo::tests {

using Bytes = std::vector<std::uint8_t>;
using Dims = std::vector<std::uint64_t>;

struct Tensor {
  std::string dtype;  // safetensors tag
  Dims shape;
  Bytes bytes;
  bool operator==(const Tensor&) const = default;
};
using Tensors = std::map<std::string, Tensor>;

// Values of a tensor, rounded to the dtype; "F32", "F16" or "BF16".
Tensor make_tensor(std::string_view dtype, Dims shape, std::span<const float> values);
// F32, F16, BF16, F8_E8M0 as f32, exactly.
std::vector<float> values_of(const Tensor& tensor);
std::uint64_t dtype_bytes(std::string_view dtype);

Bytes read_bytes(const std::filesystem::path& path);
std::string read_string(const std::filesystem::path& path);
void write_string(const std::filesystem::path& path, std::string_view text);

void write_tensor_file(const std::filesystem::path& path, const Tensors& tensors);
// Throws unless the header is padded to 8 bytes, tensors lie without holes, each aligned to its
// element, metadata is
// {"format": "pt"}, and the file ends with the last tensor.
Tensors read_tensor_file(const std::filesystem::path& path);

// Weights, an index where there is more than one file, and config.json where `config` is not empty.
void write_model(const std::filesystem::path& directory,
                 const std::map<std::string, Tensors>& files, std::string_view config);
void write_model(const std::filesystem::path& directory, const Tensors& tensors,
                 std::string_view config);

struct Model {
  Tensors tensors;                       // of all files
  std::map<std::string, Tensors> files;  // by file name
  nlohmann::json config;                 // null where there is none
};

// Throws where the index and the files disagree in any way: a tensor in another file, total_size,
// files that it lacks.
Model read_model(const std::filesystem::path& directory);

// A file of zeros with this header that takes no disk space, and each tensor's first bytes.
struct SparseTensor {
  std::string name;
  std::string dtype;
  Dims shape;
  Bytes start;
};
void write_sparse_file(const std::filesystem::path& path, const std::vector<SparseTensor>& tensors);

}  // namespace octavo::tests
