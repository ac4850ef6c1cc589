// Where a conversion writes: files stand beside their final names until all of them are whole.
#pragma once

#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/file.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/resume_internal.h"

namespace octavo {

// Refuses (bad_value) a destination that is the source, lies in it or holds it, whatever the path
// is spelled like, that is no directory, or that is not empty without `overwrite`.
Result<void> check_destination(const Checkpoint& checkpoint,
                               const std::filesystem::path& destination, bool overwrite);

// io where the filesystem of `destination` has less than `needed` bytes; `reclaimed` are on it and
// go when they are replaced.
Result<void> check_space(const std::filesystem::path& destination, std::uint64_t needed,
                         std::uint64_t reclaimed);

// Shards are made with create() and finish_in_background(), what goes with them with stage_text()
// and stage_copy(); all stand beside their final names, and an old model in the directory is
// untouched. The journal tells what of that is whole, so that a later run may adopt it.
//
// commit() then only removes and renames, in an order in which no moment shows something that opens
// as a model but is neither the old nor the new one: old weights go first, old index and config
// after them; side files, config and index come, and the weights last (an index that names missing
// shards is refused, as is one shard of many without an index).
//
// Destroyed without commit(), it takes away what it made, and the directory too where the run made
// that; after keep_finished() all but the finished shards and the journal; once commit() began to
// remove, nothing.
class OutputDirectory {
 public:
  static Result<OutputDirectory> open(const std::filesystem::path& path);
  OutputDirectory(OutputDirectory&&) = default;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  ~OutputDirectory();

  bool created() const { return created_; }
  // Before the first shard: a journal with these lines. `created`: by the run that goes on here.
  Result<void> begin(const std::vector<std::string>& lines, bool created);

  Result<File> create(const std::filesystem::path& shard);
  // The device writes a finished file while the next one is computed; one at a time waits for it.
  // Size and time of `entry` are filled in, and it goes into the journal.
  Result<void> finish_in_background(File file, FinishedShard entry);
  Result<void> finish_flushing();

  Result<void> stage_text(const std::filesystem::path& relative, std::string_view text);
  Result<void> stage_copy(const std::filesystem::path& from, const std::filesystem::path& relative);

  // Whole and on the device from an earlier run, beside its final name or (while publishing) under
  // it.
  void adopt_shard(const std::filesystem::path& relative);
  void adopt_staged(const std::filesystem::path& relative, std::uint64_t bytes);

  // `reached`: by the run that goes on here.
  Result<void> commit(Phase reached);

  bool committing() const { return committing_; }
  std::size_t finished() const { return finished_.size(); }  // shards
  // Waits for what is being flushed; the number of shards that stay.
  std::size_t keep_finished();

 private:
  OutputDirectory() = default;
  Result<std::filesystem::path> place(const std::filesystem::path& relative);
  std::set<std::filesystem::path> directories() const;  // that hold what this run writes
  Result<void> remove_old_model() const;
  Result<void> publish_all() const;
  Result<void> remove_leftovers() const;

  std::filesystem::path path_;
  std::optional<DirectoryLock> lock_;
  std::unique_ptr<Journal> journal_;
  std::vector<std::filesystem::path> shards_;  // final names
  std::vector<std::filesystem::path> staged_;  // of other files, in the order of commit
  std::map<std::filesystem::path, std::uint64_t> adopted_;  // bytes of staged files
  std::set<std::filesystem::path> finished_;                // of shards_
  std::filesystem::path flushing_;
  std::future<Result<void>> pending_;
  bool created_ = false;
  bool keep_ = false;
  bool committing_ = false;
};

}  // namespace octavo
