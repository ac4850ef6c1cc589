#include "octavo/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxIndexBytes = 256 << 20;
constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::string_view kSuffix = ".safetensors";

// tensor name -> file name, from "weight_map".
using WeightMap = std::map<std::string, std::string, std::less<>>;

Result<WeightMap> read_index(const fs::path& path) {
  const std::string name = path.string();
  OCTAVO_TRY(const File index, File::open(path));
  if (index.size() > kMaxIndexBytes) {
    return fail(ErrorCode::bad_file, fmt::format("{}: {} bytes; an index of at most {} is read",
                                                 name, index.size(), kMaxIndexBytes));
  }
  simdjson::padded_string text(index.size());
  OCTAVO_CHECK(index.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  const std::size_t bom = std::string_view(text).starts_with("\xEF\xBB\xBF") ? 3 : 0;
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  constexpr bool kCopy = false;  // the padding is there
  if (const auto error = parser.parse(text.data() + bom, text.size() - bom, kCopy).get(document)) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: not valid JSON: {}", name, simdjson::error_message(error)));
  }
  simdjson::dom::object map;
  if (document["weight_map"].get(map)) {
    return fail(ErrorCode::bad_file, fmt::format("{}: no object \"weight_map\" in it", name));
  }
  if (map.size() == 0) {
    return fail(ErrorCode::bad_file, fmt::format("{}: weight_map names no tensor", name));
  }
  WeightMap result;
  for (const auto& [tensor, value] : map) {
    std::string_view given;
    if (value.get(given)) {
      return fail(ErrorCode::bad_file,
                  fmt::format("{}: weight_map[\"{}\"] is not a file name", name, tensor));
    }
    const fs::path relative(given);
    if (given.empty() || relative.is_absolute() ||
        std::ranges::find(relative, fs::path("..")) != relative.end()) {
      return fail(ErrorCode::bad_file,
                  fmt::format("{}: weight_map[\"{}\"] leads out of the directory: {}", name, tensor,
                              given));
    }
    // One spelling for each file: "./a" and "sub//a" are "a" and "sub/a".
    const std::string file = relative.lexically_normal().generic_string();
    if (const auto [at, added] = result.emplace(tensor, file); !added && at->second != file) {
      return fail(ErrorCode::bad_file,
                  fmt::format("{}: weight_map has \"{}\" twice, in {} and in {}", name, tensor,
                              at->second, file));
    }
  }
  return result;
}

// "model-00001-of-00030.safetensors": 30. 1 where the name says nothing of the kind.
std::uint64_t declared_files(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  name.remove_suffix(kSuffix.size());
  const std::size_t of = name.rfind(kOf);
  if (of == name.npos || of == 0 || name[of - 1] < '0' || name[of - 1] > '9') return 1;
  const std::string_view digits = name.substr(of + kOf.size());
  std::uint64_t count = 1;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), count);
  return error == std::errc() && end == digits.end() ? count : 1;
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

// All files below `directory`, relative, sorted; without hidden directories (.git, .cache) and
// partial files.
Result<std::vector<std::string>> list_files(const fs::path& directory) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator entries(directory, error);
  for (const fs::recursive_directory_iterator end; !error && entries != end;
       entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    std::error_code ignored;
    if (name.starts_with('.') && entries->is_directory(ignored))
      entries.disable_recursion_pending();
    if (name.ends_with(".partial") || entries->is_directory(ignored)) continue;
    // A link that leads nowhere, a pipe: something is there that could not be carried over.
    if (!entries->is_regular_file(ignored)) {
      return fail(
          ErrorCode::bad_model,
          fmt::format("{}: {}; remove it, or fetch the model again", entries->path().string(),
                      entries->is_symlink(ignored) ? "a link to a file that is not there"
                                                   : "not a regular file"));
    }
    files.push_back(entries->path().lexically_relative(directory).generic_string());
  }
  if (error)
    return fail(ErrorCode::io,
                fmt::format("cannot list {}: {}", directory.string(), error.message()));
  std::ranges::sort(files);
  return files;
}

// The files that hold the weights.
Result<std::vector<std::string>> choose_shards(const fs::path& directory,
                                               const std::vector<std::string>& files,
                                               Checkpoint& checkpoint, WeightMap& map) {
  std::vector<std::string> indices;
  std::vector<std::string> weights;
  for (const std::string& file : files) {
    if (file.find('/') != file.npos) continue;
    if (file.ends_with(kIndexSuffix)) indices.push_back(file);
    if (file.ends_with(kSuffix)) weights.push_back(file);
  }
  const std::string preferred = "model" + std::string(kIndexSuffix);
  if (std::ranges::find(indices, preferred) != indices.end()) indices = {preferred};
  if (indices.size() == 1 && !(indices[0] != preferred &&
                               std::ranges::find(weights, "model.safetensors") != weights.end())) {
    checkpoint.index_name = indices[0];
    OCTAVO_TRY(map, read_index(directory / indices[0]));
    std::set<std::string> named;
    for (const auto& [tensor, file] : map) named.insert(file);
    std::vector<std::string> missing;
    for (const std::string& file : named) {
      std::error_code ignored;
      if (!fs::exists(directory / file, ignored)) missing.push_back(file);
    }
    if (!missing.empty()) {
      return fail(
          ErrorCode::bad_model,
          fmt::format("{}: {} of {} files that {} names are missing: {}; incomplete download?",
                      directory.string(), missing.size(), named.size(), indices[0],
                      fmt::join(missing, ", ")));
    }
    return std::vector<std::string>(named.begin(), named.end());
  }
  if (std::ranges::find(weights, "model.safetensors") != weights.end())
    return std::vector<std::string>{"model.safetensors"};
  if (weights.size() == 1) {
    const std::uint64_t count = declared_files(weights[0]);
    if (count <= 1) return weights;
    return fail(ErrorCode::bad_model,
                fmt::format("{}: 1 of {} files ({}) and no index ({}); incomplete download or a "
                            "killed run?",
                            directory.string(), count, weights[0], preferred));
  }
  if (weights.empty())
    return fail(ErrorCode::bad_model,
                fmt::format("{}: no .safetensors file in it", directory.string()));
  return fail(
      ErrorCode::bad_model,
      fmt::format("{}: {} .safetensors files and no index ({}) that says which belong together",
                  directory.string(), weights.size(), preferred));
}

