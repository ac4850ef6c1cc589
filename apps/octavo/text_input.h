// Texts that commands read: of files, pipes and standard input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "octavo/base/error.h"

namespace octavo::app {

inline constexpr const char* kStandardInput = "-";

struct TextInput {
  std::string name;  // for messages
  std::string text;
};

// `file` may be a pipe, or kStandardInput. io: it cannot be read, standard input is closed.
// bad_file: above `max_bytes`.
Result<TextInput> read_input(const std::string& file, std::uint64_t max_bytes);

// The same; bad_file where the text is not UTF-8.
Result<TextInput> read_utf8_input(const std::string& file, std::uint64_t max_bytes);

// Lines of standard input, as they come.
class InputLines {
 public:
  // Without its end. None: there is no more, or a signal came (caught_signal()), also one that came
  // before. bad_file: a line above 64 MiB.
  Result<std::optional<std::string>> next();

 private:
  std::string held_;  // read, and not yet given out
  bool ended_ = false;
};

// io where standard input is closed.
Result<void> check_standard_input();

}  // namespace octavo::app
