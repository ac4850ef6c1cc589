#include "octavo/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "octavo/base/words.h"
#include "octavo/checkpoint/shard_name.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::string_view kSuffix = ".safetensors";

void add(Defects& defects, DefectCode code, const fs::path& file, std::string_view tensor,
         std::string_view message) {
  defects.push_back(
      make_defect(code, file.string(), tensor, {}, fmt::format("{}: {}", file.string(), message)));
}

// Weights of this model in some other form. In a folder of its own another model may live (a
// sentence-transformers module, say): that is carried over.
bool is_weight_file(std::string_view name) {
  if (name.find('/') != name.npos) return false;
  constexpr std::array<std::string_view, 9> kEndings = {
      kSuffix, kIndexSuffix, ".bin", ".bin.index.json", ".pt", ".pth", ".gguf", ".msgpack", ".h5"};
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

struct Listing {
  std::vector<std::string> files;  // relative, sorted
  std::set<std::string> broken;    // links that lead nowhere, pipes: what could not be carried over
  bool unfinished = false;         // temporary files of a run are there
};

// All files below `directory`, without hidden directories (.git, .cache) and partial files.
Result<Listing> list_files(const fs::path& directory, Survey& survey) {
  Listing listing;
  std::vector<std::string> partial;
  std::error_code error;
  fs::recursive_directory_iterator entries(directory, error);
  for (const fs::recursive_directory_iterator end; !error && entries != end;
       entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.') && entries->is_directory(ignored))
      entries.disable_recursion_pending();
    if (entries->is_directory(ignored)) continue;
    if (is_partial(name)) {
      partial.push_back(name);
      continue;
    }
    std::string relative = entries->path().lexically_relative(directory).generic_string();
    if (!entries->is_regular_file(ignored)) {
      add(survey.defects, DefectCode::broken_link, entries->path(), "",
          fmt::format("{}; remove it, or fetch the model again",
                      entries->is_symlink(ignored) ? "a link to a file that is not there"
                                                   : "not a regular file"));
      listing.broken.insert(std::move(relative));
      continue;
    }
    listing.files.push_back(std::move(relative));
  }
  if (error)
    return fail(ErrorCode::io,
                fmt::format("cannot list {}: {}", directory.string(), error.message()));
  if (!partial.empty()) {
    std::ranges::sort(partial);
    add(survey.notes, DefectCode::unfinished_run, directory, "",
        fmt::format("{} of a run that did not end ({}); the command that began it goes on "
                    "with --resume, or remove them",
                    counted(partial.size(), "temporary file"), first_names(partial)));
    listing.unfinished = true;
  }
  std::ranges::sort(listing.files);
  return listing;
}

// Files that an index names and that are not there.
void report_missing(const Checkpoint& checkpoint, const std::map<std::string, std::size_t>& named,
                    const std::vector<std::string>& missing,
                    const std::vector<std::string>& weights, Defects& defects) {
  const Result<std::vector<std::string>> set = complete_set(weights);
  if (missing.size() == named.size() && set) {
    add(defects, DefectCode::index_stale, checkpoint.directory / checkpoint.index_name, "",
        fmt::format("stale: none of the {} it names is there ({}), but a set of {} is ({}); "
                    "octavo verify --rebuild-index writes a new one",
                    counted(named.size(), "file"), first_names(missing), set->size(),
                    first_names(*set)));
    return;
  }
  for (const std::string& file : missing) {
    add(defects, DefectCode::missing_file, checkpoint.directory / file, "",
        fmt::format("missing; {} names it for {} (missing are {} of {}: {}); incomplete download?",
                    checkpoint.index_name, counted(named.at(file), "tensor"), missing.size(),
                    counted(named.size(), "file"), first_names(missing)));
  }
}

// Shards of a set that the index names otherwise: their tensors would silently be left out.
void report_unlisted(const Checkpoint& checkpoint, const std::vector<std::string>& weights,
                     const std::vector<std::string>& there, Defects& defects) {
  std::set<std::pair<std::string, std::uint64_t>> sets;
  for (const std::string& file : there) {
    if (const auto shard = parse_shard_name(file)) sets.emplace(shard->stem, shard->count);
  }
  for (const std::string& file : weights) {
    if (std::ranges::binary_search(there, file)) continue;
    const auto shard = parse_shard_name(file);
    if (!shard || !sets.contains({shard->stem, shard->count})) continue;
    add(defects, DefectCode::index_unlisted_tensor, checkpoint.directory / checkpoint.index_name,
        "",
        fmt::format("does not name {}, a shard like those that it names; octavo verify "
                    "--rebuild-index writes a new index",
                    file));
  }
}

// The shards that `checkpoint.index_name` names and that are there.
std::vector<std::string> choose_by_index(const Listing& listing,
                                         const std::vector<std::string>& weights, Survey& survey,
                                         Index& index) {
  Checkpoint& checkpoint = survey.checkpoint;
  const fs::path path = checkpoint.directory / checkpoint.index_name;
  std::optional<Index> read = survey_index_file(path, survey.defects);
  if (!read) return {};
  index = *std::move(read);
  survey.weights_chosen = true;
  std::map<std::string, std::size_t> named;  // with the number of its tensors
  for (const auto& [tensor, file] : index.weight_map) ++named[file];
  std::vector<std::string> there;
  std::vector<std::string> missing;
  for (const auto& [file, tensors] : named) {
    std::error_code ignored;
    if (fs::exists(checkpoint.directory / file, ignored)) {
      there.push_back(file);
    } else if (!listing.broken.contains(file)) {
      missing.push_back(file);
    }
  }
  report_missing(checkpoint, named, missing, weights, survey.defects);
  report_unlisted(checkpoint, weights, there, survey.defects);
  for (const auto& [tensor, file] : index.weight_map) {
    if (!std::ranges::binary_search(there, file)) survey.lost.emplace(tensor, file);
  }
  return there;
}

// The files that hold the weights.
std::vector<std::string> choose_shards(const Listing& listing, Survey& survey, Index& index) {
  Checkpoint& checkpoint = survey.checkpoint;
  std::vector<std::string> indices;
  std::vector<std::string> weights;
  for (const std::string& file : listing.files) {
    if (file.find('/') != file.npos) continue;
    if (file.ends_with(kIndexSuffix)) indices.push_back(file);
    if (file.ends_with(kSuffix)) weights.push_back(file);
  }
  const bool single = std::ranges::binary_search(weights, std::string("model.safetensors"));
  if (std::ranges::find(indices, kIndexName) != indices.end()) indices = {std::string(kIndexName)};
  if (indices.size() == 1 && (indices[0] == kIndexName || !single)) {
    checkpoint.index_name = indices[0];
    return choose_by_index(listing, weights, survey, index);
  }
  survey.weights_chosen = true;
  if (single) return {"model.safetensors"};
  const std::optional<ShardName> shard =
      weights.size() == 1 ? parse_shard_name(weights[0]) : std::nullopt;
  if (weights.size() == 1 && (!shard || shard->count == 1)) return weights;
  survey.weights_chosen = false;
  if (weights.empty()) {
    const auto below = std::ranges::find_if(
        listing.files, [](const std::string& file) { return file.ends_with(kSuffix); });
    std::string more;
    if (listing.unfinished)
      more = ", but a run that did not end; the command that began it goes on with --resume";
    if (below != listing.files.end())
      more = fmt::format(", but {}: name the directory of the model", *below);
    add(survey.defects, DefectCode::no_weights, checkpoint.directory, "",
        "no .safetensors file in it" + more);
  } else if (weights.size() == 1) {
    add(survey.defects, DefectCode::ambiguous_weights, checkpoint.directory, "",
        fmt::format("1 of {} files ({}) and no index ({}); incomplete download or a killed run?",
                    shard->count, weights[0], kIndexName));
  } else {
    const Result<std::vector<std::string>> set = complete_set(weights);
    add(survey.defects, DefectCode::ambiguous_weights, checkpoint.directory, "",
        fmt::format("{} .safetensors files ({}) and no index ({}) that says which belong "
                    "together; {}",
                    weights.size(), first_names(weights), kIndexName,
                    set ? "name one file, or write an index with octavo verify --rebuild-index"
                        : "name one file, or fetch the index; " + set.error().message));
  }
  return {};
}

void add_tensors(Survey& survey, std::vector<TensorInfo> tensors, const std::string& file) {
  Checkpoint& checkpoint = survey.checkpoint;
  for (TensorInfo& tensor : tensors) {
    const auto [at, added] = checkpoint.by_name.emplace(tensor.name, checkpoint.tensors.size());
    if (!added) {
      const std::size_t first = checkpoint.tensors[at->second].shard;
      add(survey.defects, DefectCode::duplicate_tensor, checkpoint.directory / file, tensor.name,
          fmt::format("{} is in it and in {}; one of these files is of another model", tensor.name,
                      checkpoint.shards[first].file_name));
      continue;
    }
    checkpoint.tensor_bytes += tensor.bytes;
    checkpoint.tensors.push_back({std::move(tensor), checkpoint.shards.size() - 1});
  }
}

Result<void> open_shards(Survey& survey, const std::vector<std::string>& names, const Index& index,
                         const OpenOptions& options) {
  Checkpoint& checkpoint = survey.checkpoint;
  std::map<std::string_view, std::size_t> unread;  // files, with their last defect
  for (const std::string& name : names) {
    const fs::path path = checkpoint.directory / name;
    Result<File> file = File::open(path);
    std::optional<SafetensorsHeader> header;
    if (!file && file.error().code == ErrorCode::busy) return std::unexpected(file.error());
    if (file) {
      header = survey_safetensors_header(*file, options.max_header_bytes, survey.defects);
    } else {
      survey.defects.push_back(
          make_defect(DefectCode::unreadable, path.string(), "", {}, file.error().message));
    }
    if (header) {
      checkpoint.shards.push_back({name, *std::move(file), std::move(header->metadata)});
      add_tensors(survey, std::move(header->tensors), name);
      continue;
    }
    unread.emplace(name, survey.defects.size() - 1);
  }
  if (unread.empty()) return {};
  std::map<std::size_t, std::vector<std::string>> lost;  // by defect
  for (const auto& [tensor, file] : index.weight_map) {
    const auto found = unread.find(file);
    if (found == unread.end()) continue;
    lost[found->second].push_back(tensor);
    survey.lost.emplace(tensor, file);
  }
  for (const auto& [defect, tensors] : lost) {
    survey.defects[defect].message +=
        printable(fmt::format("; the index puts {} into it: {}", counted(tensors.size(), "tensor"),
                              first_names(tensors)));
  }
  return {};
}

void check_index(Survey& survey, const Index& index) {
  using enum DefectCode;
  const Checkpoint& checkpoint = survey.checkpoint;
  if (checkpoint.index_name.empty() || !survey.weights_chosen) return;
  const fs::path path = checkpoint.directory / checkpoint.index_name;
  for (const auto& [tensor, file] : index.weight_map) {
    if (survey.lost.contains(tensor)) continue;
    const CheckpointTensor* found = checkpoint.find(tensor);
    const std::string where =
        found == nullptr ? "in no file" : "in " + checkpoint.shards[found->shard].file_name;
    if (found != nullptr && checkpoint.shards[found->shard].file_name == file) continue;
    add(survey.defects, found == nullptr ? index_missing_tensor : index_wrong_file, path, tensor,
        fmt::format("{}says that {} is in {}, but it is {}; {}",
                    found == nullptr ? "TensorNotFound: " : "", tensor, file, where,
                    found == nullptr ? "fetch that file and the index again"
                                     : "octavo verify --rebuild-index writes a new index"));
  }
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    if (index.weight_map.contains(tensor.info.name)) continue;
    add(survey.defects, index_unlisted_tensor, path, tensor.info.name,
        fmt::format("{} is in {}, but the index does not name it; octavo verify --rebuild-index "
                    "writes a new index",
                    tensor.info.name, checkpoint.shards[tensor.shard].file_name));
  }
  if (survey.lost.empty() && index.total_size && *index.total_size != checkpoint.tensor_bytes) {
    add(survey.notes, total_size, path, "",
        fmt::format("says total_size {}, the tensors take {} bytes", *index.total_size,
                    checkpoint.tensor_bytes));
  }
}

