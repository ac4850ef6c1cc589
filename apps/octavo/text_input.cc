#include "text_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

}  // namespace

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
