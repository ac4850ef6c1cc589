#pragma once

#include <string>

#include "octavo/base/json.h"
#include "octavo/text/jinja/value.h"

namespace octavo::text::jinja {

struct JsonStyle {
  bool ascii_only = false;
  bool indented = false;
  std::string indent;  // of one level, where indented
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// As Python's json.dumps; fails on what JSON has no form for.
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

// Fails on integers of more than 64 bits and beyond kMaxDepth.
Value from_json(const OrderedJson& json, Budget& budget);

}  // namespace octavo::text::jinja