Result<std::string> read_config(const fs::path& path, Json& json) {
  OCTAVO_TRY(std::string text, read_text(path, kMaxConfigBytes));
  OCTAVO_TRY(json, parse_json_object(text, path.string()));
  return text;
}

void read_configs(Survey& survey) {
  Checkpoint& checkpoint = survey.checkpoint;
  const auto report = [&](const fs::path& path, const Error& error) {
    const DefectCode code = error.code == ErrorCode::io          ? DefectCode::unreadable
                            : error.code == ErrorCode::bad_model ? DefectCode::config_block_size
                                                                 : DefectCode::config_syntax;
    survey.config_refused = true;
    survey.defects.push_back(make_defect(code, path.string(), "", {}, error.message));
  };
  const auto is_there = [](const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
  };
  // What `read` makes of a config file's content becomes the quantization config.
  const auto take = [&](const fs::path& path, std::string& text, Json& json, auto read) {
    Result<std::string> got = read_config(path, json);
    if (!got) return report(path, got.error());
    text = *std::move(got);
    Result<QuantConfig> quantization = read(json, path.string());
    if (!quantization) return report(path, quantization.error());
    checkpoint.quantization = *std::move(quantization);
  };
  checkpoint.config = Json::object();
  if (const fs::path path = checkpoint.directory / "config.json"; is_there(path))
    take(path, checkpoint.config_text, checkpoint.config, read_quant_config);
  const fs::path path = checkpoint.directory / "hf_quant_config.json";
  if (checkpoint.quantization.present || !is_there(path)) return;
  std::string text;
  Json json;
  take(path, text, json, read_hf_quant_config);
}

