// Preloaded into the program: ends it, as a crash would, just before the OCTAVO_KILL_AT-th of the
// calls that change what a disk holds.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>

namespace {

std::atomic<long> calls = 0;

void count_call() {
  static const char* const at = std::getenv("OCTAVO_KILL_AT");
  if (at != nullptr && calls.fetch_add(1) + 1 == std::atol(at)) ::kill(::getpid(), SIGKILL);
}

template <class... Args>
int change(long number, Args... args) {
  count_call();
  return static_cast<int>(::syscall(number, args...));
}

}  // namespace

extern "C" {

ssize_t pwrite(int file, const void* from, size_t bytes, off_t offset) {
  count_call();
  return ::syscall(SYS_pwrite64, file, from, bytes, offset);
}

int fsync(int file) { return change(SYS_fsync, file); }
int fdatasync(int file) { return change(SYS_fdatasync, file); }

int rename(const char* from, const char* to) noexcept {
  return change(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int at, const char* from, int to_at, const char* to) noexcept {
  return change(SYS_renameat2, at, from, to_at, to, 0);
}

int unlink(const char* path) noexcept { return change(SYS_unlinkat, AT_FDCWD, path, 0); }

int unlinkat(int at, const char* path, int flags) noexcept {
  return change(SYS_unlinkat, at, path, flags);
}

int rmdir(const char* path) noexcept { return change(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char* path) noexcept {
  const int status = unlink(path);
  return status != 0 && errno == EISDIR ? rmdir(path) : status;
}

int mkdir(const char* path, mode_t mode) noexcept {
  return change(SYS_mkdirat, AT_FDCWD, path, mode);
}

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
    count_call();
  }
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

}  // extern "C"
