// Numbers in sentences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo {

std::string human_bytes(double bytes);  // "269.1 MB": powers of 1000, as disks and links are sold
inline std::string human_bytes(std::uint64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

// "1 file", "3 files".
inline std::string counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

}  // namespace octavo
