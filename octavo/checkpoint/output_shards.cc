#include "octavo/checkpoint/output_shards_internal.h"

#include <fmt/format.h>

#include <algorithm>

namespace octavo {
namespace {

std::vector<OutputShard> spread(const Checkpoint& checkpoint, std::vector<OutputTensor> outputs,
                                std::uint64_t max_bytes) {
  std::vector<OutputShard> shards;
  if (max_bytes == 0) {
    for (const Shard& shard : checkpoint.shards)
      shards.push_back({shard.file_name, shard.metadata, {}, {}, 0});
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
        shards.push_back({"", checkpoint.shards[0].metadata, {}, {}, 0});
        filled = 0;
      }
      filled += bytes;
      shards.back().outputs.push_back(std::move(output));
    }
    if (shards.empty()) shards.push_back({"", checkpoint.shards[0].metadata, {}, {}, 0});
    for (std::size_t i = 0; i < shards.size(); ++i) {
      shards[i].file_name = shards.size() == 1 ? "model.safetensors"
                                               : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                             i + 1, shards.size());
    }
  }
  for (OutputShard& shard : shards) shard.metadata.try_emplace("format", "pt");
  return shards;
}

// Fixes the offsets of a shard's tensors, its header and size.
Result<void> lay_out(OutputShard& shard) {
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
  shard.head = std::move(layout.head);
  shard.file_bytes = layout.file_bytes;
  return {};
}

}  // namespace

std::uint64_t output_bytes(const OutputTensor& output) {
  std::uint64_t bytes = byte_count(output.main.dtype, output.main.shape).value();
  if (output.scale) bytes += byte_count(output.scale->dtype, output.scale->shape).value();
  return bytes;
}

Result<std::vector<OutputShard>> arrange_shards(const Checkpoint& checkpoint,
                                                std::vector<OutputTensor> outputs,
                                                std::uint64_t max_bytes) {
  std::vector<OutputShard> shards = spread(checkpoint, std::move(outputs), max_bytes);
  for (OutputShard& shard : shards) OCTAVO_CHECK(lay_out(shard));
  return shards;
}

WeightMap weight_map_of(const std::vector<OutputShard>& shards) {
  WeightMap map;
  for (const OutputShard& shard : shards) {
    for (const OutputTensor& output : shard.outputs) {
      map.emplace(output.main.name, shard.file_name);
      if (output.scale) map.emplace(output.scale->name, shard.file_name);
    }
  }
  return map;
}

}  // namespace octavo