void list_side_files(Survey& survey, const Listing& listing,
                     const std::vector<std::string>& shards) {
  Checkpoint& checkpoint = survey.checkpoint;
  for (const std::string& file : listing.files) {
    if (std::ranges::binary_search(shards, file)) continue;
    if (!is_weight_file(file)) {
      checkpoint.side_files.push_back(file);
    } else if (!file.ends_with(".json")) {
      checkpoint.other_weights.push_back(file);
    }
  }
  if (checkpoint.other_weights.empty() || shards.empty()) return;
  add(survey.notes, DefectCode::other_weights, checkpoint.directory, "",
      fmt::format("{} not read; the weights are in {}", first_names(checkpoint.other_weights),
                  first_names(shards)));
}

}  // namespace

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : &tensors[found->second];
}

Result<void> Checkpoint::read(const CheckpointTensor& tensor, std::uint64_t offset,
                              std::span<std::byte> to) const {
  if (offset > tensor.info.bytes || to.size() > tensor.info.bytes - offset) {
    throw ContractError(fmt::format("read {}: bytes {} to {}, it has {}", tensor.info.name, offset,
                                    offset + to.size(), tensor.info.bytes));
  }
  return shards[tensor.shard].file.read_at(tensor.info.offset + offset, to);
}

Result<Survey> survey_checkpoint(const fs::path& path, const OpenOptions& options) {
  Survey survey;
  Checkpoint& checkpoint = survey.checkpoint;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    return fail(ErrorCode::io, fmt::format("{}: no such file or directory", path.string()));
  Index index;
  if (!fs::is_directory(path, ignored)) {
    checkpoint.directory = path.parent_path();
    survey.weights_chosen = true;
    read_configs(survey);
    OCTAVO_CHECK(open_shards(survey, {path.filename().string()}, index, options));
    const auto shard = parse_shard_name(path.filename().string());
    survey.complete = checkpoint.shards.size() == 1 && (!shard || shard->count == 1);
    return survey;
  }
  checkpoint.directory = path;
  OCTAVO_TRY(const Listing listing, list_files(path, survey));
  const std::vector<std::string> shards = choose_shards(listing, survey, index);
  read_configs(survey);
  OCTAVO_CHECK(open_shards(survey, shards, index, options));
  check_index(survey, index);
  const bool all_listed = std::ranges::none_of(survey.defects, [](const Defect& defect) {
    return defect.code == DefectCode::index_missing_tensor ||
           defect.code == DefectCode::index_unlisted_tensor;
  });
  survey.complete = survey.weights_chosen && checkpoint.shards.size() == shards.size() &&
                    survey.lost.empty() && all_listed;
  list_side_files(survey, listing, shards);
  return survey;
}

Result<Checkpoint> open_checkpoint(const fs::path& path, const OpenOptions& options) {
  OCTAVO_TRY(Survey survey, survey_checkpoint(path, options));
  if (!survey.defects.empty()) return std::unexpected(to_error(survey.defects.front()));
  return std::move(survey.checkpoint);
}

}  // namespace octavo
