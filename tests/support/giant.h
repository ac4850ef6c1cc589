// DeepSeek-V3 as its authors published it: 163 files, 91,991 tensors, 689 GB. Index, config.json
// and every file's header are the published ones, byte for byte; the weights are holes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/tensor_file.h"

namespace octavo::tests {

struct TensorSpec {
  std::string name;
  std::string_view dtype;
  Dims shape;
};
using GiantFile = std::vector<TensorSpec>;  // in the order of their bytes

std::vector<GiantFile> deepseek_v3_files();
std::string giant_file_name(std::size_t number);  // from 0: "model-00001-of-000163.safetensors"
std::string giant_header(const GiantFile& file);  // length and JSON: what stands before the data
std::uint64_t giant_data_bytes(const GiantFile& file);  // what follows
std::string giant_index(const std::vector<GiantFile>& files);

extern const std::string_view kDeepseekV3Config;

// Sparse files: headers and F32 tensors are written, 0.4 GB on the disk; everything else reads as
// zeros. Scales are between 1e-5 and 1e-3.
void write_deepseek_v3(const std::filesystem::path& directory);

// Whether a file of holes takes no space there.
bool has_sparse_files(const std::filesystem::path& directory);

}  // namespace octavo::tests
