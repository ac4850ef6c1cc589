#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "octavo/base/words.h"
#include "octavo/checkpoint/output_directory_internal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// `path` is `directory` or lies in it, by what the files are and not by how paths are spelled:
// links and bind mounts are seen through. Both may be not there.
bool is_within(const fs::path& path, const fs::path& directory) {
  std::error_code ignored;
  for (fs::path at = path;; at = at.parent_path()) {
    if (at == directory || fs::equivalent(at, directory, ignored)) return true;
    if (at == at.parent_path()) return false;
  }
}

bool is_weights(std::string_view name) { return name.ends_with(".safetensors"); }

bool describes_a_model(std::string_view name) {
  return name == "config.json" || name == "hf_quant_config.json" || name.ends_with(kIndexSuffix);
}

// Names in a directory, sorted; what is a directory itself is left out.
Result<std::vector<fs::path>> files_in(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_symlink(ignored) || !entry->is_directory(ignored)) files.push_back(entry->path());
  }
  if (error) {
    return fail(ErrorCode::io,
                fmt::format("cannot list {}: {}", directory.string(), error.message()));
  }
  std::ranges::sort(files);
  return files;
}

// Other than what an unfinished run leaves: partial files, directories made for them.
bool holds_files(const fs::path& directory) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const bool folder = entry->is_directory(ignored) && !entry->is_symlink(ignored);
    if (!folder && !is_partial(entry->path().filename().string())) return true;
  }
  return error && fs::exists(directory);  // what cannot be listed is not known to be empty
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
  const bool same = is_within(target, source) && is_within(source, target);
  if (same || (!single_file && is_within(target, source))) {
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
  // Links are followed: a shard may live elsewhere.
  std::vector<std::string> names = checkpoint.side_files;
  for (const Shard& shard : checkpoint.shards) names.push_back(shard.file_name);
  for (const std::string& name : names) {
    const fs::path file = fs::weakly_canonical(source / name, error);
    if (error || !is_within(file, target)) continue;
    return fail(ErrorCode::bad_value,
                fmt::format("{}: {} of the input is in it; choose another output directory",
                            destination.string(), name));
  }
  if (!overwrite && holds_files(target)) {
    return fail(ErrorCode::bad_value,
                fmt::format("{}: is not empty; --overwrite replaces the model in it",
                            destination.string()));
  }
  return {};
}

Result<void> check_space(const fs::path& destination, std::uint64_t needed,
                         std::uint64_t reclaimed) {
  const std::optional<std::uint64_t> free = available_bytes(destination);
  if (!free || needed <= *free || needed - *free <= reclaimed) return {};
  const std::uint64_t available = *free + reclaimed;
  return fail(ErrorCode::io,
              fmt::format("{}: {} bytes ({}) are needed, {} ({}) are available there; free some "
                          "space or choose another output directory",
                          destination.string(), needed, human_bytes(static_cast<double>(needed)),
                          available, human_bytes(static_cast<double>(available))));
}

Result<OutputDirectory> OutputDirectory::open(const fs::path& path) {
  OutputDirectory output;
  OCTAVO_TRY(output.created_, make_directories(path));
  output.path_ = path;
  OCTAVO_TRY(DirectoryLock lock, DirectoryLock::take(path));
  output.lock_.emplace(std::move(lock));
  return output;
}

OutputDirectory::~OutputDirectory() {
  if (path_.empty()) return;  // moved from
  if (pending_.valid()) pending_.wait();
  if (committing_ || !lock_) return;
  std::error_code ignored;
  for (const fs::path& path : shards_) {
    if (!keep_ || !finished_.contains(path)) fs::remove(partial_path(path), ignored);
  }
  for (const fs::path& path : staged_) fs::remove(partial_path(path), ignored);
  if (keep_) return;
  if (journal_) static_cast<void>(remove_leftovers());  // nothing can be resumed from them any more
  if (created_) remove_empty(path_);
}

Result<void> OutputDirectory::begin(const std::vector<std::string>& lines, bool created) {
  created_ = created_ || created;
  OCTAVO_TRY(Journal journal, Journal::create(path_, lines));
  journal_ = std::make_unique<Journal>(std::move(journal));
  return {};
}

Result<fs::path> OutputDirectory::place(const fs::path& relative) {
  const fs::path path = path_ / relative;
  OCTAVO_CHECK(make_directories(path.parent_path()));
  return path;
}

Result<File> OutputDirectory::create(const fs::path& shard) {
  OCTAVO_TRY(fs::path path, place(shard));
  shards_.push_back(path);
  return File::create(partial_path(path));
}

Result<void> OutputDirectory::finish_in_background(File file, FinishedShard entry) {
  OCTAVO_CHECK(finish_flushing());
  flushing_ = shards_.back();
  pending_ = std::async(std::launch::async,
                        [file = std::move(file), entry = std::move(entry),
                         journal = journal_.get()]() mutable -> Result<void> {
                          OCTAVO_CHECK(file.sync());
                          OCTAVO_TRY(const FileStamp stamp, file.stamp());
                          entry.size = stamp.size;
                          entry.mtime_ns = stamp.mtime_ns;
                          return journal->append(shard_line(entry));
                        });
  return {};
}

