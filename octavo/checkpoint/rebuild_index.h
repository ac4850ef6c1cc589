// A new index from the weight files that are there.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/checkpoint/checkpoint.h"

namespace octavo {

struct RebuiltIndex {
  std::filesystem::path path;
  std::size_t files;
  std::size_t tensors;
  std::uint64_t total_size;
};

// Writes model.safetensors.index.json for the complete_set() of `directory`, atomically, over an
// old index. bad_model: no such set; a tensor in two of its files. bad_file: one of its files is
// damaged. Nothing is written then.
Result<RebuiltIndex> rebuild_index(const std::filesystem::path& directory,
                                   const OpenOptions& options = {});

// Of file names, those of the one set that has all of its shards
// ("model-00001-of-00004.safetensors" to 4, or model.safetensors alone), in order; where several
// have, the one named "model". bad_model: none, or it is not clear which.
Result<std::vector<std::string>> complete_set(std::span<const std::string> names);

// "model-00002-of-00004.safetensors": nullopt where a name says nothing of the kind.
struct ShardName {
  std::string stem;  // "model"
  std::uint64_t number;
  std::uint64_t count;
};
std::optional<ShardName> parse_shard_name(std::string_view name);

}  // namespace octavo
