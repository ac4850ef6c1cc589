#include "octavo/checkpoint/skip_list_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "octavo/checkpoint/name_list.h"
#include "octavo/checkpoint/names.h"
#include "octavo/checkpoint/nearest_name.h"

namespace octavo {
namespace {

// A head that is tied to the embeddings has no tensor, but is a module that lists name.
constexpr std::string_view kTiedHead = "lm_head.weight";

bool has_tied_head(const Checkpoint& checkpoint) {
  bool embedding = false;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const std::string_view module = module_name(tensor.info.name);
    if (module == "lm_head" || module.ends_with(".lm_head")) return false;
    embedding = embedding || module.ends_with("embed_tokens");
  }
  return embedding;
}

bool is_scale(const Pairing& pairing, std::size_t tensor) {
  return pairing.roles[tensor] == Pairing::Role::scale ||
         pairing.roles[tensor] == Pairing::Role::activation_scale;
}

bool is_unlisted(const Pairing& pairing, std::size_t index, const TensorInfo& info) {
  if (pairing.roles[index] != Pairing::Role::plain || !is_wide_float(info.dtype)) return false;
  const bool matrix = (info.shape.size() == 2 && info.name.ends_with(kWeightSuffix)) ||
                      is_fused_expert(info.name, info.shape);
  return matrix && !is_wide_unasked(info.name);
}

void find_nearest(const std::vector<std::string>& names, SkipListCheck& check) {
  std::vector<std::string> modules;
  for (const std::string& name : names) modules.emplace_back(module_name(name));
  NearestName nearest(modules);
  for (SkipEntry& entry : check.entries) {
    if (entry.tensors == 0 && !entry.entry.starts_with("re:"))
      entry.nearest = nearest.find(module_name(entry.entry));
  }
}

std::string first_tensors(const Checkpoint& checkpoint, const std::vector<std::size_t>& tensors) {
  std::vector<std::string> names;
  for (const std::size_t tensor : tensors) names.push_back(checkpoint.tensors[tensor].info.name);
  return first_names(names);
}

std::string_view plural(std::size_t count, std::string_view one, std::string_view many) {
  return count == 1 ? one : many;
}

}  // namespace

Result<SkipListCheck> check_skip_list(const Checkpoint& checkpoint, const Pairing& pairing) {
  const QuantConfig& config = checkpoint.quantization;
  SkipListCheck check;
  if (!config.skip_key.empty())
    check.origin = fmt::format("{} in {}", config.skip_key, config.file);

  std::vector<std::string> names;
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    if (!is_scale(pairing, i)) names.push_back(checkpoint.tensors[i].info.name);
  }
  if (has_tied_head(checkpoint)) names.emplace_back(kTiedHead);
  const Result<NameList> list = NameList::parse(config.skip, names);
  if (!list) {
    return fail(ErrorCode::bad_model,
                fmt::format("{}: {}: {}", (checkpoint.directory / config.file).string(),
                            config.skip_key, list.error().message));
  }

  std::unordered_set<std::string_view> seen;
  for (std::size_t i = 0; i < config.skip.size(); ++i) {
    const std::string& entry = config.skip[i];
    if (!seen.insert(entry).second) continue;
    check.entries.push_back({entry, std::string(normalized_entry(entry)), list->matches()[i], ""});
    if (list->matches()[i] == 0) ++check.unused;
  }
  if (check.unused > 0) find_nearest(names, check);
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const TensorInfo& info = checkpoint.tensors[i].info;
    const bool named = list->find(info.name).has_value();
    if (named && pairing.roles[i] == Pairing::Role::weight) check.quantized.push_back(i);
    if (!named && !pairing.weights.empty() && is_unlisted(pairing, i, info))
      check.unlisted.push_back(i);
  }
  return check;
}

std::optional<std::string> unused_entries_line(const SkipListCheck& check) {
  if (check.unused == 0) return std::nullopt;
  std::vector<std::string> names;
  for (const SkipEntry& entry : check.entries) {
    if (entry.tensors > 0) continue;
    names.push_back(entry.nearest.empty()
                        ? entry.entry
                        : fmt::format("{} (nearest: {})", entry.entry, entry.nearest));
  }
  return fmt::format("{} of {} entries of {} {} no tensor: {}", check.unused, check.entries.size(),
                     check.origin, plural(check.unused, "names", "name"), first_names(names));
}

std::optional<std::string> quantized_line(const Checkpoint& checkpoint,
                                          const SkipListCheck& check) {
  if (check.quantized.empty()) return std::nullopt;
  return fmt::format("{} {} named in {} but quantized, with a scale: the file counts ({})",
                     check.quantized.size(),
                     plural(check.quantized.size(), "tensor is", "tensors are"), check.origin,
                     first_tensors(checkpoint, check.quantized));
}

std::optional<std::string> unlisted_line(const Checkpoint& checkpoint, const SkipListCheck& check) {
  if (check.unlisted.empty()) return std::nullopt;
  return fmt::format(
      "{} {} of a quantized model {} wide and {}: a loader that goes by the config alone takes {} "
      "for quantized ({})",
      check.unlisted.size(), plural(check.unlisted.size(), "matrix", "matrices"),
      plural(check.unlisted.size(), "is", "are"),
      check.origin.empty() ? "its config lists none" : "not named in " + check.origin,
      plural(check.unlisted.size(), "it", "them"), first_tensors(checkpoint, check.unlisted));
}

}  // namespace octavo
