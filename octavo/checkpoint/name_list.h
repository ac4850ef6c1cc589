// Lists of modules as people and configs write them: skip lists and convert lists.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {

// Which tensors of a model a list names. Matching is on whole dotted segments: "mlp.gate" is found
// in "model.layers.0.mlp.gate" and "mlp.gate.x", never in "mlp.gate_proj". '*' in an entry stands
// for any characters, "re:" begins a regular expression that must match a module's whole name. An
// entry may carry ".weight" at its end.
//
// An entry is read in up to four ways, and the first that names any tensor counts alone:
//   1. as a full name, of a module or of what contains it: "model.layers.0" names nothing in
//      "vision_tower.layers.0" where "model.layers.0" exists;
//   2. as a full name where the wrappers (model, language_model) in front do not matter, if the
//      entry has one; a regular expression is tried on every spelling of a name's wrappers;
//   3. as part of a name, from the beginning of any segment on;
//   4. the same without the entry's wrappers.
class NameList {
 public:
  // `tensors`: all names of the model. bad_value: an entry is not a valid regular expression.
  static Result<NameList> parse(const std::vector<std::string>& entries,
                                const std::vector<std::string>& tensors);

  // The first entry that names the tensor.
  std::optional<std::string_view> find(std::string_view tensor) const;

  // Entries that name no tensor.
  const std::vector<std::string>& unused() const { return unused_; }

  // How many tensors each entry names, as if it were alone; a repeated entry counts where it first
  // stands.
  const std::vector<std::size_t>& matches() const { return matches_; }

 private:
  std::vector<std::string> entries_;
  std::vector<std::size_t> matches_;
  std::vector<std::string> unused_;
  std::map<std::string, std::size_t, std::less<>> entry_of_;  // by tensor; index into entries_
};

// An entry without what does not decide: wrappers in front and ".weight" at the end. A regular
// expression stays as it is.
std::string_view normalized_entry(std::string_view entry);

// "model.language_model.layers.0" and "language_model.model.layers.0" are "layers.0".
std::string_view without_wrappers(std::string_view name);

}  // namespace octavo
