// model.safetensors.index.json: which file holds which tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/checkpoint/defect.h"

namespace octavo {

inline constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
inline constexpr std::uint64_t kMaxIndexBytes = 256 << 20;
inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

// Tensor name -> file, relative, in one spelling for each file.
using WeightMap = std::map<std::string, std::string, std::less<>>;

struct Index {
  WeightMap weight_map;
  std::optional<std::uint64_t> total_size;  // bytes of all tensors, as the index has it
};

// Adds what is wrong to `defects` (index_syntax, index_path); nullopt then. `name` for messages.
std::optional<Index> survey_index(std::string_view text, std::string_view name, Defects& defects);
std::optional<Index> survey_index_file(const std::filesystem::path& path, Defects& defects);

// bad_file with the first of them.
Result<Index> parse_index(std::string_view text, std::string_view name);

// The text of an index, as it is written: two spaces, tensors sorted.
std::string index_text(const WeightMap& weight_map, std::uint64_t total_size);

}  // namespace octavo
