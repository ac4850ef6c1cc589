// Names of weight files: which of them make a set.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {

// "model-00002-of-00004.safetensors": nullopt where a name says nothing of the kind.
struct ShardName {
  std::string stem;  // "model"
  std::uint64_t number;
  std::uint64_t count;
};
std::optional<ShardName> parse_shard_name(std::string_view name);

// Of file names, those of the one set that has all of its shards
// ("model-00001-of-00004.safetensors" to 4, or model.safetensors alone), in order; where several
// have, the one named "model". bad_model: none, or it is not clear which.
Result<std::vector<std::string>> complete_set(std::span<const std::string> names);

}  // namespace octavo
