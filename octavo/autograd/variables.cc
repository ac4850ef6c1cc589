#include "octavo/autograd/variables.h"

#include <fmt/format.h>

#include "octavo/base/error.h"

namespace octavo {

std::string_view collection_of(std::string_view path) { return path.substr(0, path.find('/')); }

const Variable* Variables::find(std::string_view path) const {
  const auto found = map_.find(path);
  return found == map_.end() ? nullptr : &found->second;
}

const Variable& Variables::at(std::string_view path) const {
  if (const Variable* found = find(path)) return *found;
  std::string names;
  for (const auto& [name, variable] : map_) {
    if (names.size() > 200) {
      names += ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + name;
  }
  throw ContractError(fmt::format("Variables: given no {}, expected one of [{}]", path, names));
}

void Variables::set(std::string_view path, Variable value) {
  if (path.empty() || path.front() == '/' || path.back() == '/') {
    throw ContractError(
        fmt::format("Variables: given the path '{}', expected names joined by '/'", path));
  }
  map_.insert_or_assign(std::string(path), std::move(value));
}

bool Variables::has_collection(std::string_view name) const {
  for (const auto& [path, variable] : map_) {
    if (collection_of(path) == name) return true;
  }
  return false;
}

Variables Variables::collection(std::string_view name) const {
  Variables result;
  for (const auto& [path, variable] : map_) {
    if (collection_of(path) == name) result.map_.emplace(path, variable);
  }
  return result;
}

Variables Variables::without(std::string_view name) const {
  Variables result;
  for (const auto& [path, variable] : map_) {
    if (collection_of(path) != name) result.map_.emplace(path, variable);
  }
  return result;
}

Variables Variables::merged(const Variables& other) const {
  Variables result = other;
  result.map_.insert(map_.begin(), map_.end());
  return result;
}

}  // namespace octavo
