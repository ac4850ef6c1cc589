#include "octavo/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace octavo {
namespace {

constexpr std::string_view kPartialSuffix = ".partial";
constexpr std::size_t kCopyBytes = 4 << 20;

std::atomic<std::uint64_t> read_calls = 0;
std::atomic<std::uint64_t> read_bytes = 0;

std::unexpected<Error> fail_errno(std::string_view doing, const std::filesystem::path& path) {
  const int number = errno;
  std::string message =
      fmt::format("cannot {} {}: {}", doing, path.string(), std::strerror(number));
  if (number == EMFILE || number == ENFILE) {
    return fail(ErrorCode::busy, message + "; raise the limit (ulimit -n): each shard is one");
  }
  if (number == ENOSPC) message += "; free some space or choose another output directory";
  return fail(ErrorCode::io, std::move(message));
}

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

FileStamp stamp_from(const struct stat& status) {
  return {static_cast<std::uint64_t>(status.st_size), nanoseconds(status.st_mtim),
          nanoseconds(status.st_ctim)};
}

}  // namespace

Result<FileStamp> stamp_of(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return fail_errno("look at", path);
  return stamp_from(status);
}

File::File(int descriptor, std::filesystem::path path, std::uint64_t size)
    : descriptor_(descriptor), path_(std::move(path)), size_(size) {}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<File> File::open(const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe in the place of a file is refused below instead of being waited for.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return fail_errno("open", path);
  File file(descriptor, path, 0);
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return fail_errno("look at", path);
  if (!S_ISREG(status.st_mode))
    return fail(ErrorCode::bad_file, fmt::format("{}: not a regular file", path.string()));
  file.size_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

Result<File> File::create(const std::filesystem::path& path) {
  // What stands there is removed, not opened: it may be a link to something that must not change.
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno("replace", path);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) return fail_errno("create", path);
  return File(descriptor, path, 0);
}

ReadTotals read_totals() { return {read_calls, read_bytes}; }

Result<void> File::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  read_calls.fetch_add(1, std::memory_order_relaxed);
  read_bytes.fetch_add(to.size(), std::memory_order_relaxed);
  std::size_t done = 0;
  constexpr auto kLast = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  const bool beyond = offset > kLast || to.size() > kLast - offset;  // of what a file can hold
  while (done < to.size()) {
    const ssize_t got = beyond ? 0
                               : ::pread(descriptor_, to.data() + done, to.size() - done,
                                         static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read", path_);
    if (got == 0) {
      return fail(ErrorCode::bad_file,
                  fmt::format("{}: truncated: {} bytes were expected at offset {}, {} are there",
                              path_.string(), to.size(), offset, done));
    }
    done += static_cast<std::size_t>(got);
  }
  return {};
}

Result<void> File::write_at(std::uint64_t offset, std::span<const std::byte> from) const {
  std::size_t done = 0;
  while (done < from.size()) {
    const ssize_t put = ::pwrite(descriptor_, from.data() + done, from.size() - done,
                                 static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail_errno("write", path_);
    if (put == 0) {
      return fail(ErrorCode::io, fmt::format("cannot write {}: nothing more is taken at offset {}",
                                             path_.string(), offset + done));
    }
    done += static_cast<std::size_t>(put);
  }
  return {};
}

Result<void> File::sync() const {
  if (::fsync(descriptor_) != 0) return fail_errno("flush", path_);
  return {};
}

Result<void> File::sync_data() const {
  if (::fdatasync(descriptor_) != 0) return fail_errno("flush", path_);
  return {};
}

Result<FileStamp> File::stamp() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) return fail_errno("look at", path_);
  return stamp_from(status);
}

Result<DirectoryLock> DirectoryLock::take(const std::filesystem::path& directory) {
  const int descriptor =
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return fail_errno("open", directory);
  DirectoryLock lock(descriptor);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return fail(ErrorCode::io,
                fmt::format("{}: another run is writing into it; wait for its end, or choose "
                            "another output directory",
                            directory.string()));
  }
  return lock;
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

