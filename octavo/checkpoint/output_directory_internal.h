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

// The order: create() and flush_in_background() each shard, commit_shards(), then write_text() and
// copy() what goes with them, keep(). Until commit_shards() an old model in the directory is
// untouched. Destroyed without keep(), it takes away what it made, and the directory too where it
// made that.
class OutputDirectory {
 public:
  static Result<OutputDirectory> open(const std::filesystem::path& path);
  OutputDirectory(OutputDirectory&&) = default;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  ~OutputDirectory();

  Result<File> create(const std::filesystem::path& relative);

  // The device writes a finished file while the next one is computed; one at a time waits for it.
  Result<void> flush_in_background(File file);
  Result<void> finish_flushing();

  // Removes the old model's weights, index and config, and gives the shards their names.
  Result<void> commit_shards();
  Result<void> write_text(const std::filesystem::path& relative, std::string_view text);
  Result<void> copy(const std::filesystem::path& from, const std::filesystem::path& relative);
  void keep() { keep_ = true; }

 private:
  OutputDirectory() = default;
  Result<std::filesystem::path> place(const std::filesystem::path& relative);

  std::filesystem::path path_;
  std::vector<std::filesystem::path> shards_;     // by final name, written as partial files
  std::vector<std::filesystem::path> published_;  // final names that this run gave
  std::future<Result<void>> pending_;
  bool created_ = false;
  bool keep_ = false;
};

}  // namespace octavo
