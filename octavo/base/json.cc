#include "octavo/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace octavo {
namespace {

// A member of an object as it stands in the text: [begin, value) holds key and colon, [value, end)
// the value.
struct Member {
  std::string key;
  std::size_t begin;
  std::size_t value;
  std::size_t end;
};

struct Object {
  std::size_t open;   // of '{'
  std::size_t close;  // of '}'
  std::vector<Member> members;
};

// The text is known to be valid JSON, so these scanners only find ends.
std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() &&
         (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
    ++at;
  return at;
}

std::size_t skip_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

std::size_t skip_value(std::string_view text, std::size_t at) {
  if (text[at] == '"') return skip_string(text, at);
  if (text[at] != '{' && text[at] != '[')
    return std::min(text.find_first_of(",]} \t\n\r", at), text.size());
  std::size_t depth = 0;
  do {
    if (text[at] == '"') {
      at = skip_string(text, at);
      continue;
    }
    if (text[at] == '{' || text[at] == '[') ++depth;
    if (text[at] == '}' || text[at] == ']') --depth;
    ++at;
  } while (depth > 0 && at < text.size());
  return at;
}

// Printing and copying go down a document by recursion.
constexpr std::size_t kMaxDepth = 500;

// Where the text goes below kMaxDepth. It need not be valid.
std::optional<std::size_t> too_deep(std::string_view text) {
  std::size_t depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      at = skip_string(text, at);
      continue;
    }
    if ((text[at] == '{' || text[at] == '[') && ++depth > kMaxDepth) return at;
    if ((text[at] == '}' || text[at] == ']') && depth > 0) --depth;
    ++at;
  }
  return std::nullopt;
}

Object scan_object(std::string_view text, std::size_t open) {
  Object object{open, open, {}};
  std::size_t at = skip_space(text, open + 1);
  while (at < text.size() && text[at] != '}') {
    Member member;
    member.begin = at;
    const std::size_t key_end = skip_string(text, at);
    member.key = Json::parse(text.substr(at, key_end - at)).get<std::string>();
    at = skip_space(text, key_end);
    member.value = skip_space(text, at + 1);
    member.end = skip_value(text, member.value);
    at = skip_space(text, member.end);
    if (at < text.size() && text[at] == ',') at = skip_space(text, at + 1);
    object.members.push_back(std::move(member));
  }
  object.close = at;
  return object;
}

std::optional<Object> find_object(std::string_view text, const std::vector<std::string>& path) {
  const std::size_t bom = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  std::size_t open = skip_space(text, bom);
  if (open >= text.size() || text[open] != '{') return std::nullopt;
  Object object = scan_object(text, open);
  for (const std::string& step : path) {
    const Member* next = nullptr;
    for (const Member& member : object.members) {
      if (member.key == step) next = &member;  // the last of duplicates counts, as in Python
    }
    if (next == nullptr || text[next->value] != '{') return std::nullopt;
    object = scan_object(text, next->value);
  }
  return object;
}

// Python writes NaN, Infinity and -Infinity, which are no JSON: here they read as texts of as many
// bytes, "N", "Infini" and "-Infini", so that who wants a number refuses them.
std::string without_python_literals(std::string_view text) {
  std::string result(text);
  for (std::size_t at = 0; at < result.size();) {
    if (result[at] == '"') {
      at = skip_string(result, at);
      continue;
    }
    for (const std::string_view literal : {"-Infinity", "Infinity", "NaN"}) {
      if (!std::string_view(result).substr(at).starts_with(literal)) continue;
      result.replace(at, literal.size(),
                     fmt::format("\"{}\"", literal.substr(0, literal.size() - 2)));
      at += literal.size() - 1;
      break;
    }
    ++at;
  }
  return result;
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view name) {
  if (const std::optional<std::size_t> at = too_deep(text)) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: nested deeper than {} levels at offset {}", name, kMaxDepth, *at));
  }
  // nlohmann takes NUL for the end.
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: not valid JSON: a NUL byte at {}", name, nul));
  }
  try {
    return Json::parse(without_python_literals(text));
  } catch (const Json::exception& error) {
    // nlohmann's text: "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    const std::string_view what = error.what();
    const std::size_t bracket = what.find("] ");
    return fail(ErrorCode::bad_file,
                fmt::format("{}: not valid JSON: {}", name,
                            bracket == what.npos ? what : what.substr(bracket + 2)));
  }
}

Result<Json> parse_json_object(std::string_view text, std::string_view name) {
  OCTAVO_TRY(Json json, parse_json(text, name));
  if (!json.is_object()) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: a JSON object was expected, this is {}", name, json.type_name()));
  }
  return json;
}

std::string set_json_member(std::string_view text, const std::vector<std::string>& path,
                            std::string_view key, std::string_view value) {
  const std::optional<Object> object = find_object(text, path);
  std::string result(text);
  if (!object) return result;
  for (auto member = object->members.rbegin(); member != object->members.rend(); ++member) {
    if (member->key != key) continue;
    return result.replace(member->value, member->end - member->value, value);
  }
  // A new last member, on a line and with an indentation like the first one's.
  const std::string quoted = Json(key).dump();
  if (object->members.empty()) {
    return result.replace(object->open, object->close + 1 - object->open,
                          fmt::format("{{\n  {}: {}\n}}", quoted, value));
  }
  const std::string_view lead =
      text.substr(object->open + 1, object->members.front().begin - object->open - 1);
  return result.insert(object->members.back().end, fmt::format(",{}{}: {}", lead, quoted, value));
}

std::string remove_json_member(std::string_view text, const std::vector<std::string>& path,
                               std::string_view key) {
  const std::optional<Object> object = find_object(text, path);
  if (!object) return std::string(text);
  const std::vector<Member>& members = object->members;
  // A member goes with the comma after it; where none is left behind it, with the one before it.
  std::string result;
  std::size_t copied = 0;                                          // of `text`, up to here
  std::size_t kept = members.empty() ? 0 : members.front().begin;  // end of the last one kept
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].key != key) {
      kept = members[i].end;
      continue;
    }
    std::size_t next = i + 1;
    while (next < members.size() && members[next].key == key) ++next;
    const bool last = next == members.size();
    const std::size_t begin = last ? kept : members[i].begin;
    result += text.substr(copied, begin - copied);
    copied = last ? members.back().end : members[next].begin;
    i = next - 1;
  }
  return result.append(text.substr(copied));
}

}  // namespace octavo
