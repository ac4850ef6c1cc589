// How the tensors of a conversion are spread over files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "octavo/checkpoint/bands_internal.h"

namespace octavo {

struct OutputShard {
  std::string file_name;
  std::map<std::string, std::string> metadata;
  std::vector<OutputTensor> outputs;
  std::string head;              // length and header
  std::uint64_t file_bytes = 0;  // of the whole file
};

// Bytes of tensors.
std::uint64_t output_bytes(const OutputTensor& output);

// Shards as the input has them, or filled in input order up to `max_bytes`; a weight and its scales
// stay together. All that is known before the first byte is written: offsets, headers, sizes.
// unsupported where a header would be larger than readers accept.
Result<std::vector<OutputShard>> arrange_shards(const Checkpoint& checkpoint,
                                                std::vector<OutputTensor> outputs,
                                                std::uint64_t max_bytes);

WeightMap weight_map_of(const std::vector<OutputShard>& shards);

}  // namespace octavo
