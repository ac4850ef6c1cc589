// The bytes of a file where the system keeps them, for what is read many times and does not fit in
// memory beside it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "octavo/base/file.h"

namespace octavo {

// Read-only and of the whole file. A page that the file has no more when it is touched, since the
// file shrank or its device failed, raises SIGBUS: mappings are for programs that catch it
// (docs/decisions/012-mapped-weights.md).
class FileMapping {
 public:
  // bad_file where the file has shrunk since it was opened; io where it cannot be mapped. The
  // mapping outlives `file`.
  static Result<FileMapping> map(const File& file);

  FileMapping(FileMapping&& other) noexcept;
  FileMapping& operator=(FileMapping&& other) noexcept;
  ~FileMapping();

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }  // begins at a page

 private:
  FileMapping(std::filesystem::path path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace octavo
