#include "octavo/checkpoint/shard_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace octavo {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kSingleName = "model.safetensors";

}  // namespace

std::optional<ShardName> parse_shard_name(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const std::size_t of = name.rfind(kOf);
  if (of == name.npos) return std::nullopt;
  const std::size_t dash = name.substr(0, of).rfind('-');
  if (dash == name.npos) return std::nullopt;
  const auto number_of = [](std::string_view digits) -> std::optional<std::uint64_t> {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
    if (error != std::errc() || end != digits.end() || number == 0) return std::nullopt;
    return number;
  };
  const auto number = number_of(name.substr(dash + 1, of - dash - 1));
  const auto count = number_of(name.substr(of + kOf.size()));
  if (!number || !count || *number > *count) return std::nullopt;
  return ShardName{std::string(name.substr(0, dash)), *number, *count};
}

Result<std::vector<std::string>> complete_set(std::span<const std::string> names) {
  // By stem and count, each file under its number.
  std::map<std::pair<std::string, std::uint64_t>, std::multimap<std::uint64_t, std::string>> sets;
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    if (name == kSingleName) sets[{"model", 1}].emplace(1, name);
    if (const auto shard = parse_shard_name(name))
      sets[{shard->stem, shard->count}].emplace(shard->number, name);
  }
  struct Set {
    bool model;
    const std::multimap<std::uint64_t, std::string>* files;
  };
  std::vector<Set> complete;
  std::string found;
  for (const auto& [set, files] : sets) {
    const auto& [stem, count] = set;
    std::set<std::uint64_t> numbers;
    for (const auto& [number, name] : files) numbers.insert(number);
    found +=
        fmt::format("{}{} of {} shards {}-*", found.empty() ? "" : ", ", files.size(), count, stem);
    if (numbers.size() == count) complete.push_back({stem == "model", &files});
  }
  if (std::ranges::any_of(complete, &Set::model))
    std::erase_if(complete, [](const Set& set) { return !set.model; });
  if (complete.size() != 1 ||
      complete.front().files->size() != complete.front().files->rbegin()->first) {
    return fail(ErrorCode::bad_model,
                fmt::format("not one complete set of shards (NAME-00001-of-00004.safetensors and "
                            "so on): there are {}; {}",
                            found.empty() ? "none" : found,
                            complete.empty() ? "fetch what is missing"
                                             : "move away what does not belong to the model"));
  }
  std::vector<std::string> files;
  for (const auto& [number, name] : *complete.front().files) files.push_back(name);
  return files;
}

}  // namespace octavo
