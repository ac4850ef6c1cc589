// What a tensor's name says: which module it belongs to, what part that plays, and whether a list
// of patterns names it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/tensor/shape.h"

namespace octavo {

// "model.layers.0.mlp.gate_proj" of "model.layers.0.mlp.gate_proj.weight"; other parameters are
// their own module.
std::string_view module_name(std::string_view tensor);

// The part a tensor plays, as `inspect` names it: "embedding", "head", "norm", "router", "expert",
// "attention", "mlp", "bias", "scale", "other".
std::string_view tensor_role(std::string_view tensor);

// Why the default list leaves a tensor unquantized, or nullopt: output head, embedding, norm,
// router, ... By name alone.
std::optional<std::string_view> default_skip_reason(std::string_view tensor);

// A fused parameter of an experts container ("...experts.gate_up_proj"): 3-D, one matrix per
// expert.
bool is_fused_expert(std::string_view tensor, const Shape& shape);

// One entry of a skip or convert list. Matching is on whole dotted segments: "mlp.gate" is found in
// "model.layers.0.mlp.gate" and "mlp.gate.x", never in "mlp.gate_proj". '*' in an entry stands for
// any characters, "re:" begins a regular expression that must match a module's whole name. An entry
// may carry ".weight" at its end. Wrapper prefixes (language_model, model) in front do not matter.
class NamePattern {
 public:
  static Result<NamePattern> parse(
      std::string_view entry);  // bad_value: not a valid regular expression
  bool matches(std::string_view tensor) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string plain_;  // the entry without ".weight" and wrapper prefixes
  bool is_glob_ = false;
  struct Regex;  // keeps <regex> out of this header
  std::shared_ptr<const Regex> regex_;
};

Result<std::vector<NamePattern>> parse_patterns(const std::vector<std::string>& entries);

// The first pattern that matches, or nullptr.
const NamePattern* find_match(const std::vector<NamePattern>& patterns, std::string_view tensor);

}  // namespace octavo
