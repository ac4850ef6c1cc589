// Variables by name, in collections: "params/Dense_0/kernel". The names, and which collections
// there are, are Flax's.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "octavo/autograd/variable.h"

namespace octavo {

// What the optimizer trains.
inline constexpr std::string_view kParams = "params";
// Its new values come back as gradients: FP8 scales and amax histories.
inline constexpr std::string_view kOverwriteWithGradient = "_overwrite_with_gradient";

// An ordered map of '/'-joined paths whose first part is the collection.
class Variables {
 public:
  // In the order of paths.
  using Map = std::map<std::string, Variable, std::less<>>;

  Variables() = default;
  // Paths as for set, but not checked.
  Variables(std::initializer_list<Map::value_type> entries) : map_(entries) {}

  // By whole path; find: null where there is none.
  bool empty() const { return map_.empty(); }
  std::size_t size() const { return map_.size(); }
  bool contains(std::string_view path) const { return map_.contains(path); }
  const Variable* find(std::string_view path) const;
  const Variable& at(std::string_view path) const;  // ContractError: names what there is
  const Tensor& value(std::string_view path) const { return at(path).value(); }
  // ContractError: a path that is no names joined by '/'.
  void set(std::string_view path, Variable value);

  // Pairs of path and variable.
  Map::const_iterator begin() const { return map_.begin(); }
  Map::const_iterator end() const { return map_.end(); }

  // Whether a path is in it.
  bool has_collection(std::string_view name) const;
  // Those of one collection, with their whole paths; and all others.
  Variables collection(std::string_view name) const;
  Variables without(std::string_view name) const;
  // Both; `other` where both have a path.
  Variables merged(const Variables& other) const;

 private:
  Map map_;
};

// The first part of a path: "params".
std::string_view collection_of(std::string_view path);

// f(path, value) for each.
template <class F>
Variables map_variables(const Variables& variables, const F& f) {
  Variables result;
  for (const auto& [path, variable] : variables) result.set(path, f(path, variable));
  return result;
}

}  // namespace octavo
