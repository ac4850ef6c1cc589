// Files as no writer makes them, and what every command says of them.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/tensor_file.h"

namespace octavo::tests {

std::string length_bytes(
    std::uint64_t length);  // the eight bytes that a safetensors file begins with
std::string tensor_file_text(std::string_view header, std::string_view data);

// "name":{...} of a header; shape and offsets are JSON text.
std::string header_entry(std::string_view name, std::string_view dtype, std::string_view shape,
                         std::string_view offsets);

// One after the other in the given order, of any dtype.
std::string tensor_file_text(const std::vector<std::pair<std::string, Tensor>>& tensors);

// Whatever the header says, also of dtypes that read_tensor_file() does not know.
Tensors raw_tensors(const std::filesystem::path& path);

// The report of `verify --json`, which must end with `status`.
nlohmann::json verify_report(const std::filesystem::path& path, int status,
                             const std::vector<std::string>& options = {},
                             std::string_view before = "");

std::vector<std::string> codes_of(const nlohmann::json& defects);  // in their order

// `verify` finds defects (status 3), the first of them with `code` and a message that begins with
// the file; inspect, quantize and dequantize end with status 1 and just that message; what is in
// the directory stays as it is, and no output appears. Returns the report.
nlohmann::json expect_refused(const std::filesystem::path& path, std::string_view code,
                              const std::vector<std::string>& options = {},
                              std::string_view before = "");

// Size and time of everything below `directory`, and bytes of what is small.
std::map<std::string, std::string> state_of(const std::filesystem::path& directory);

}  // namespace octavo::tests
