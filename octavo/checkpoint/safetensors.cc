#include "octavo/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <unordered_set>

#include "octavo/base/json.h"

namespace octavo {
namespace {

constexpr std::string_view kPointerStart = "version https://git-lfs";

std::unexpected<Error> bad(std::string_view file, std::string_view kind, std::string message) {
  return fail(ErrorCode::bad_file, fmt::format("{}: {}: {}", file, kind, message));
}

// The strings of "__metadata__".
Result<void> read_metadata(const simdjson::dom::element& value, std::string_view file,
                           std::map<std::string, std::string>& metadata) {
  simdjson::dom::object object;
  if (value.get(object))
    return bad(file, "InvalidHeaderDeserialization", "__metadata__ is not an object");
  for (const auto& [key, entry] : object) {
    std::string_view text;
    if (entry.get(text)) {
      return bad(file, "InvalidHeaderDeserialization",
                 fmt::format("__metadata__[\"{}\"] is not a string", key));
    }
    if (!metadata.emplace(key, text).second) {
      return bad(file, "InvalidHeaderDeserialization",
                 fmt::format("__metadata__ has the key \"{}\" twice", key));
    }
  }
  return {};
}

Result<Shape> read_shape(const simdjson::dom::element& value, std::string_view file,
                         std::string_view tensor) {
  simdjson::dom::array array;
  Shape shape;
  if (value.get(array))
    return bad(file, "TensorInvalidInfo", fmt::format("{}: shape is not a list", tensor));
  for (const simdjson::dom::element entry : array) {
    std::uint64_t extent = 0;
    if (entry.get(extent)) {
      return bad(file, "TensorInvalidInfo",
                 fmt::format("{}: shape holds something other than a whole number >= 0", tensor));
    }
    shape.push_back(extent);
  }
  return shape;
}

Result<TensorInfo> read_tensor(std::string_view name, const simdjson::dom::element& value,
                               std::string_view file) {
  simdjson::dom::object object;
  if (value.get(object))
    return bad(file, "TensorInvalidInfo", fmt::format("{}: not an object", name));
  std::string_view dtype_text;
  simdjson::dom::element shape_value;
  simdjson::dom::array offsets;
  unsigned found = 0;  // a bit for each field, so that none counts twice
  for (const auto& [key, field] : object) {
    const unsigned bit = key == "dtype" ? 1 : key == "shape" ? 2 : key == "data_offsets" ? 4 : 0;
    if ((found & bit) != 0) {
      return bad(file, "TensorInvalidInfo", fmt::format("{}: {} stands there twice", name, key));
    }
    found |= bit;
    const auto error = bit == 1   ? field.get(dtype_text)
                       : bit == 2 ? field.get(shape_value)
                       : bit == 4 ? field.get(offsets)
                                  : simdjson::SUCCESS;
    if (error)
      return bad(file, "TensorInvalidInfo", fmt::format("{}: {} has the wrong type", name, key));
  }
  if (found != 7) {
    return bad(file, "TensorInvalidInfo",
               fmt::format("{}: dtype, shape or data_offsets missing", name));
  }
  const std::optional<DType> dtype = dtype_from_name(dtype_text);
  if (!dtype) {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: {}: unknown dtype {}", file, name, dtype_text));
  }
  OCTAVO_TRY(Shape shape, read_shape(shape_value, file, name));
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (offsets.size() != 2 || offsets.at(0).get(begin) || offsets.at(1).get(end) || begin > end) {
    return bad(file, "InvalidOffset",
               fmt::format("{}: data_offsets are not [begin, end] with 0 <= begin <= end", name));
  }
  const std::optional<std::uint64_t> bytes = byte_count(*dtype, shape);
  if (!bytes) {
    return bad(file, "ValidationOverflow",
               fmt::format("{}: {} {} has no whole number of bytes that fits 64 bits", name,
                           dtype_text, to_string(shape)));
  }
  if (end - begin != *bytes) {
    return bad(file, "TensorInvalidInfo",
               fmt::format("{}: {} {} takes {} bytes, data_offsets say {}", name, dtype_text,
                           to_string(shape), *bytes, end - begin));
  }
  return TensorInfo{std::string(name), *dtype, std::move(shape), begin, *bytes};
}

// Tensors lie one after the other, from 0 to the end of the file. Offsets become offsets in the
// file.
Result<void> check_extents(SafetensorsHeader& header, std::uint64_t file_bytes,
                           std::string_view file) {
  std::ranges::stable_sort(header.tensors, {},
                           [](const TensorInfo& t) { return std::pair(t.offset, t.bytes); });
  const std::uint64_t data_bytes = file_bytes - header.data_offset;
  std::uint64_t at = 0;
  const TensorInfo* before = nullptr;
  for (TensorInfo& tensor : header.tensors) {
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      return bad(
          file, "MetadataIncompleteBuffer",
          fmt::format("truncated: {} ends at byte {}, the file has {}; fetch this file again",
                      tensor.name, header.data_offset + tensor.offset + tensor.bytes, file_bytes));
    }
    if (tensor.offset < at) {
      return bad(file, "InvalidOffset",
                 fmt::format("{} overlaps {}", tensor.name, before ? before->name : "the header"));
    }
    if (tensor.offset > at) {
      return bad(
          file, "InvalidOffset",
          fmt::format("{} bytes before {} belong to no tensor", tensor.offset - at, tensor.name));
    }
    at += tensor.bytes;
    tensor.offset += header.data_offset;
    before = &tensor;
  }
  if (at != data_bytes) {
    return bad(file, "MetadataIncompleteBuffer",
               fmt::format("{} bytes at the end belong to no tensor", data_bytes - at));
  }
  return {};
}

Result<SafetensorsHeader> parse_padded(const simdjson::padded_string& text,
                                       std::uint64_t file_bytes, std::string_view name) {
  SafetensorsHeader header;
  header.data_offset = 8 + text.size();
  if (!std::string_view(text).starts_with('{'))
    return bad(name, "InvalidHeaderStart", "the header does not begin with '{'");
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (const auto error = parser.parse(text).get(object)) {
    return bad(name, "InvalidHeaderDeserialization", simdjson::error_message(error));
  }
  std::unordered_set<std::string_view> seen;  // views into the parser's strings
  for (const auto& [key, value] : object) {
    if (!seen.insert(key).second) {
      return bad(name, "InvalidHeaderDeserialization",
                 fmt::format("the key \"{}\" stands there twice", key));
    }
    if (key == "__metadata__") {
      OCTAVO_CHECK(read_metadata(value, name, header.metadata));
      continue;
    }
    OCTAVO_TRY(TensorInfo tensor, read_tensor(key, value, name));
    header.tensors.push_back(std::move(tensor));
  }
  OCTAVO_CHECK(check_extents(header, file_bytes, name));
  return header;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::uint64_t file_bytes,
                                                   std::string_view name) {
  return parse_padded(simdjson::padded_string(text), file_bytes, name);
}

Result<SafetensorsHeader> read_safetensors_header(const File& file) {
  const std::string name = file.path().string();
  std::string start(std::min<std::uint64_t>(file.size(), 512), '\0');
  OCTAVO_CHECK(file.read_at(0, std::as_writable_bytes(std::span(start))));
  if (start.starts_with(kPointerStart)) {
    const std::size_t size = start.find("size ");
    return bad(
        name, "HeaderTooLarge",
        fmt::format(
            "this is a Git LFS pointer, not the weights{}; fetch the file itself (git lfs pull)",
            size == start.npos
                ? ""
                : fmt::format(" ({} bytes)",
                              start.substr(size + 5, start.find('\n', size) - size - 5))));
  }
  if (start.size() < 8)
    return bad(name, "HeaderTooSmall",
               fmt::format("{} bytes; a safetensors file has at least 10", start.size()));
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | static_cast<unsigned char>(start[static_cast<std::size_t>(i)]);
  if (length > kMaxHeaderBytes) {
    return bad(name, "HeaderTooLarge",
               fmt::format("a header of {} bytes is declared, {} are allowed, the file has {}",
                           length, kMaxHeaderBytes, file.size()));
  }
  if (length > file.size() - 8) {
    return bad(
        name, "InvalidHeaderLength",
        fmt::format("truncated: a header of {} bytes is declared, the file has {}; fetch it again",
                    length, file.size()));
  }
  simdjson::padded_string text(length);
  OCTAVO_CHECK(file.read_at(8, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return parse_padded(text, file.size(), name);
}

SafetensorsLayout layout_safetensors(std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::ranges::stable_sort(tensors, std::ranges::greater{},
                           [](const TensorInfo& t) { return dtype_bits(t.dtype); });
  std::string json = "{";
  if (!metadata.empty()) json += fmt::format("\"__metadata__\":{}", Json(metadata).dump());
  std::uint64_t at = 0;
  for (TensorInfo& tensor : tensors) {
    tensor.bytes = byte_count(tensor.dtype, tensor.shape).value();
    tensor.offset = at;
    at += tensor.bytes;
    json += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                        json.size() > 1 ? "," : "", Json(tensor.name).dump(),
                        dtype_name(tensor.dtype), Json(tensor.shape).dump(), tensor.offset, at);
  }
  json += "}";
  json.append((8 - json.size() % 8) % 8, ' ');

  SafetensorsLayout layout;
  layout.head.resize(8);
  for (std::size_t i = 0; i < 8; ++i)
    layout.head[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  layout.head += json;
  for (TensorInfo& tensor : tensors) tensor.offset += layout.head.size();
  layout.file_bytes = layout.head.size() + at;
  layout.tensors = std::move(tensors);
  return layout;
}

}  // namespace octavo
