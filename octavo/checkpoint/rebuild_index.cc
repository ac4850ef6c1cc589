#include "octavo/checkpoint/rebuild_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "octavo/checkpoint/shard_name.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

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
