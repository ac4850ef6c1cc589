#include "octavo/checkpoint/name_list.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_set>
#include <utility>

#include "octavo/checkpoint/names.h"

namespace octavo {
namespace {

// Entries are looked for inside a name at the beginnings of its first segments only, so that a
// hostile name (a segment in every second byte) costs no more than its length times this.
constexpr int kMaxSegments = 64;

// Every spelling of what stands in front of the modules of a language model.
constexpr std::array<std::string_view, 4> kWrappers = {"", "model.", "model.language_model.",
                                                       "language_model.model."};

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

// Patterns come from files too, so matching is bounded: one that backtracks beyond the limit does
// not match.
class Regex {
 public:
  static Result<Regex> compile(std::string_view source) {
    constexpr std::uint32_t kMatchLimit = 100'000;
    Regex regex;
    int error = 0;
    PCRE2_SIZE offset = 0;
    regex.code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                PCRE2_UTF, &error, &offset, nullptr);
    if (regex.code_ == nullptr) {
      std::array<PCRE2_UCHAR, 200> text{};
      pcre2_get_error_message(error, text.data(), text.size());
      return fail(ErrorCode::bad_value,
                  fmt::format("\"re:{}\" is not a regular expression: {} at offset {}", source,
                              reinterpret_cast<const char*>(text.data()), offset + 3));
    }
    pcre2_jit_compile(regex.code_, PCRE2_JIT_COMPLETE);  // where it fails, matching interprets
    regex.context_ = pcre2_match_context_create(nullptr);
    pcre2_set_match_limit(regex.context_, kMatchLimit);
    regex.data_ = pcre2_match_data_create_from_pattern(regex.code_, nullptr);
    return regex;
  }
  Regex(Regex&& other) noexcept
      : code_(std::exchange(other.code_, nullptr)),
        context_(std::exchange(other.context_, nullptr)),
        data_(std::exchange(other.data_, nullptr)) {}
  ~Regex() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_code_free(code_);
  }

  // bad_value where it backtracks beyond the limit: a name that cannot be decided is not passed
  // over.
  Result<bool> matches_whole(std::string_view text) const {
    const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                  PCRE2_ANCHORED | PCRE2_ENDANCHORED, data_, context_);
    const bool limit = found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT ||
                       found == PCRE2_ERROR_HEAPLIMIT || found == PCRE2_ERROR_JIT_STACKLIMIT;
    if (!limit) return found >= 0;
    return fail(ErrorCode::bad_value,
                fmt::format("a regular expression takes too long on {}; write it without nested "
                            "repetitions",
                            text));
  }

 private:
  Regex() = default;

  pcre2_code* code_ = nullptr;
  pcre2_match_context* context_ = nullptr;
  pcre2_match_data* data_ = nullptr;
};

// Texts in order, each with the tensor it belongs to.
using Texts = std::vector<std::pair<std::string_view, std::size_t>>;
using Found = std::vector<std::size_t>;

Texts::const_iterator first_from(const Texts& texts, std::string_view text) {
  return std::ranges::lower_bound(texts, text, {}, &Texts::value_type::first);
}

// Tensors with a text that is `name`, or begins with it and goes on with a dot.
Found find_plain(const Texts& texts, std::string_view name) {
  Found found;
  for (auto at = first_from(texts, name); at != texts.end() && at->first == name; ++at)
    found.push_back(at->second);
  const std::string below = fmt::format("{}.", name);
  for (auto at = first_from(texts, below); at != texts.end() && at->first.starts_with(below); ++at)
    found.push_back(at->second);
  return found;
}

// The same for a glob. Only texts with its beginning, up to the star, are tried.
Found find_glob(const Texts& texts, std::string_view glob) {
  Found found;
  const std::string below = fmt::format("{}.*", glob);
  const std::string_view lead = glob.substr(0, glob.find('*'));
  for (auto at = first_from(texts, lead); at != texts.end() && at->first.starts_with(lead); ++at) {
    if (glob_matches(glob, at->first) || glob_matches(below, at->first))
      found.push_back(at->second);
  }
  return found;
}

