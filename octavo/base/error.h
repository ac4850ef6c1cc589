// How things fail. Expected failures (files, JSON, checkpoints, user text) return Result<T>; broken
// contracts (a shape or format that the caller got wrong) throw ContractError. The library never
// prints, aborts or exits.
#pragma once

#include <expected>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace octavo {

enum class ErrorCode {
  io,           // the operating system refused: missing file, no space, permission
  bad_file,     // a file's content is not what its format says: safetensors header, index, JSON
  bad_model,    // files are well formed but do not fit together: scales, shapes, config
  bad_value,    // a value that was asked for makes no sense: option, environment variable
  unsupported,  // valid, known, and not handled
  busy,         // too many open files: nothing is known of what could not be opened
  interrupted,  // the caller asked to stop
};

// `message` is one line: it names the item (file, tensor, offset) and, where the cause is known,
// what to do next.
struct Error {
  ErrorCode code = ErrorCode::io;
  std::string message;
};

template <class T>
using Result = std::expected<T, Error>;

// Text from a file, safe for one line, a terminal and JSON: control characters and what is no UTF-8
// become \xNN.
std::string printable(std::string_view text);

// `message` is made printable: names in it come from files.
std::unexpected<Error> fail(ErrorCode code, std::string_view message);

// Begins with the operation and states what was given and what was expected.
class ContractError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace octavo

// OCTAVO_TRY(x, expression): declares x from a Result, or returns its error from the enclosing
// function.
#define OCTAVO_TRY_CONCAT_(a, b) a##b
#define OCTAVO_TRY_NAME_(a, b) OCTAVO_TRY_CONCAT_(a, b)
#define OCTAVO_TRY(declaration, ...)                                                       \
  auto OCTAVO_TRY_NAME_(octavo_result_, __LINE__) = (__VA_ARGS__);                         \
  if (!OCTAVO_TRY_NAME_(octavo_result_, __LINE__))                                         \
    return std::unexpected(std::move(OCTAVO_TRY_NAME_(octavo_result_, __LINE__)).error()); \
  declaration = *std::move(OCTAVO_TRY_NAME_(octavo_result_, __LINE__))

// The same for Result<void>.
#define OCTAVO_CHECK(...)                                       \
  do {                                                          \
    if (auto octavo_status = (__VA_ARGS__); !octavo_status)     \
      return std::unexpected(std::move(octavo_status).error()); \
  } while (false)