Result<void> open_shards(Checkpoint& checkpoint, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    OCTAVO_TRY(File file, File::open(checkpoint.directory / name));
    OCTAVO_TRY(SafetensorsHeader header, read_safetensors_header(file));
    const std::size_t shard = checkpoint.shards.size();
    for (TensorInfo& tensor : header.tensors) {
      checkpoint.tensor_bytes += tensor.bytes;
      const auto [at, added] = checkpoint.by_name.emplace(tensor.name, checkpoint.tensors.size());
      if (!added) {
        return fail(
            ErrorCode::bad_model,
            fmt::format("{}: {} is in {} and in {}", checkpoint.directory.string(), tensor.name,
                        checkpoint.shards[checkpoint.tensors[at->second].shard].file_name, name));
      }
      checkpoint.tensors.push_back({std::move(tensor), shard});
    }
    checkpoint.shards.push_back({name, std::move(file), std::move(header.metadata)});
  }
  return {};
}

Result<void> check_index(const Checkpoint& checkpoint, const WeightMap& map) {
  for (const auto& [tensor, file] : map) {
    const CheckpointTensor* found = checkpoint.find(tensor);
    if (found != nullptr && checkpoint.shards[found->shard].file_name == file) continue;
    return fail(ErrorCode::bad_model,
                fmt::format("{}: {} says that {} is in {}, but it is {}",
                            checkpoint.directory.string(), checkpoint.index_name, tensor, file,
                            found == nullptr ? "in no file"
                                             : "in " + checkpoint.shards[found->shard].file_name));
  }
  if (checkpoint.index_name.empty()) return {};
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    if (map.contains(tensor.info.name)) continue;
    return fail(ErrorCode::bad_model,
                fmt::format("{}: {} is in {}, but {} does not name it",
                            checkpoint.directory.string(), tensor.info.name,
                            checkpoint.shards[tensor.shard].file_name, checkpoint.index_name));
  }
  return {};
}

Result<void> read_configs(Checkpoint& checkpoint) {
  const auto is_there = [](const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored);
  };
  checkpoint.config = Json::object();
  if (const fs::path path = checkpoint.directory / "config.json"; is_there(path)) {
    OCTAVO_TRY(checkpoint.config_text, read_text(path, kMaxConfigBytes));
    OCTAVO_TRY(checkpoint.config, parse_json_object(checkpoint.config_text, path.string()));
    OCTAVO_TRY(checkpoint.quantization, read_quant_config(checkpoint.config, path.string()));
  }
  const fs::path path = checkpoint.directory / "hf_quant_config.json";
  if (checkpoint.quantization.present || !is_there(path)) return {};
  OCTAVO_TRY(const std::string text, read_text(path, kMaxConfigBytes));
  OCTAVO_TRY(const Json json, parse_json_object(text, path.string()));
  OCTAVO_TRY(checkpoint.quantization, read_hf_quant_config(json, path.string()));
  return {};
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

Result<Checkpoint> open_checkpoint(const fs::path& path) {
  Checkpoint checkpoint;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    return fail(ErrorCode::io, fmt::format("{}: no such file or directory", path.string()));
  if (!fs::is_directory(path, ignored)) {
    checkpoint.directory = path.parent_path();
    OCTAVO_CHECK(read_configs(checkpoint));
    OCTAVO_CHECK(open_shards(checkpoint, {path.filename().string()}));
    return checkpoint;
  }
  checkpoint.directory = path;
  OCTAVO_TRY(const std::vector<std::string> files, list_files(path));
  WeightMap map;
  OCTAVO_TRY(const std::vector<std::string> names, choose_shards(path, files, checkpoint, map));
  OCTAVO_CHECK(read_configs(checkpoint));
  OCTAVO_CHECK(open_shards(checkpoint, names));
  OCTAVO_CHECK(check_index(checkpoint, map));
  const std::set<std::string_view> chosen(names.begin(), names.end());
  for (const std::string& file : files) {
    if (chosen.contains(file)) continue;
    if (!is_weight_file(file)) {
      checkpoint.side_files.push_back(file);
    } else if (!file.ends_with(".json")) {
      checkpoint.other_weights.push_back(file);
    }
  }
  return checkpoint;
}

}  // namespace octavo
