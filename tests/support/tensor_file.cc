#include "tests/support/tensor_file.h"

#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <stdexcept>

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::uint64_t count_of(const Dims& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

void require(bool ok, const fs::path& path, const std::string& what) {
  if (!ok) throw std::runtime_error(path.string() + ": " + what);
}

template <class Word>
void append(Bytes& to, Word word) {
  const auto raw = std::bit_cast<std::array<std::uint8_t, sizeof(Word)>>(word);
  to.insert(to.end(), raw.begin(), raw.end());
}

std::string little_endian_length(std::uint64_t length) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return text;
}

void read_index(const fs::path& path, const std::map<std::string, Tensors>& files) {
  const Json index = Json::parse(read_string(path));
  const Json& map = index.at("weight_map");
  std::uint64_t total = 0;
  std::size_t tensors = 0;
  for (const auto& [file, contents] : files) {
    for (const auto& [name, tensor] : contents) {
      ++tensors;
      total += tensor.bytes.size();
      require(map.value(name, "") == file, path,
              name + " is in " + file + ", the index says " + map.value(name, "nothing"));
    }
  }
  require(map.size() == tensors, path, "names tensors that no file has");
  require(index.at("metadata").at("total_size") == total, path,
          "total_size is not the sum of the tensors");
}

}  // namespace

std::uint64_t dtype_bytes(std::string_view dtype) {
  static const std::map<std::string_view, std::uint64_t> kBytes = {
      {"BOOL", 1},        {"U8", 1},          {"I8", 1},      {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"F8_E8M0", 1}, {"F16", 2},     {"I16", 2},
      {"BF16", 2},        {"F32", 4},         {"I32", 4},     {"F64", 8},     {"I64", 8}};
  return kBytes.at(dtype);
}

Tensor make_tensor(std::string_view dtype, Dims shape, std::span<const float> values) {
  Tensor tensor{std::string(dtype), std::move(shape), {}};
  if (values.size() != count_of(tensor.shape))
    throw std::invalid_argument("make_tensor: values do not fill the shape");
  for (const float value : values) {
    if (dtype == "F32")
      append(tensor.bytes, value);
    else if (dtype == "BF16")
      append(tensor.bytes, bf16_bits(value));
    else if (dtype == "F16")
      append(tensor.bytes, f16_bits(value));
    else
      throw std::invalid_argument("make_tensor: dtype");
  }
  return tensor;
}

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(count_of(tensor.shape));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t word = 0;
    const std::uint64_t size = dtype_bytes(tensor.dtype);
    std::memcpy(&word, tensor.bytes.data() + i * size, size);
    if (tensor.dtype == "F32")
      values[i] = std::bit_cast<float>(word);
    else if (tensor.dtype == "BF16")
      values[i] = bf16_value(static_cast<std::uint16_t>(word));
    else if (tensor.dtype == "F16")
      values[i] = f16_value(static_cast<std::uint16_t>(word));
    else if (tensor.dtype == "F8_E8M0")
      values[i] = decode_e8m0(static_cast<std::uint8_t>(word));
    else
      throw std::invalid_argument("values_of: dtype " + tensor.dtype);
  }
  return values;
}

std::string read_string(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), path, "cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

Bytes read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  require(file.good(), path, "cannot be read");
  Bytes bytes(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  require(file.good(), path, "cannot be read");
  return bytes;
}

void write_string(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  require(file.good(), path, "cannot be written");
}

void write_tensor_file(const fs::path& path, const Tensors& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const std::uint64_t size : {8, 4, 2, 1}) {
    for (const auto& [name, tensor] : tensors) {
      if (dtype_bytes(tensor.dtype) != size) continue;
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data.append(tensor.bytes.begin(), tensor.bytes.end());
    }
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  write_string(path, little_endian_length(text.size()) + text + data);
}

