#include "octavo/checkpoint/rebuild_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";

// Shard files by set ("model", 4), each with its number.
using ShardSets =
    std::map<std::pair<std::string, std::uint64_t>, std::map<std::uint64_t, std::string>>;

Result<ShardSets> find_sets(const fs::path& directory) {
  ShardSets sets;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.starts_with('.')) continue;
    if (const auto shard = parse_shard_name(name))
      sets[{shard->stem, shard->count}].emplace(shard->number, std::move(name));
  }
  if (error) {
    return fail(ErrorCode::io,
                fmt::format("cannot list {}: {}", directory.string(), error.message()));
  }
  return sets;
}

// The files of the one set that has all of its shards; of several, the one named "model".
Result<std::vector<std::string>> complete_set(const fs::path& directory, const ShardSets& sets) {
  std::vector<const ShardSets::value_type*> complete;
  std::vector<std::string> incomplete;
  for (const ShardSets::value_type& set : sets) {
    const auto& [stem, count] = set.first;
    if (set.second.size() == count) {
      complete.push_back(&set);
    } else {
      incomplete.push_back(fmt::format("{} of {} of {}-*", set.second.size(), count, stem));
    }
  }
  if (std::ranges::any_of(complete, [](const auto* set) { return set->first.first == "model"; }))
    std::erase_if(complete, [](const auto* set) { return set->first.first != "model"; });
  if (complete.size() != 1) {
    return fail(
        ErrorCode::bad_model,
        fmt::format("{}: {} complete sets of shards (NAME-00001-of-00004.safetensors and so on), "
                    "one is expected{}; no index was written",
                    directory.string(), complete.size(),
                    incomplete.empty() ? "" : "; not complete: " + first_names(incomplete)));
  }
  std::vector<std::string> files;
  for (const auto& [number, name] : complete.front()->second) files.push_back(name);
  return files;
}

}  // namespace

std::optional<ShardName> parse_shard_name(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const std::size_t of = name.rfind(kOf);
  if (of == name.npos) return std::nullopt;
  const std::size_t dash = name.substr(0, of).rfind('-');
  if (dash == name.npos) return std::nullopt;
  const auto number_of = [](std::string_view digits) -> std::optional<std::uint64_t> {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
    if (error != std::errc() || end != digits.end() || number == 0) return std::nullopt;
    return number;
  };
  const auto number = number_of(name.substr(dash + 1, of - dash - 1));
  const auto count = number_of(name.substr(of + kOf.size()));
  if (!number || !count || *number > *count) return std::nullopt;
  return ShardName{std::string(name.substr(0, dash)), *number, *count};
}

Result<RebuiltIndex> rebuild_index(const fs::path& directory, const OpenOptions& options) {
  OCTAVO_TRY(const ShardSets sets, find_sets(directory));
  OCTAVO_TRY(const std::vector<std::string> files, complete_set(directory, sets));
  WeightMap map;
  RebuiltIndex result{directory / kIndexName, files.size(), 0, 0};
  for (const std::string& name : files) {
    OCTAVO_TRY(const File file, File::open(directory / name));
    OCTAVO_TRY(const SafetensorsHeader header,
               read_safetensors_header(file, options.max_header_bytes));
    for (const TensorInfo& tensor : header.tensors) {
      const auto [at, added] = map.emplace(tensor.name, name);
      if (!added) {
        return fail(ErrorCode::bad_model,
                    fmt::format("{}: {} is in {} and in {}; no index was written",
                                directory.string(), tensor.name, at->second, name));
      }
      result.total_size += tensor.bytes;
    }
  }
  result.tensors = map.size();
  OCTAVO_CHECK(write_partial(result.path, index_text(map, result.total_size)));
  OCTAVO_CHECK(publish(result.path));
  OCTAVO_CHECK(sync_directory(directory));
  return result;
}

}  // namespace octavo
