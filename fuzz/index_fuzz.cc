// model.safetensors.index.json.
#include <algorithm>
#include <filesystem>

#include "fuzz/check.h"
#include "octavo/checkpoint/index.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace octavo;
  using fuzz::require;
  const std::string_view text = fuzz::as_text(data, size);
  const Result<Index> index = parse_index(text, "index");
  if (!index) {
    fuzz::require_message(index.error().message, "index");
    return 0;
  }
  require(!index->weight_map.empty(), "an index names tensors");
  for (const auto& [tensor, file] : index->weight_map) {
    const std::filesystem::path path(file);
    require(!file.empty() && path.is_relative(), "files are below the directory");
    require(std::ranges::find(path, "..") == path.end(), "no path leads out of the directory");
    require(path.lexically_normal() == path, "one spelling for each file");
    require(file.find('\0') == file.npos, "what is opened is what was named");
  }
  const std::uint64_t total = index->total_size.value_or(0);
  const Result<Index> again = parse_index(index_text(index->weight_map, total), "index");
  require(again.has_value(), "what is written can be read");
  require(again->weight_map == index->weight_map && again->total_size == total,
          "an index that is written says the same");
  return 0;
}
