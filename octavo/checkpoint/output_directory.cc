#include <fmt/format.h>

#include <algorithm>

#include "octavo/checkpoint/output_directory_internal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

bool is_within(const fs::path& path, const fs::path& directory) {
  return std::ranges::mismatch(directory, path).in1 == directory.end();
}

bool belongs_to_a_model(const std::string& name) {
  return name == "config.json" || name == "hf_quant_config.json" ||
         name.ends_with(".safetensors") || name.ends_with(kIndexSuffix);
}

// Empty directories that were made for shards and side files in folders.
void remove_empty(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> inner;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) inner.push_back(entry->path());
  }
  for (const fs::path& path : inner) remove_empty(path);
  fs::remove(directory, error);  // refuses where something is left in it
}

}  // namespace

Result<void> check_destination(const Checkpoint& checkpoint, const fs::path& destination,
                               bool overwrite) {
  std::error_code error;
  const fs::path source =
      fs::weakly_canonical(fs::absolute(checkpoint.directory.empty() ? "." : checkpoint.directory));
  const fs::path target = fs::weakly_canonical(fs::absolute(destination), error);
  if (error) {
    return fail(ErrorCode::io, fmt::format("{}: {}", destination.string(), error.message()));
  }
  // The directory of a single file is no model: only writing into that very directory is refused.
  const bool single_file = checkpoint.side_files.empty();
  if (source == target || fs::equivalent(source, target, error) ||
      (!single_file && is_within(target, source))) {
    return fail(
        ErrorCode::bad_value,
        fmt::format("{}: the output would lie in the input directory {}; choose another one",
                    destination.string(), source.string()));
  }
  if (is_within(source, target)) {
    return fail(ErrorCode::bad_value,
                fmt::format("{}: the input {} lies in it; choose another output directory",
                            destination.string(), source.string()));
  }
  if (fs::exists(target, error) && !fs::is_directory(target, error)) {
    return fail(ErrorCode::bad_value,
                fmt::format("{}: is there and is not a directory", destination.string()));
  }
  if (fs::is_directory(target, error) && !fs::is_empty(target, error) && !overwrite) {
    return fail(ErrorCode::bad_value,
                fmt::format("{}: is not empty; --overwrite replaces the model in it",
                            destination.string()));
  }
  return {};
}

Result<OutputDirectory> OutputDirectory::open(const fs::path& path) {
  OutputDirectory output;
  output.path_ = path;
  std::error_code error;
  output.created_ = fs::create_directories(path, error);
  if (error) {
    return fail(ErrorCode::io, fmt::format("cannot create {}: {}", path.string(), error.message()));
  }
  return output;
}

OutputDirectory::~OutputDirectory() {
  if (path_.empty()) return;  // moved from
  if (pending_.valid()) pending_.wait();
  std::error_code ignored;
  for (const fs::path& path : shards_) fs::remove(partial_path(path), ignored);
  if (keep_) return;
  for (const fs::path& path : published_) {
    fs::remove(partial_path(path), ignored);
    fs::remove(path, ignored);
  }
  if (created_) remove_empty(path_);
}

Result<fs::path> OutputDirectory::place(const fs::path& relative) {
  const fs::path path = path_ / relative;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) {
    return fail(ErrorCode::io,
                fmt::format("cannot create {}: {}", path.parent_path().string(), error.message()));
  }
  return path;
}

Result<File> OutputDirectory::create(const fs::path& relative) {
  OCTAVO_TRY(fs::path path, place(relative));
  shards_.push_back(path);
  return File::create(partial_path(path));
}

Result<void> OutputDirectory::flush_in_background(File file) {
  OCTAVO_CHECK(finish_flushing());
  pending_ = std::async(std::launch::async, [file = std::move(file)] { return file.sync(); });
  return {};
}

Result<void> OutputDirectory::finish_flushing() {
  if (!pending_.valid()) return {};
  return pending_.get();
}

Result<void> OutputDirectory::commit_shards() {
  OCTAVO_CHECK(finish_flushing());
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (belongs_to_a_model(entry->path().filename().string())) old.push_back(entry->path());
  }
  if (error) {
    return fail(ErrorCode::io, fmt::format("cannot list {}: {}", path_.string(), error.message()));
  }
  for (const fs::path& path : old) {
    if (!fs::remove(path, error) && error) {
      return fail(ErrorCode::io,
                  fmt::format("cannot remove {}: {}", path.string(), error.message()));
    }
  }
  for (const fs::path& path : shards_) {
    published_.push_back(path);
    OCTAVO_CHECK(publish(path));
  }
  return {};
}

Result<void> OutputDirectory::write_text(const fs::path& relative, std::string_view text) {
  OCTAVO_TRY(const fs::path path, place(relative));
  published_.push_back(path);
  return octavo::write_text(path, text);
}

Result<void> OutputDirectory::copy(const fs::path& from, const fs::path& relative) {
  OCTAVO_TRY(const fs::path path, place(relative));
  std::error_code ignored;
  if (!fs::exists(path, ignored)) published_.push_back(path);
  return copy_regular_file(from, path);
}

}  // namespace octavo
