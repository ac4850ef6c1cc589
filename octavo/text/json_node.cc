#include "octavo/text/json_node_internal.h"

#include <fmt/format.h>

namespace octavo::text {

std::unexpected<Error> JsonNode::bad(std::string_view message) const {
  return fail(ErrorCode::bad_file, fmt::format("{}: {}", where, message));
}

std::unexpected<Error> JsonNode::unsupported(std::string_view message) const {
  return fail(ErrorCode::unsupported, fmt::format("{}: {}", where, message));
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  simdjson::dom::element found;
  if (value.at_key(key).get(found) || found.is_null()) return std::nullopt;
  const bool top = where.find(": ") == where.npos;
  return JsonNode{found, fmt::format("{}{}{}", where, top ? ": " : ".", key)};
}

Result<JsonNode> JsonNode::get(std::string_view key) const {
  std::optional<JsonNode> found = find(key);
  if (!found) return bad(fmt::format("{} is missing", key));
  return *std::move(found);
}

Result<std::vector<JsonNode>> JsonNode::items(std::string_view key) const {
  OCTAVO_TRY(const JsonNode list, get(key));
  simdjson::dom::array array;
  if (list.value.get(array)) return list.bad("a list is expected");
  std::vector<JsonNode> result;
  for (const simdjson::dom::element item : array)
    result.push_back({item, fmt::format("{}[{}]", list.where, result.size())});
  return result;
}

Result<std::string_view> JsonNode::text(std::string_view key) const {
  OCTAVO_TRY(const JsonNode node, get(key));
  std::string_view result;
  if (node.value.get(result)) return node.bad("a text is expected");
  return result;
}

Result<std::string_view> JsonNode::text_or(std::string_view key, std::string_view otherwise) const {
  if (!find(key)) return otherwise;
  return text(key);
}

Result<bool> JsonNode::flag_or(std::string_view key, bool otherwise) const {
  const std::optional<JsonNode> node = find(key);
  if (!node) return otherwise;
  bool result = false;
  if (node->value.get(result)) return node->bad("true or false is expected");
  return result;
}

Result<std::uint64_t> JsonNode::number(std::string_view key, std::uint64_t most) const {
  OCTAVO_TRY(const JsonNode node, get(key));
  std::uint64_t result = 0;
  if (node.value.get(result) || result > most)
    return node.bad(fmt::format("a whole number from 0 to {} is expected", most));
  return result;
}

}  // namespace octavo::text