// The modules of a model's tensors, in the orders that entries are looked up in.
class Modules {
 public:
  explicit Modules(const std::vector<std::string>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string_view module = module_name(tensors[i]);
      full_.emplace_back(module, i);
      bare_.emplace_back(without_wrappers(module), i);
    }
    std::ranges::sort(full_);
    std::ranges::sort(bare_);
  }

  Result<Found> find(const Regex& regex) const {
    Found found;
    for (const auto& [module, tensor] : full_) {
      OCTAVO_TRY(const bool matches, regex.matches_whole(module));
      if (matches) found.push_back(tensor);
    }
    if (!found.empty()) return found;
    std::string spelling;
    for (const auto& [bare, tensor] : bare_) {
      for (const std::string_view wrapper : kWrappers) {
        spelling.assign(wrapper).append(bare);
        OCTAVO_TRY(const bool matches, regex.matches_whole(spelling));
        if (!matches) continue;
        found.push_back(tensor);
        break;
      }
    }
    return found;
  }

  Found find(std::string_view entry) {
    entry = module_name(entry);
    if (entry.empty()) return {};
    const auto look = entry.find('*') == entry.npos ? find_plain : find_glob;
    const std::string_view bare = without_wrappers(entry);
    Found found = look(full_, entry);
    if (found.empty() && bare != entry) found = look(bare_, bare);
    if (entry.starts_with('*')) return found;  // wherever it may begin, it begins at the front too
    if (found.empty()) found = look(parts(), entry);
    if (found.empty() && bare != entry) found = look(parts(), bare);
    return found;
  }

 private:
  // What begins at a segment of a module and goes to its end. Made when an entry first asks for it.
  const Texts& parts() {
    if (!parts_.empty()) return parts_;
    for (const auto& [module, tensor] : full_) {
      std::string_view rest = module;
      for (int segment = 0; segment < kMaxSegments; ++segment) {
        parts_.emplace_back(rest, tensor);
        const std::size_t dot = rest.find('.');
        if (dot == rest.npos) break;
        rest.remove_prefix(dot + 1);
      }
    }
    std::ranges::sort(parts_);
    return parts_;
  }

  Texts full_;
  Texts bare_;  // without wrappers
  Texts parts_;
};

}  // namespace

// A glob that nothing but wrappers holds in its place keeps them: "model.*" is not "*".
std::string_view without_wrappers(std::string_view name) {
  std::string_view rest = name;
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"model.", "language_model."}) {
      if (!rest.starts_with(prefix) || rest.size() == prefix.size()) continue;
      rest.remove_prefix(prefix.size());
      again = true;
    }
  }
  return rest.starts_with('*') ? name : rest;
}

std::string_view normalized_entry(std::string_view entry) {
  return entry.starts_with("re:") ? entry : without_wrappers(module_name(entry));
}

Result<NameList> NameList::parse(const std::vector<std::string>& entries,
                                 const std::vector<std::string>& tensors) {
  NameList list;
  list.entries_ = entries;
  list.matches_.assign(entries.size(), 0);
  Modules modules(tensors);
  std::unordered_set<std::string_view> seen;
  std::vector<std::size_t> entry_of(tensors.size(), entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string_view entry = entries[i];
    if (!seen.insert(entry).second) continue;
    Found found;
    if (entry.starts_with("re:")) {
      OCTAVO_TRY(const Regex regex, Regex::compile(entry.substr(3)));
      OCTAVO_TRY(found, modules.find(regex));
    } else {
      found = modules.find(entry);
    }
    std::ranges::sort(found);
    found.erase(std::ranges::unique(found).begin(), found.end());
    list.matches_[i] = found.size();
    if (found.empty()) list.unused_.emplace_back(entry);
    for (const std::size_t tensor : found) entry_of[tensor] = std::min(entry_of[tensor], i);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (entry_of[i] < entries.size()) list.entry_of_.emplace(tensors[i], entry_of[i]);
  }
  return list;
}

std::optional<std::string_view> NameList::find(std::string_view tensor) const {
  const auto found = entry_of_.find(tensor);
  if (found == entry_of_.end()) return std::nullopt;
  return entries_[found->second];
}

}  // namespace octavo
