// Where a conversion writes: files stand beside their final names until all of them are whole.
#pragma once

#include <filesystem>
#include <future>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/file.h"
#include "octavo/checkpoint/checkpoint.h"

namespace octavo {

// Refuses (bad_value) a destination that is the source, lies in it or holds it, whatever the path
// is spelled like, that is no directory, or that is not empty without `overwrite`.
Result<void> check_destination(const Checkpoint& checkpoint,
                               const std::filesystem::path& destination, bool overwrite);

// Shards are made with create() and flush_in_background(), what goes with them with stage_text()
// and stage_copy(); all stand beside their final names, and an old model in the directory is
// untouched. commit() then only removes and renames, in an order in which no moment shows something
// that opens as a model but is neither the old nor the new one: old weights go first, old index and
// config after them; side files, config and index come, and the weights last (an index that names
// missing shards is refused, as is one shard of many without an index). Destroyed without commit(),
// it takes away what it made, and the directory too where it made that.
class OutputDirectory {
 public:
  static Result<OutputDirectory> open(const std::filesystem::path& path);
  OutputDirectory(OutputDirectory&&) = default;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  ~OutputDirectory();

  Result<File> create(const std::filesystem::path& shard);
  // The device writes a finished file while the next one is computed; one at a time waits for it.
  Result<void> flush_in_background(File file);
  Result<void> finish_flushing();

  Result<void> stage_text(const std::filesystem::path& relative, std::string_view text);
  Result<void> stage_copy(const std::filesystem::path& from, const std::filesystem::path& relative);

  Result<void> commit();

 private:
  OutputDirectory() = default;
  Result<std::filesystem::path> place(const std::filesystem::path& relative);
  Result<void> remove_old_model() const;

  std::filesystem::path path_;
  std::vector<std::filesystem::path> shards_;  // final names
  std::vector<std::filesystem::path> staged_;  // of other files, in the order of commit
  std::future<Result<void>> pending_;
  bool created_ = false;
  bool done_ = false;
};

}  // namespace octavo
