// Typed members of a JSON object. The first that is wrong is remembered, so that a reader lists its
// members one a line and asks once, at the end, whether all were well.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json.h"

namespace octavo {

class JsonReader {
 public:
  // `where`: of the object, for messages: "config.json", "config.json: rope_scaling".
  JsonReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  // Null counts as absent, but for contains().
  bool contains(const char* key) const { return object_.contains(key); }
  bool has(const char* key) const { return find(key) != nullptr; }
  const Json* find(const char* key) const;

  // nullopt: absent or wrong.
  std::optional<std::size_t> count(const char* key, std::size_t least, std::size_t most);
  std::size_t count(const char* key, std::size_t fallback, std::size_t least, std::size_t most) {
    return count(key, least, most).value_or(fallback);
  }
  // Finite; `above` itself is not allowed.
  std::optional<double> number_above(const char* key, double above);
  std::optional<double> number_from(const char* key, double least);
  std::optional<bool> flag(const char* key);
  std::optional<std::string> text(const char* key);
  std::optional<std::vector<std::string>> texts(const char* key);
  // One number or a list of them.
  std::optional<std::vector<std::size_t>> counts(const char* key, std::size_t least,
                                                 std::size_t most);

  void refuse(ErrorCode code, std::string_view what);  // "<where>: <what>"
  bool failed() const { return error_.has_value(); }
  Result<void> status() const;

 private:
  std::optional<double> number(const char* key);
  void refuse_value(const char* key, const Json& value, std::string_view expected);

  const Json& object_;
  std::string where_;
  std::optional<Error> error_;
};

}  // namespace octavo
