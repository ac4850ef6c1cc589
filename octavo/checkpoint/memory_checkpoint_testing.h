// A checkpoint without files, for what needs names, dtypes and shapes alone: everything of it must
// pair, since messages about what does not name the file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "octavo/base/ceil_div.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/pairing.h"

namespace octavo::testing {

struct MemoryTensor {
  std::string name;
  DType dtype;
  Shape shape;
};

// An FP8 weight of this module and its F32 block scales.
inline void add_fp8(std::vector<MemoryTensor>& tensors, const std::string& module,
                    std::uint64_t rows, std::uint64_t cols, const BlockSize& block = {}) {
  tensors.push_back({module + ".weight", DType::f8_e4m3, {rows, cols}});
  tensors.push_back({module + ".weight_scale_inv",
                     DType::f32,
                     {ceil_div(rows, block.rows), ceil_div(cols, block.cols)}});
}

inline Checkpoint memory_checkpoint(const std::vector<MemoryTensor>& tensors,
                                    const std::string& config) {
  Checkpoint checkpoint;
  checkpoint.directory = "model";
  checkpoint.config_text = config;
  checkpoint.config = Json::parse(config);
  checkpoint.quantization = read_quant_config(checkpoint.config, "model/config.json").value();
  for (const MemoryTensor& tensor : tensors) {
    const std::uint64_t bytes = byte_count(tensor.dtype, tensor.shape).value();
    checkpoint.by_name.emplace(tensor.name, checkpoint.tensors.size());
    checkpoint.tensors.push_back(
        {{tensor.name, tensor.dtype, tensor.shape, checkpoint.tensor_bytes, bytes}, 0});
    checkpoint.tensor_bytes += bytes;
  }
  return checkpoint;
}

}  // namespace octavo::testing
