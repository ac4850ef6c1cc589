#include "octavo/checkpoint/nearest_name.h"

#include <algorithm>
#include <unordered_set>

#include "octavo/checkpoint/name_list.h"
#include "octavo/checkpoint/names.h"

namespace octavo {
namespace {

// Comparisons of segments and of characters, by all look-ups together: a tenth of a second. A
// thousand entries against the hundred patterns of a usual model take a hundredth of it.
constexpr std::uint64_t kBudget = 100'000'000;
constexpr std::size_t kMaxLength = 256;   // names beyond are not compared
constexpr std::size_t kMaxCompared = 64;  // candidates that are compared by characters
constexpr std::size_t kEditShare = 3;     // one edit is near for so many characters

bool is_number(std::string_view segment) {
  return !segment.empty() &&
         std::ranges::all_of(segment, [](char c) { return c >= '0' && c <= '9'; });
}

template <class Visit>
void for_each_segment(std::string_view name, Visit visit) {
  while (true) {
    const std::size_t dot = name.find('.');
    visit(name.substr(0, dot));
    if (dot == name.npos) return;
    name.remove_prefix(dot + 1);
  }
}

std::string pattern_of(std::string_view name) {
  std::string pattern;
  for_each_segment(without_wrappers(name), [&](std::string_view segment) {
    if (!pattern.empty()) pattern += '.';
    pattern += is_number(segment) ? "#" : segment;
  });
  return pattern;
}

// `name` with the numbers of `given` in the order of both.
std::string with_numbers(std::string_view name, std::string_view given) {
  std::vector<std::string_view> numbers;
  for_each_segment(given, [&](std::string_view segment) {
    if (is_number(segment)) numbers.push_back(segment);
  });
  std::string result;
  std::size_t next = 0;
  for_each_segment(name, [&](std::string_view segment) {
    if (!result.empty()) result += '.';
    result += is_number(segment) && next < numbers.size() ? numbers[next++] : segment;
  });
  return result;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row[b.size()];
}

// As many segments of the end of `name` as `like` has: an entry may be part of a name.
std::string_view end_like(std::string_view name, std::string_view like) {
  std::size_t at = name.size();
  for (auto dots = std::ranges::count(like, '.'); dots >= 0 && at != name.npos; --dots)
    at = at == 0 ? name.npos : name.rfind('.', at - 1);
  return at == name.npos ? name : name.substr(at + 1);
}

}  // namespace

NearestName::NearestName(const std::vector<std::string>& modules)
    : modules_(modules), budget_(kBudget) {
  std::ranges::sort(modules_);
  std::unordered_set<std::string> seen;
  for (const std::string& module : modules_) {
    if (module.size() > kMaxLength) continue;
    std::string pattern = pattern_of(module);
    if (!seen.insert(pattern).second) continue;
    std::vector<std::uint32_t> segments = segments_of(pattern);
    candidates_.push_back({std::move(pattern), std::move(segments), module});
  }
}

std::uint32_t NearestName::segment_id(std::string_view segment) {
  const auto found = ids_.find(segment);
  if (found != ids_.end()) return found->second;
  return ids_.emplace(segment, static_cast<std::uint32_t>(ids_.size())).first->second;
}

std::vector<std::uint32_t> NearestName::segments_of(std::string_view pattern) {
  std::vector<std::uint32_t> segments;
  for_each_segment(pattern, [&](std::string_view segment) {
    if (segment != "#") segments.push_back(segment_id(segment));
  });
  return segments;
}

bool NearestName::is_module(std::string_view name) const {
  return std::ranges::binary_search(modules_, name, std::less<>());
}

std::string NearestName::find(std::string_view name) {
  std::string wanted = pattern_of(name);
  std::erase(wanted, '*');
  if (wanted.empty() || wanted.size() > kMaxLength) return "";
  const std::vector<std::uint32_t> segments = segments_of(wanted);
  if (segments.empty()) return "";

  // Most shared segments, and the last of them, which says what kind of module it is, twice.
  std::size_t most = 0;
  std::vector<const Candidate*> best;
  for (const Candidate& candidate : candidates_) {
    const std::uint64_t cost = segments.size() * candidate.segments.size() + 1;
    if (cost > budget_) return "";
    budget_ -= cost;
    std::size_t shared = 0;
    for (const std::uint32_t segment : segments) {
      if (std::ranges::find(candidate.segments, segment) != candidate.segments.end()) ++shared;
    }
    if (!candidate.segments.empty() && candidate.segments.back() == segments.back()) ++shared;
    if (shared > most) best.clear();
    most = std::max(most, shared);
    if (shared == most) best.push_back(&candidate);
  }

  const Candidate* nearest = nullptr;
  std::size_t least = 0;
  for (const Candidate* candidate : best) {
    if (best.size() > kMaxCompared && most > 0 && candidate == best[kMaxCompared]) break;
    const std::uint64_t cost = wanted.size() * candidate->pattern.size();
    if (cost > budget_) break;
    budget_ -= cost;
    const std::size_t edits = edit_distance(wanted, end_like(candidate->pattern, wanted));
    if (nearest != nullptr && edits >= least) continue;
    nearest = candidate;
    least = edits;
  }
  if (nearest == nullptr) return "";
  const bool same_kind = last_segment(nearest->pattern) == last_segment(wanted);
  const std::size_t near = std::max<std::size_t>(1, wanted.size() / kEditShare);
  if (!same_kind && least > near) return "";
  std::string numbered = with_numbers(nearest->first, name);
  return is_module(numbered) ? numbered : nearest->first;
}

}  // namespace octavo
