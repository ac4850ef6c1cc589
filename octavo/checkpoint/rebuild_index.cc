#include "octavo/checkpoint/rebuild_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kSingleName = "model.safetensors";

Result<std::vector<std::string>> file_names(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) {
    return fail(ErrorCode::io,
                fmt::format("cannot list {}: {}", directory.string(), error.message()));
  }
  return names;
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

Result<std::vector<std::string>> complete_set(std::span<const std::string> names) {
  // By stem and count, each file under its number.
  std::map<std::pair<std::string, std::uint64_t>, std::multimap<std::uint64_t, std::string>> sets;
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    if (name == kSingleName) sets[{"model", 1}].emplace(1, name);
    if (const auto shard = parse_shard_name(name))
      sets[{shard->stem, shard->count}].emplace(shard->number, name);
  }
  struct Set {
    bool model;
    const std::multimap<std::uint64_t, std::string>* files;
  };
  std::vector<Set> complete;
  std::string found;
  for (const auto& [set, files] : sets) {
    const auto& [stem, count] = set;
    std::set<std::uint64_t> numbers;
    for (const auto& [number, name] : files) numbers.insert(number);
    found +=
        fmt::format("{}{} of {} shards {}-*", found.empty() ? "" : ", ", files.size(), count, stem);
    if (numbers.size() == count) complete.push_back({stem == "model", &files});
  }
  if (std::ranges::any_of(complete, &Set::model))
    std::erase_if(complete, [](const Set& set) { return !set.model; });
  if (complete.size() != 1 ||
      complete.front().files->size() != complete.front().files->rbegin()->first) {
    return fail(ErrorCode::bad_model,
                fmt::format("not one complete set of shards (NAME-00001-of-00004.safetensors and "
                            "so on): there are {}; {}",
                            found.empty() ? "none" : found,
                            complete.empty() ? "fetch what is missing"
                                             : "move away what does not belong to the model"));
  }
  std::vector<std::string> files;
  for (const auto& [number, name] : *complete.front().files) files.push_back(name);
  return files;
}

namespace {

// An index that is in order stays; so does one that names more of what is there than a new one.
Result<void> check_old_index(const fs::path& directory, const std::vector<std::string>& files,
                             const OpenOptions& options) {
  OCTAVO_TRY(const Survey survey, survey_checkpoint(directory, options));
  const std::string& name = survey.checkpoint.index_name;
  if (name.empty()) return {};
  const bool fits = std::ranges::none_of(survey.defects, [](const Defect& defect) {
    return defect_name(defect.code).starts_with("index-") ||
           defect.code == DefectCode::missing_file;
  });
  if (fits) {
    return fail(ErrorCode::bad_model, fmt::format("{}: it is in order; no index was written",
                                                  (directory / name).string()));
  }
  for (const Shard& shard : survey.checkpoint.shards) {
    if (std::ranges::find(files, shard.file_name) != files.end()) continue;
    return fail(
        ErrorCode::bad_model,
        fmt::format("{}: it names {}, which is there and would be lost; no index was written",
                    (directory / name).string(), shard.file_name));
  }
  return {};
}

}  // namespace

Result<RebuiltIndex> rebuild_index(const fs::path& directory, const OpenOptions& options) {
  OCTAVO_TRY(const std::vector<std::string> names, file_names(directory));
  const Result<std::vector<std::string>> files = complete_set(names);
  if (!files) {
    return fail(files.error().code, fmt::format("{}: no index was written: {}", directory.string(),
                                                files.error().message));
  }
  WeightMap map;
  RebuiltIndex result{directory / kIndexName, files->size(), 0, 0};
  for (const std::string& name : *files) {
    if (printable(name) != name) {
      return fail(ErrorCode::bad_model,
                  fmt::format("{}: a name that an index cannot hold; rename the file",
                              (directory / name).string()));
    }
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
  OCTAVO_CHECK(check_old_index(directory, *files, options));
  OCTAVO_CHECK(write_text(result.path, index_text(map, result.total_size)));
  return result;
}

}  // namespace octavo