Result<void> OutputDirectory::finish_flushing() {
  if (!pending_.valid()) return {};
  OCTAVO_CHECK(pending_.get());
  finished_.insert(flushing_);
  return {};
}

std::size_t OutputDirectory::keep_finished() {
  static_cast<void>(finish_flushing());  // what failed is not finished, and the run has an error
  keep_ = !finished_.empty();
  return finished_.size();
}

Result<void> OutputDirectory::stage_text(const fs::path& relative, std::string_view text) {
  OCTAVO_TRY(const fs::path path, place(relative));
  staged_.push_back(path);
  return write_partial(path, text);
}

Result<void> OutputDirectory::stage_copy(const fs::path& from, const fs::path& relative) {
  OCTAVO_TRY(const fs::path path, place(relative));
  staged_.push_back(path);
  return copy_to_partial(from, path);
}

void OutputDirectory::adopt_shard(const fs::path& relative) {
  shards_.push_back(path_ / relative);
  finished_.insert(path_ / relative);
}

void OutputDirectory::adopt_staged(const fs::path& relative, std::uint64_t bytes) {
  staged_.push_back(path_ / relative);
  adopted_[path_ / relative] = bytes;
}

Result<void> OutputDirectory::remove_old_model() const {
  OCTAVO_TRY(std::vector<fs::path> files, files_in(path_));
  // Alone, any other weights would open as a model of their own.
  std::ranges::stable_partition(
      files, [](const fs::path& file) { return file.filename() != "model.safetensors"; });
  for (const auto& goes : {is_weights, describes_a_model}) {
    for (const fs::path& file : files) {
      if (!goes(file.filename().string())) continue;
      std::error_code error;
      if (!fs::remove(file, error) && error) {
        return fail(ErrorCode::io,
                    fmt::format("cannot remove {}: {}", file.string(), error.message()));
      }
    }
    OCTAVO_CHECK(sync_directory(path_));
  }
  return {};
}

std::set<fs::path> OutputDirectory::directories() const {
  std::set<fs::path> all = {path_};
  for (const std::vector<fs::path>& files : {staged_, shards_})
    for (const fs::path& path : files) all.insert(path.parent_path());
  return all;
}

Result<void> OutputDirectory::publish_all() const {
  const std::set<fs::path> all = directories();
  for (const std::vector<fs::path>& files : {staged_, shards_}) {
    for (const fs::path& path : files) {
      std::error_code error;
      const bool waits = fs::exists(partial_path(path), error);
      const auto adopted = adopted_.find(path);
      if (adopted != adopted_.end() &&
          fs::file_size(waits ? partial_path(path) : path, error) != adopted->second) {
        return fail(ErrorCode::io, fmt::format("{}: it is not what the run wrote; start again "
                                               "without --resume",
                                               path.string()));
      }
      const bool published = !waits && (adopted != adopted_.end() || finished_.contains(path)) &&
                             fs::exists(path, error);
      if (!published) OCTAVO_CHECK(publish(path));
    }
    for (const fs::path& directory : all) OCTAVO_CHECK(sync_directory(directory));
  }
  return {};
}

// Partial files of earlier, killed runs where this one writes, and the journal last: until it goes,
// a run may be resumed. A folder with a journal of its own is another run's destination.
Result<void> OutputDirectory::remove_leftovers() const {
  for (const fs::path& directory : directories()) {
    std::error_code ignored;
    if (directory != path_ && fs::exists(directory / kJournalName, ignored)) continue;
    const Result<std::vector<fs::path>> files = files_in(directory);
    if (!files) continue;  // they do no harm where they are
    for (const fs::path& file : *files) {
      const std::string name = file.filename().string();
      if (is_partial(name) && name != kJournalName) fs::remove(file, ignored);
    }
  }
  std::error_code error;
  if (!fs::remove(path_ / kJournalName, error) && error) {
    return fail(ErrorCode::io, fmt::format("cannot remove {}: {}", (path_ / kJournalName).string(),
                                           error.message()));
  }
  return sync_directory(path_);
}

Result<void> OutputDirectory::commit(Phase reached) {
  OCTAVO_CHECK(finish_flushing());
  if (reached == Phase::writing) {
    for (const fs::path& directory : directories()) OCTAVO_CHECK(sync_directory(directory));
    committing_ = true;
    OCTAVO_CHECK(journal_->append(phase_line(Phase::removing)));
  }
  committing_ = true;
  if (reached != Phase::publishing) {
    OCTAVO_CHECK(remove_old_model());
    OCTAVO_CHECK(journal_->append(phase_line(Phase::publishing)));
  }
  OCTAVO_CHECK(publish_all());
  return remove_leftovers();
}

}  // namespace octavo
