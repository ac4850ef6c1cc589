#include "octavo/base/json_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace octavo {
namespace {

std::optional<std::size_t> count_of(const Json& value, std::size_t least, std::size_t most) {
  // Whole numbers that a program put in are signed in nlohmann's sense.
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<std::int64_t>() < 0))
    return std::nullopt;
  const auto count = value.get<std::uint64_t>();
  if (count < least || count > most) return std::nullopt;
  return count;
}

}  // namespace

const Json* JsonReader::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::size_t> JsonReader::count(const char* key, std::size_t least, std::size_t most) {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::size_t> count = count_of(*value, least, most);
  if (!count) refuse_value(key, *value, fmt::format("a whole number from {} to {}", least, most));
  return count;
}

std::optional<std::vector<std::size_t>> JsonReader::counts(const char* key, std::size_t least,
                                                           std::size_t most) {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::size_t> counts;
  const std::size_t size = value->is_array() ? value->size() : 1;
  for (std::size_t i = 0; i < size; ++i) {
    const auto count = count_of(value->is_array() ? (*value)[i] : *value, least, most);
    if (!count) {
      refuse_value(key, *value,
                   fmt::format("a whole number from {} to {} or a list of them", least, most));
      return std::nullopt;
    }
    counts.push_back(*count);
  }
  return counts;
}

std::optional<double> JsonReader::number(const char* key) {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  refuse_value(key, *value, "a number");
  return std::nullopt;
}

std::optional<double> JsonReader::number_above(const char* key, double above) {
  const std::optional<double> value = number(key);
  if (!value || *value > above) return value;
  refuse_value(key, *find(key), fmt::format("a number above {}", above));
  return std::nullopt;
}

std::optional<double> JsonReader::number_from(const char* key, double least) {
  const std::optional<double> value = number(key);
  if (!value || *value >= least) return value;
  refuse_value(key, *find(key), fmt::format("a number of at least {}", least));
  return std::nullopt;
}

std::optional<bool> JsonReader::flag(const char* key) {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  refuse_value(key, *value, "true or false");
  return std::nullopt;
}

std::optional<std::string> JsonReader::text(const char* key) {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  refuse_value(key, *value, "a text");
  return std::nullopt;
}

std::optional<std::vector<std::string>> JsonReader::texts(const char* key) {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  bool well = value->is_array();
  std::vector<std::string> texts;
  for (std::size_t i = 0; well && i < value->size(); ++i) {
    well = (*value)[i].is_string();
    if (well) texts.push_back((*value)[i].get<std::string>());
  }
  if (well) return texts;
  refuse_value(key, *value, "a list of texts");
  return std::nullopt;
}

void JsonReader::refuse(ErrorCode code, std::string_view what) {
  if (!error_) error_ = fail(code, fmt::format("{}: {}", where_, what)).error();
}

void JsonReader::refuse_value(const char* key, const Json& value, std::string_view expected) {
  std::string words = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (words.size() > 60) words = words.substr(0, 60) + "...";
  refuse(ErrorCode::bad_model, fmt::format("{} is {}, but {} is expected", key, words, expected));
}

Result<void> JsonReader::status() const {
  if (error_) return std::unexpected(*error_);
  return {};
}

}  // namespace octavo
