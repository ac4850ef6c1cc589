#include "octavo/checkpoint/index.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "octavo/base/file.h"
#include "octavo/base/json.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

std::optional<Index> refuse(Defects& defects, DefectCode code, std::string_view name,
                            std::string_view tensor, std::string_view message) {
  defects.push_back(make_defect(code, name, tensor, {}, fmt::format("{}: {}", name, message)));
  return std::nullopt;
}

std::optional<Index> survey_padded(const simdjson::padded_string& text, std::string_view name,
                                   Defects& defects) {
  using enum DefectCode;
  const std::size_t bom = std::string_view(text).starts_with("\xEF\xBB\xBF") ? 3 : 0;
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  constexpr bool kCopy = false;  // the padding is there
  if (const auto error = parser.parse(text.data() + bom, text.size() - bom, kCopy).get(document)) {
    return refuse(defects, index_syntax, name, "",
                  fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  }
  simdjson::dom::object whole;
  if (document.get(whole)) return refuse(defects, index_syntax, name, "", "not a JSON object");
  int maps = 0;  // of two, other readers take the other one
  for (const auto& [key, value] : whole) maps += key == "weight_map" ? 1 : 0;
  if (maps != 1)
    return refuse(defects, index_syntax, name, "",
                  fmt::format("{} weight_map in it", maps == 0 ? "no" : "more than one"));
  simdjson::dom::object map;
  if (whole["weight_map"].get(map))
    return refuse(defects, index_syntax, name, "", "weight_map is not an object");
  if (map.size() == 0) return refuse(defects, index_syntax, name, "", "weight_map names no tensor");
  Index index;
  for (const auto& [tensor, value] : map) {
    std::string_view given;
    if (value.get(given)) {
      return refuse(defects, index_syntax, name, tensor,
                    fmt::format("weight_map[\"{}\"] is not a file name", tensor));
    }
    if (given.find('\0') != given.npos) {
      return refuse(
          defects, index_path, name, tensor,
          fmt::format("weight_map[\"{}\"] has a NUL byte in its file name: {}", tensor, given));
    }
    const fs::path relative(given);
    if (given.empty() || relative.is_absolute() ||
        std::ranges::find(relative, fs::path("..")) != relative.end()) {
      return refuse(
          defects, index_path, name, tensor,
          fmt::format("weight_map[\"{}\"] leads out of the directory: {}", tensor, given));
    }
    // One spelling for each file: "./a" and "sub//a" are "a" and "sub/a".
    const std::string file = relative.lexically_normal().generic_string();
    if (const auto [at, added] = index.weight_map.emplace(tensor, file);
        !added && at->second != file) {
      return refuse(
          defects, index_syntax, name, tensor,
          fmt::format("weight_map has \"{}\" twice, in {} and in {}", tensor, at->second, file));
    }
  }
  std::uint64_t total = 0;
  if (!document["metadata"]["total_size"].get(total)) index.total_size = total;
  return index;
}

}  // namespace

std::optional<Index> survey_index(std::string_view text, std::string_view name, Defects& defects) {
  return survey_padded(simdjson::padded_string(text), name, defects);
}

std::optional<Index> survey_index_file(const fs::path& path, Defects& defects) {
  const std::string name = path.string();
  const auto unreadable = [&](const Error& error) {
    defects.push_back(make_defect(DefectCode::unreadable, name, "", {}, error.message));
    return std::nullopt;
  };
  const Result<File> file = File::open(path);
  if (!file) return unreadable(file.error());
  if (file->size() > kMaxIndexBytes) {
    return refuse(
        defects, DefectCode::index_syntax, name, "",
        fmt::format("{} bytes; an index of at most {} is read", file->size(), kMaxIndexBytes));
  }
  simdjson::padded_string text(file->size());
  const std::span<char> bytes(text.data(), text.size());
  if (const auto got = file->read_at(0, std::as_writable_bytes(bytes)); !got)
    return unreadable(got.error());
  return survey_padded(text, name, defects);
}

Result<Index> parse_index(std::string_view text, std::string_view name) {
  Defects defects;
  std::optional<Index> index = survey_index(text, name, defects);
  if (!index) return std::unexpected(to_error(defects.front()));
  return *std::move(index);
}

std::string index_text(const WeightMap& weight_map, std::uint64_t total_size) {
  std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total_size);
  bool first = true;
  for (const auto& [tensor, file] : weight_map) {
    text += fmt::format("{}\n    {}: {}", first ? "" : ",", Json(tensor).dump(), Json(file).dump());
    first = false;
  }
  return text + (first ? "}\n}\n" : "\n  }\n}\n");
}

}  // namespace octavo
