// Files by descriptor: positioned reads and writes that check bounds and report the file in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "octavo/base/error.h"

namespace octavo {

// What tells one state of a file from another.
struct FileStamp {
  std::uint64_t size;
  std::int64_t mtime_ns;  // of the content
  std::int64_t ctime_ns;  // of content, name or mode: nobody sets it at will
  bool operator==(const FileStamp&) const = default;
};
Result<FileStamp> stamp_of(const std::filesystem::path& path);  // links are followed

class File {
 public:
  static Result<File> open(const std::filesystem::path& path);  // to read
  static Result<File> create(
      const std::filesystem::path& path);  // to read and write; replaces a file of that name

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened; 0 for created files

  // Fills `to` from `offset`. bad_file where the file ends before that (also when it shrank since
  // it was opened).
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> to) const;
  Result<void> write_at(std::uint64_t offset, std::span<const std::byte> from) const;

  Result<void> sync() const;       // data, size and times are on the device
  Result<void> sync_data() const;  // data and size
  Result<FileStamp> stamp() const;

 private:
  friend class FileMapping;
  File(int descriptor, std::filesystem::path path, std::uint64_t size);

  int descriptor_ = -1;
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
};

// What this process has read through File so far.
struct ReadTotals {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;
};
ReadTotals read_totals();

// Held while it lives, released when the process ends, however that comes about. io where another
// process holds the one of this directory; where a filesystem has no locks there is none.
class DirectoryLock {
 public:
  static Result<DirectoryLock> take(const std::filesystem::path& directory);
  DirectoryLock(DirectoryLock&& other) noexcept;
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

// A small text file; bad_file above `max_bytes`.
Result<std::string> read_text(const std::filesystem::path& path,
                              std::uint64_t max_bytes = 64 << 20);

// Where a file is written before it has its final name: a sibling that no reader takes for the real
// thing.
std::filesystem::path partial_path(const std::filesystem::path& path);
bool is_partial(std::string_view name);  // a file name of that form

// Renames partial_path(path) to `path`; durable after sync_directory.
Result<void> publish(const std::filesystem::path& path);
Result<void> sync_directory(const std::filesystem::path& directory);

// With all that lead to it, durably. Whether any was made.
Result<bool> make_directories(const std::filesystem::path& directory);

// For another user than root, on the filesystem that holds `path` or would hold it. Nothing where
// the filesystem does not say.
std::optional<std::uint64_t> available_bytes(const std::filesystem::path& path);
// That `path` takes on its device; 0 where it is not there.
std::uint64_t allocated_bytes(const std::filesystem::path& path);

// Written to the partial sibling and synced, not published.
Result<void> write_partial(const std::filesystem::path& path, std::string_view text);
Result<void> copy_to_partial(const std::filesystem::path& from, const std::filesystem::path& to);

// Durably, the whole text or nothing: where it fails, an old file stands and no partial one is
// left.
Result<void> write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace octavo
