#include "text_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "interrupt.h"
#include "octavo/base/file.h"
#include "octavo/text/utf8.h"

namespace octavo::app {
namespace {

// To its end: the size of a pipe is not known.
Result<std::string> read_stream(int descriptor, const std::string& name, std::uint64_t max_bytes) {
  constexpr std::size_t kPiece = 1 << 16;
  std::string text;
  while (true) {
    const std::size_t size = text.size();
    text.resize(size + kPiece);
    const ssize_t count = ::read(descriptor, text.data() + size, kPiece);
    if (count < 0 && errno != EINTR) {
      return fail(ErrorCode::io, fmt::format("cannot read {}: {}", name, std::strerror(errno)));
    }
    text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) return text;
    if (text.size() > max_bytes) {
      return fail(ErrorCode::bad_file,
                  fmt::format("{}: more than the {} bytes that are read of it", name, max_bytes));
    }
  }
}

bool is_stream(const std::string& file) {
  struct stat status{};
  return ::stat(file.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

// False where a signal came first. read() alone would go on after it, and poll() alone miss one
// that came just before, or to another thread.
bool wait_for_input() {
  std::array<pollfd, 2> inputs{{{STDIN_FILENO, POLLIN, 0}, {interrupt_descriptor(), POLLIN, 0}}};
  while (caught_signal() == 0) {
    if (::poll(inputs.data(), inputs.size(), -1) >= 0 && inputs[0].revents != 0) return true;
  }
  return false;
}

}  // namespace

Result<std::optional<std::string>> InputLines::next() {
  constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20, kPiece = 1 << 16;
  for (std::size_t searched = 0;;) {
    const std::size_t end = held_.find('\n', searched);
    if (end != held_.npos) {
      std::string line = held_.substr(0, end);
      held_.erase(0, end + 1);
      return line;
    }
    if (held_.size() > kMaxLineBytes) {
      return fail(ErrorCode::bad_file,
                  fmt::format("standard input: a line of more than {} bytes", kMaxLineBytes));
    }
    if (ended_ && !held_.empty()) return std::exchange(held_, {});
    if (ended_ || !wait_for_input()) return std::nullopt;
    searched = held_.size();
    held_.resize(searched + kPiece);
    const ssize_t count = ::read(STDIN_FILENO, held_.data() + searched, kPiece);
    if (count < 0 && errno != EINTR && errno != EAGAIN) {
      return fail(ErrorCode::io,
                  fmt::format("cannot read standard input: {}", std::strerror(errno)));
    }
    held_.resize(searched + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    ended_ = count == 0;
  }
}

Result<void> check_standard_input() {
  const int flags = ::fcntl(STDIN_FILENO, F_GETFL);
  if (flags != -1 && (flags & O_ACCMODE) != O_WRONLY) return {};
  return fail(ErrorCode::io, "standard input is closed, and there is no other input");
}

Result<TextInput> read_input(const std::string& file, std::uint64_t max_bytes) {
  TextInput input{file, {}};
  if (file == kStandardInput) {
    input.name = "standard input";
    OCTAVO_CHECK(check_standard_input());
    OCTAVO_TRY(input.text, read_stream(STDIN_FILENO, input.name, max_bytes));
  } else if (is_stream(file)) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      return fail(ErrorCode::io, fmt::format("cannot open {}: {}", file, std::strerror(errno)));
    }
    Result<std::string> text = read_stream(descriptor, file, max_bytes);
    ::close(descriptor);
    OCTAVO_TRY(input.text, std::move(text));
  } else {
    OCTAVO_TRY(input.text, read_text(file, max_bytes));
  }
  return input;
}

Result<TextInput> read_utf8_input(const std::string& file, std::uint64_t max_bytes) {
  OCTAVO_TRY(TextInput input, read_input(file, max_bytes));
  if (const auto bad = text::invalid_utf8_at(input.text)) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: not valid UTF-8 at offset {}", input.name, *bad));
  }
  return input;
}

}  // namespace octavo::app
