// Members of a parsed tokenizer.json, with messages that say where something is wrong.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"

namespace octavo::text {

struct JsonNode {
  simdjson::dom::element value;
  std::string where;  // "FILE: model.vocab"

  // bad_file, or unsupported for unsupported(): "WHERE: MESSAGE".
  std::unexpected<Error> bad(std::string_view message) const;
  std::unexpected<Error> unsupported(std::string_view message) const;

  bool is_null() const { return value.is_null(); }
  // The member; nullopt where it is missing or null.
  std::optional<JsonNode> find(std::string_view key) const;
  Result<JsonNode> get(std::string_view key) const;  // an error where there is none
  Result<std::vector<JsonNode>> items(std::string_view key) const;

  Result<std::string_view> text(std::string_view key) const;
  Result<std::string_view> text_or(std::string_view key, std::string_view otherwise) const;
  Result<bool> flag_or(std::string_view key, bool otherwise) const;
  Result<std::uint64_t> number(std::string_view key, std::uint64_t most) const;
};

}  // namespace octavo::text
