#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo::text::jinja {

// A template that needs more is refused: an error, never a hang.
struct Limits {
  std::uint64_t steps = 5'000'000;      // expressions, statements and elements touched
  std::uint64_t bytes = 512 << 20;      // of text read and written on the way, all together
  std::size_t output_bytes = 64 << 20;  // of one text, the result or one on the way
};

}  // namespace octavo::text::jinja
