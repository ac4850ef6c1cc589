#include "octavo/base/file_mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace octavo {

Result<FileMapping> FileMapping::map(const File& file) {
  OCTAVO_TRY(const FileStamp now, file.stamp());
  if (now.size < file.size()) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: truncated: {} bytes when it was opened, {} now",
                            file.path().string(), file.size(), now.size));
  }
  if (file.size() == 0) return FileMapping(file.path(), {});
  void* data = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor_, 0);
  if (data == MAP_FAILED) {
    return fail(ErrorCode::io,
                fmt::format("cannot map {}: {}", file.path().string(), std::strerror(errno)));
  }
  return FileMapping(file.path(), {static_cast<const std::byte*>(data), file.size()});
}

FileMapping::FileMapping(FileMapping&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

FileMapping::~FileMapping() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace octavo
