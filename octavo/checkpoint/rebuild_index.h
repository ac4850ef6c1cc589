// A new index from the weight files that are there.
#pragma once

#include <cstdint>
#include <filesystem>

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

}  // namespace octavo