Tensors read_tensor_file(const fs::path& path) {
  const Bytes bytes = read_bytes(path);
  require(bytes.size() >= 8, path, "no header length");
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) length |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  require(length % 8 == 0 && length <= bytes.size() - 8, path, "header length");
  const Json header =
      Json::parse(bytes.begin() + 8, bytes.begin() + 8 + static_cast<std::ptrdiff_t>(length));
  require(header.value("__metadata__", Json()) == Json{{"format", "pt"}}, path,
          "metadata is not {\"format\": \"pt\"}");
  const std::uint64_t data = 8 + length;
  Tensors tensors;
  std::set<std::pair<std::uint64_t, std::uint64_t>> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::uint64_t begin = entry.at("data_offsets").at(0);
    const std::uint64_t end = entry.at("data_offsets").at(1);
    Tensor tensor{entry.at("dtype"), entry.at("shape"), {}};
    require(begin <= end && end <= bytes.size() - data, path, name + ": offsets");
    require(end - begin == count_of(tensor.shape) * dtype_bytes(tensor.dtype), path,
            name + ": size");
    require(begin % dtype_bytes(tensor.dtype) == 0, path, name + ": alignment");
    extents.emplace(begin, end);
    tensor.bytes.assign(bytes.begin() + static_cast<std::ptrdiff_t>(data + begin),
                        bytes.begin() + static_cast<std::ptrdiff_t>(data + end));
    tensors.emplace(name, std::move(tensor));
  }
  std::uint64_t at = 0;
  for (const auto& [begin, end] : extents) {
    require(begin == at, path, "a hole or an overlap");
    at = end;
  }
  require(at == bytes.size() - data, path, "bytes after the last tensor");
  return tensors;
}

void write_model(const fs::path& directory, const std::map<std::string, Tensors>& files,
                 std::string_view config) {
  fs::create_directories(directory);
  std::uint64_t total = 0;
  Json map = Json::object();
  for (const auto& [file, tensors] : files) {
    write_tensor_file(directory / file, tensors);
    for (const auto& [name, tensor] : tensors) {
      map[name] = file;
      total += tensor.bytes.size();
    }
  }
  if (files.size() > 1) {
    const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
    write_string(directory / "model.safetensors.index.json", index.dump(2));
  }
  if (!config.empty()) write_string(directory / "config.json", config);
}

void write_model(const fs::path& directory, const Tensors& tensors, std::string_view config) {
  write_model(directory, std::map<std::string, Tensors>{{"model.safetensors", tensors}}, config);
}

Model read_model(const fs::path& directory) {
  Model model;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    require(!name.ends_with(".partial"), entry.path(), "a partial file was left");
    if (name.ends_with(".safetensors")) model.files[name] = read_tensor_file(entry.path());
    if (name == "config.json") model.config = Json::parse(read_string(entry.path()));
  }
  const fs::path index = directory / "model.safetensors.index.json";
  require(model.files.size() == 1 || fs::exists(index), directory, "several files and no index");
  if (fs::exists(index)) read_index(index, model.files);
  for (const auto& [file, tensors] : model.files) {
    for (const auto& [name, tensor] : tensors) {
      require(model.tensors.emplace(name, tensor).second, directory, name + " is there twice");
    }
  }
  return model;
}

void write_sparse_file(const fs::path& path, const std::vector<SparseTensor>& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::vector<std::uint64_t> starts;
  std::uint64_t at = 0;
  for (const SparseTensor& tensor : tensors) {
    starts.push_back(at);
    const std::uint64_t end = at + dtype_bytes(tensor.dtype) * count_of(tensor.shape);
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  const std::string text = header.dump();
  write_string(path, little_endian_length(text.size()) + text);
  fs::resize_file(path, 8 + text.size() + at);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Bytes& start = tensors[i].start;
    file.seekp(static_cast<std::streamoff>(8 + text.size() + starts[i]));
    file.write(reinterpret_cast<const char*>(start.data()),
               static_cast<std::streamsize>(start.size()));
  }
  file.close();
  require(file.good(), path, "cannot be written");
}

}  // namespace octavo::tests
