// A new index from the weight files that are there.
#pragma once

#include <filesystem>
#include <string>

#include "octavo/checkpoint/checkpoint.h"

namespace octavo {

struct RebuiltIndex {
  std::filesystem::path path;
  std::size_t files;
  std::size_t tensors;
  std::uint64_t total_size;
};

// Writes model.safetensors.index.json for the one complete set of shards ("model-00001-of-00004"
// to 4) in `directory`, atomically, over an old index. bad_model: no complete set, or several; a
// tensor in two of its files. bad_file: one of its files is damaged. Nothing is written then.
Result<RebuiltIndex> rebuild_index(const std::filesystem::path& directory,
                                   const OpenOptions& options = {});

// "model-00002-of-00004.safetensors": nullopt where a name says nothing of the kind.
struct ShardName {
  std::string stem;  // "model"
  std::uint64_t number;
  std::uint64_t count;
};
std::optional<ShardName> parse_shard_name(std::string_view name);

}  // namespace octavo