DirectoryLock::~DirectoryLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t max_bytes) {
  OCTAVO_TRY(const File file, File::open(path));
  if (file.size() > max_bytes) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: {} bytes; at most {} are expected of such a file", path.string(),
                            file.size(), max_bytes));
  }
  std::string text(file.size(), '\0');
  OCTAVO_CHECK(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

std::filesystem::path partial_path(const std::filesystem::path& path) {
  return path.parent_path() / ("." + path.filename().string() + std::string(kPartialSuffix));
}

bool is_partial(std::string_view name) {
  return name.starts_with('.') && name.ends_with(kPartialSuffix) &&
         name.size() > 1 + kPartialSuffix.size();
}

Result<void> publish(const std::filesystem::path& path) {
  if (::rename(partial_path(path).c_str(), path.c_str()) != 0) return fail_errno("rename to", path);
  return {};
}

Result<void> sync_directory(const std::filesystem::path& directory) {
  const int descriptor =
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return fail_errno("open", directory);
  const int status = ::fsync(descriptor);
  ::close(descriptor);
  if (status != 0) return fail_errno("flush", directory);
  return {};
}

Result<bool> make_directories(const std::filesystem::path& directory) {
  const std::filesystem::path parent = directory.parent_path();
  if (directory.filename().empty() && parent != directory) return make_directories(parent);  // "a/"
  std::error_code error;
  if (directory.empty() || std::filesystem::is_directory(directory, error)) return false;
  OCTAVO_CHECK(make_directories(parent));
  if (::mkdir(directory.c_str(), 0777) != 0) {
    const int number = errno;
    if (std::filesystem::is_directory(directory, error)) return false;  // "new/.."
    errno = number;
    return fail_errno("create", directory);
  }
  // A parent that may be written to but not read cannot be flushed: no reason to stop.
  if (::access(parent.empty() ? "." : parent.c_str(), R_OK) == 0)
    OCTAVO_CHECK(sync_directory(parent));
  return true;
}

std::optional<std::uint64_t> available_bytes(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(there, error) && there != there.parent_path())
    there = there.parent_path();
  struct statvfs status{};
  if (::statvfs(there.c_str(), &status) != 0 || status.f_blocks == 0) return std::nullopt;
  return std::uint64_t{status.f_bavail} * status.f_frsize;
}

std::uint64_t allocated_bytes(const std::filesystem::path& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

Result<void> write_partial(const std::filesystem::path& path, std::string_view text) {
  OCTAVO_TRY(const File file, File::create(partial_path(path)));
  OCTAVO_CHECK(file.write_at(0, std::as_bytes(std::span(text))));
  return file.sync();
}

Result<void> copy_to_partial(const std::filesystem::path& from, const std::filesystem::path& to) {
  OCTAVO_TRY(const File source, File::open(from));
  OCTAVO_TRY(const File target, File::create(partial_path(to)));
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kCopyBytes, source.size()));
  for (std::uint64_t at = 0; at < source.size(); at += buffer.size()) {
    const std::span part(buffer.data(), std::min<std::uint64_t>(buffer.size(), source.size() - at));
    OCTAVO_CHECK(source.read_at(at, part));
    OCTAVO_CHECK(target.write_at(at, part));
  }
  std::error_code ignored;  // scripts keep their executable bit where the file system has one
  std::filesystem::permissions(
      partial_path(to),
      std::filesystem::status(from, ignored).permissions() | std::filesystem::perms::owner_write,
      ignored);
  return target.sync();
}

Result<void> write_text(const std::filesystem::path& path, std::string_view text) {
  Result<void> status = write_partial(path, text);
  if (status) status = publish(path);
  if (!status) ::unlink(partial_path(path).c_str());
  OCTAVO_CHECK(std::move(status));
  return sync_directory(path.parent_path());
}

}  // namespace octavo
