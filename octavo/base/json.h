// JSON for small documents: config.json and what the commands print. Large read-only documents
// (safetensors headers, the index) are parsed with simdjson where they are read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {

using Json = nlohmann::json;  // lookups in O(log n), keys sorted: for reading what others wrote
using OrderedJson =
    nlohmann::ordered_json;  // keys as inserted, lookups linear: for small objects that we write

// `name` is the file, for the message. bad_file: not JSON, or nested deeper than 500 levels, with
// the byte offset.
Result<Json> parse_json(std::string_view text, std::string_view name);

// The same, and the document must be an object.
Result<Json> parse_json_object(std::string_view text, std::string_view name);

// Edits of the text of a valid JSON object that leave every other byte as it was (number spellings,
// key order, white space). `path` names nested objects from the top; where it does not lead to an
// object the text comes back unchanged. `value` is JSON text.
std::string set_json_member(std::string_view text, const std::vector<std::string>& path,
                            std::string_view key, std::string_view value);
std::string remove_json_member(std::string_view text, const std::vector<std::string>& path,
                               std::string_view key);

}  // namespace octavo
