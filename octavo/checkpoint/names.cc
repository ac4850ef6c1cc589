#include "octavo/checkpoint/names.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

namespace octavo {
namespace {

constexpr std::string_view kWeight = ".weight";

std::string_view last_segment(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == name.npos ? name : name.substr(dot + 1);
}

bool has_segment(std::string_view name, std::string_view segment) {
  for (std::size_t at = name.find(segment); at != name.npos; at = name.find(segment, at + 1)) {
    const bool begins = at == 0 || name[at - 1] == '.';
    const std::size_t end = at + segment.size();
    if (begins && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_embedding(std::string_view module) {
  constexpr std::array<std::string_view, 5> kNames = {"embed", "wte", "wpe", "embeddings",
                                                      "embedding"};
  const std::string_view last = last_segment(module);
  return is_one_of(last, kNames) || last.starts_with("embed_") || last.ends_with("_embedding") ||
         last.ends_with("_embeddings");
}

bool is_head(std::string_view module) {
  constexpr std::array<std::string_view, 5> kNames = {"lm_head", "head", "output_layer",
                                                      "embed_out", "score"};
  const std::string_view last = last_segment(module);
  return is_one_of(last, kNames) || module == "output" || module == "model.output";
}

bool is_norm(std::string_view module) {
  constexpr std::array<std::string_view, 8> kNames = {"norm",  "ln_1",  "ln_2",      "ln_f",
                                                      "enorm", "hnorm", "LayerNorm", "ln"};
  const std::string_view last = last_segment(module);
  return is_one_of(last, kNames) || last.ends_with("norm") || last.ends_with("_norm") ||
         last.ends_with("layer_norm") ||
         (last.starts_with("norm") && last.size() == 5);  // norm1, norm2
}

bool is_router(std::string_view module) {
  constexpr std::array<std::string_view, 6> kNames = {
      "gate",        "router",       "shared_expert_gate",
      "router_gate", "gate_network", "e_score_correction_bias"};
  return is_one_of(last_segment(module), kNames) || has_segment(module, "router");
}

// "model.language_model.layers.0" and "language_model.model.layers.0" are "layers.0".
std::string_view without_wrappers(std::string_view name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"model.", "language_model."}) {
      if (!name.starts_with(prefix) || name.size() == prefix.size()) continue;
      name.remove_prefix(prefix.size());
      again = true;
    }
  }
  return name;
}

bool glob_matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = pattern.npos;
  std::size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

// Patterns come from files too, so matching is bounded: a pattern that backtracks beyond the limit
// does not match.
struct NamePattern::Regex {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;

  Regex() = default;
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;
  ~Regex() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }

  bool matches(std::string_view text) const {
    pcre2_match_data* data = pcre2_match_data_create_from_pattern(code, nullptr);
    const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                  PCRE2_ANCHORED | PCRE2_ENDANCHORED, data, context);
    pcre2_match_data_free(data);
    return found > 0;
  }
};

std::string_view module_name(std::string_view tensor) {
  if (tensor.ends_with(kWeight)) tensor.remove_suffix(kWeight.size());
  return tensor;
}

std::string_view tensor_role(std::string_view tensor) {
  const std::string_view module = module_name(tensor);
  if (tensor.ends_with("_scale_inv") || tensor.ends_with("_scale") || tensor.ends_with(".scale"))
    return "scale";
  if (is_embedding(module)) return "embedding";
  if (is_head(module)) return "head";
  if (is_norm(module)) return "norm";
  if (is_router(module)) return "router";
  if (tensor.ends_with(".bias")) return "bias";
  if (has_segment(module, "experts") || has_segment(module, "shared_expert") ||
      has_segment(module, "shared_experts")) {
    return "expert";
  }
  if (has_segment(module, "self_attn") || has_segment(module, "attn") ||
      has_segment(module, "attention"))
    return "attention";
  if (has_segment(module, "mlp") || has_segment(module, "ffn") ||
      has_segment(module, "feed_forward"))
    return "mlp";
  return "other";
}

std::optional<std::string_view> default_skip_reason(std::string_view tensor) {
  const std::string_view module = module_name(tensor);
  if (is_head(module)) return "output head";
  if (is_embedding(module)) return "embedding";
  if (is_norm(module)) return "norm";
  if (is_router(module)) return "router";
  if (module.ends_with("indexer.weights_proj")) return "indexer weight projection";
  if (has_segment(module, "compressor")) return "compressor";
  // Multi-token prediction: published FP8 models and their loaders keep it wide.
  if (last_segment(module) == "eh_proj") return "multi-token prediction projection";
  return std::nullopt;
}

bool is_fused_expert(std::string_view tensor, const Shape& shape) {
  return shape.size() == 3 && has_segment(tensor, "experts") && !tensor.ends_with("bias");
}

Result<NamePattern> NamePattern::parse(std::string_view entry) {
  NamePattern pattern;
  pattern.text_ = entry;
  if (entry.starts_with("re:")) {
    constexpr std::uint32_t kMatchLimit = 100'000;
    const std::string_view source = entry.substr(3);
    int error = 0;
    PCRE2_SIZE offset = 0;
    auto regex = std::make_shared<Regex>();
    regex->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                PCRE2_UTF, &error, &offset, nullptr);
    if (regex->code == nullptr) {
      std::array<PCRE2_UCHAR, 200> text{};
      pcre2_get_error_message(error, text.data(), text.size());
      return fail(ErrorCode::bad_value,
                  fmt::format("\"{}\" is not a regular expression: {} at offset {}", entry,
                              reinterpret_cast<const char*>(text.data()), offset + 3));
    }
    regex->context = pcre2_match_context_create(nullptr);
    pcre2_set_match_limit(regex->context, kMatchLimit);
    pattern.regex_ = std::move(regex);
    return pattern;
  }
  pattern.plain_ = without_wrappers(module_name(entry));
  pattern.is_glob_ = entry.find('*') != entry.npos;
  return pattern;
}

bool NamePattern::matches(std::string_view tensor) const {
  const std::string_view module = module_name(tensor);
  if (regex_) return regex_->matches(module);
  if (plain_.empty()) return false;
  // The pattern begins at a segment of the name, and ends at the end of one.
  std::string_view rest = module;
  while (true) {
    const bool matches = is_glob_ ? glob_matches(plain_, rest) || glob_matches(plain_ + ".*", rest)
                                  : rest.starts_with(plain_) && (rest.size() == plain_.size() || rest[plain_.size()] == '.');
    if (matches) return true;
    const std::size_t dot = rest.find('.');
    if (dot == rest.npos) return false;
    rest.remove_prefix(dot + 1);
  }
}

Result<std::vector<NamePattern>> parse_patterns(const std::vector<std::string>& entries) {
  std::vector<NamePattern> patterns;
  for (const std::string& entry : entries) {
    OCTAVO_TRY(NamePattern pattern, NamePattern::parse(entry));
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

const NamePattern* find_match(const std::vector<NamePattern>& patterns, std::string_view tensor) {
  for (const NamePattern& pattern : patterns) {
    if (pattern.matches(tensor)) return &pattern;
  }
  return nullptr;
}

}  // namespace octavo
