#include "octavo/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <expected>
#include <unordered_set>

#include "octavo/base/json.h"

namespace octavo {
namespace {

constexpr std::string_view kPointerStart = "version https://git-lfs";

template <class T>
using Checked = std::expected<T, Defect>;

// "FILE: KIND: TENSOR: MESSAGE"; `kind` is the reference reader's word for it.
std::unexpected<Defect> bad(DefectCode code, std::string_view file, std::string_view kind,
                            std::string_view tensor, std::string_view message,
                            std::optional<std::uint64_t> offset = {}) {
  return std::unexpected(make_defect(
      code, file, tensor, offset,
      fmt::format("{}: {}: {}{}{}", file, kind, tensor, tensor.empty() ? "" : ": ", message)));
}

// What is wrong with a file's header as a whole.
std::unexpected<Defect> bad_header(DefectCode code, std::string_view file,
                                   std::string_view message) {
  return bad(code, file, "InvalidHeaderDeserialization", "", message);
}

std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? ~std::uint64_t{0} : sum;
}

// The strings of "__metadata__".
Checked<void> read_metadata(const simdjson::dom::element& value, std::string_view file,
                            std::map<std::string, std::string>& metadata) {
  simdjson::dom::object object;
  if (value.get(object))
    return bad_header(DefectCode::header_syntax, file, "__metadata__ is not an object");
  for (const auto& [key, entry] : object) {
    std::string_view text;
    if (entry.get(text)) {
      return bad_header(DefectCode::header_syntax, file,
                        fmt::format("__metadata__[\"{}\"] is not a string", key));
    }
    if (!metadata.emplace(key, text).second) {
      return bad_header(DefectCode::duplicate_key, file,
                        fmt::format("__metadata__ has the key \"{}\" twice", key));
    }
  }
  return {};
}

Checked<Shape> read_shape(const simdjson::dom::element& value, std::string_view file,
                          std::string_view tensor) {
  constexpr DefectCode kCode = DefectCode::tensor_info;
  simdjson::dom::array array;
  Shape shape;
  if (value.get(array)) return bad(kCode, file, "TensorInvalidInfo", tensor, "shape is not a list");
  for (const simdjson::dom::element entry : array) {
    std::uint64_t extent = 0;
    if (entry.get(extent)) {
      return bad(kCode, file, "TensorInvalidInfo", tensor,
                 "shape holds something other than a whole number >= 0");
    }
    shape.push_back(extent);
  }
  return shape;
}

Checked<TensorInfo> read_tensor(std::string_view name, const simdjson::dom::element& value,
                                std::string_view file) {
  const auto invalid = [&](std::string_view message) {
    return bad(DefectCode::tensor_info, file, "TensorInvalidInfo", name, message);
  };
  simdjson::dom::object object;
  if (value.get(object)) return invalid("not an object");
  std::string_view dtype_text;
  simdjson::dom::element shape_value;
  simdjson::dom::array offsets;
  unsigned found = 0;  // a bit for each field, so that none counts twice
  for (const auto& [key, field] : object) {
    const unsigned bit = key == "dtype" ? 1 : key == "shape" ? 2 : key == "data_offsets" ? 4 : 0;
    if ((found & bit) != 0) {
      return bad(DefectCode::duplicate_key, file, "TensorInvalidInfo", name,
                 fmt::format("{} stands there twice", key));
    }
    found |= bit;
    const auto error = bit == 1   ? field.get(dtype_text)
                       : bit == 2 ? field.get(shape_value)
                       : bit == 4 ? field.get(offsets)
                                  : simdjson::SUCCESS;
    if (error) return invalid(fmt::format("{} has the wrong type", key));
  }
  if (found != 7) return invalid("dtype, shape or data_offsets missing");
  const std::optional<DType> dtype = dtype_from_name(dtype_text);
  if (!dtype) {
    return bad(DefectCode::unknown_dtype, file, "TensorInvalidInfo", name,
               fmt::format("unknown dtype {}", dtype_text));
  }
  OCTAVO_TRY(Shape shape, read_shape(shape_value, file, name));
  const std::optional<std::uint64_t> bytes = byte_count(*dtype, shape);
  if (!bytes) {
    return bad(DefectCode::size_overflow, file, "ValidationOverflow", name,
               fmt::format("{} {} has no whole number of bytes that fits 64 bits", dtype_text,
                           to_string(shape)));
  }
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (offsets.size() != 2 || offsets.at(0).get(begin) || offsets.at(1).get(end) || begin > end) {
    constexpr std::size_t kShown = 60;
    return bad(DefectCode::offsets, file, "InvalidOffset", name,
               fmt::format("data_offsets {} are not [begin, end] with 0 <= begin <= end; {} {} "
                           "takes {} bytes",
                           simdjson::minify(offsets).substr(0, kShown), dtype_text,
                           to_string(shape), *bytes));
  }
  if (end - begin != *bytes) {
    return bad(DefectCode::size_mismatch, file, "TensorInvalidInfo", name,
               fmt::format("{} {} takes {} bytes, data_offsets say {}", dtype_text,
                           to_string(shape), *bytes, end - begin));
  }
  return TensorInfo{std::string(name), *dtype, std::move(shape), begin, *bytes};
}

// One defect for all tensors that do not lie within the file.
void check_truncation(const SafetensorsHeader& header, std::uint64_t file_bytes,
                      std::string_view file, Defects& defects) {
  std::vector<std::string> cut;
  std::uint64_t expected = 0;
  for (const TensorInfo& tensor : header.tensors) {
    const std::uint64_t end =
        saturating_sum(header.data_offset, saturating_sum(tensor.offset, tensor.bytes));
    expected = std::max(expected, end);
    if (end > file_bytes) cut.push_back(tensor.name);
  }
  if (cut.empty()) return;
  defects.push_back(bad(DefectCode::truncated, file, "MetadataIncompleteBuffer", "",
                        fmt::format("truncated: expected {} bytes, have {}; cut or missing: {}",
                                    expected, file_bytes, first_names(cut)),
                        file_bytes)
                        .error());
  defects.back().tensor = cut.front();
}

// Tensors lie one after the other, from 0 to the end of the file. Offsets become offsets in the
// file.
void check_extents(SafetensorsHeader& header, std::uint64_t file_bytes, std::string_view file,
                   Defects& defects) {
  std::ranges::stable_sort(header.tensors, {},
                           [](const TensorInfo& t) { return std::pair(t.offset, t.bytes); });
  check_truncation(header, file_bytes, file, defects);
  const std::uint64_t data = header.data_offset;
  std::uint64_t at = 0;  // end of what the tensors so far hold
  const TensorInfo* last = nullptr;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.offset < at) {
      defects.push_back(
          bad(DefectCode::overlap, file, "InvalidOffset", tensor.name,
              fmt::format("overlaps {} at offset {}", last->name, data + tensor.offset),
              data + tensor.offset)
              .error());
    } else if (tensor.offset > at && tensor.offset <= file_bytes - data) {
      defects.push_back(bad(DefectCode::hole, file, "InvalidOffset", tensor.name,
                            fmt::format("{} bytes before it, at offset {}, belong to no tensor",
                                        tensor.offset - at, data + at),
                            data + at)
                            .error());
    }
    const std::uint64_t end = saturating_sum(tensor.offset, tensor.bytes);
    if (end >= at) {
      at = end;
      last = &tensor;
    }
  }
  if (at < file_bytes - data) {
    defects.push_back(bad(DefectCode::trailing_bytes, file, "MetadataIncompleteBuffer", "",
                          fmt::format("{} bytes at the end, from offset {} on, belong to no tensor",
                                      file_bytes - data - at, data + at),
                          data + at)
                          .error());
  }
  for (TensorInfo& tensor : header.tensors) tensor.offset = saturating_sum(tensor.offset, data);
}

std::optional<SafetensorsHeader> parse_padded(const simdjson::padded_string& text,
                                              std::uint64_t file_bytes, std::string_view name,
                                              Defects& defects) {
  SafetensorsHeader header;
  header.data_offset = 8 + text.size();
  const auto give_up = [&](std::unexpected<Defect> defect) {
    defects.push_back(std::move(defect).error());
    return std::nullopt;
  };
  if (file_bytes < header.data_offset) {
    return give_up(bad(DefectCode::truncated, name, "InvalidHeaderLength", "",
                       fmt::format("truncated: expected {} bytes, have {}: it ends within its "
                                   "header",
                                   header.data_offset, file_bytes),
                       file_bytes));
  }
  if (!std::string_view(text).starts_with('{')) {
    return give_up(bad(DefectCode::header_syntax, name, "InvalidHeaderStart", "",
                       fmt::format("the header of {} bytes does not begin with '{{'; the file has "
                                   "{} bytes",
                                   text.size(), file_bytes),
                       8));
  }
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (const auto error = parser.parse(text).get(object)) {
    const char* const kind =
        error == simdjson::UTF8_ERROR ? "InvalidHeader" : "InvalidHeaderDeserialization";
    return give_up(bad(DefectCode::header_syntax, name, kind, "",
                       fmt::format("{} (the header of {} bytes in a file of {})",
                                   simdjson::error_message(error), text.size(), file_bytes)));
  }
  std::unordered_set<std::string_view> seen;  // views into the parser's strings
  bool all_known = true;
  const auto note = [&](Defect defect) {
    defects.push_back(std::move(defect));
    all_known = false;
  };
  for (const auto& [key, value] : object) {
    if (!seen.insert(key).second) {
      note(bad_header(DefectCode::duplicate_key, name,
                      fmt::format("the key \"{}\" stands there twice", key))
               .error());
      defects.back().tensor = std::string(key);
    } else if (key == "__metadata__") {
      if (auto status = read_metadata(value, name, header.metadata); !status) {
        note(std::move(status).error());
      }
    } else if (auto tensor = read_tensor(key, value, name); tensor) {
      header.tensors.push_back(*std::move(tensor));
    } else {
      note(std::move(tensor).error());
    }
  }
  // Bytes of a tensor that is not known would look like holes.
  if (!all_known) return std::nullopt;
  check_extents(header, file_bytes, name, defects);
  return header;
}

Checked<simdjson::padded_string> read_header_text(const File& file, std::uint64_t max_bytes) {
  const std::string name = file.path().string();
  const auto unreadable = [&](const Error& error) {
    return std::unexpected(
        make_defect(error.code == ErrorCode::io ? DefectCode::unreadable : DefectCode::truncated,
                    name, "", {}, error.message));
  };
  std::string start(std::min<std::uint64_t>(file.size(), 512), '\0');
  if (const auto got = file.read_at(0, std::as_writable_bytes(std::span(start))); !got)
    return unreadable(got.error());
  if (start.starts_with(kPointerStart)) {
    const std::size_t size = start.find("size ");
    return bad(
        DefectCode::lfs_pointer, name, "HeaderTooLarge", "",
        fmt::format("this is a Git LFS pointer, not the weights{}; fetch the file itself "
                    "(git lfs pull)",
                    size == start.npos
                        ? ""
                        : fmt::format(" ({} bytes)",
                                      start.substr(size + 5, start.find('\n', size) - size - 5))));
  }
  if (start.size() < 8) {
    return bad(DefectCode::header_too_small, name, "HeaderTooSmall", "",
               fmt::format("{} bytes; a safetensors file has at least 10", start.size()));
  }
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | static_cast<unsigned char>(start[static_cast<std::size_t>(i)]);
  const bool beyond_end = length > file.size() - 8;
  if (length > max_bytes) {
    return bad(beyond_end ? DefectCode::header_too_large : DefectCode::header_over_limit, name,
               "HeaderTooLarge", "",
               fmt::format("a header of {} bytes is declared, the file has {}, {} are allowed; {}",
                           length, file.size(), max_bytes,
                           beyond_end ? "this is no safetensors file, or a damaged one"
                                      : "--max-header-size raises the limit"),
               0);
  }
  if (beyond_end) {
    return bad(DefectCode::truncated, name, "InvalidHeaderLength", "",
               fmt::format("truncated: expected {} bytes, have {}: it ends within its header",
                           length + 8, file.size()),
               file.size());
  }
  simdjson::padded_string text(length);
  if (text.data() == nullptr && length > 0) {
    return bad(DefectCode::unreadable, name, "HeaderTooLarge", "",
               fmt::format("no memory for a header of {} bytes", length));
  }
  const std::span<char> bytes(text.data(), text.size());
  if (const auto got = file.read_at(8, std::as_writable_bytes(bytes)); !got)
    return unreadable(got.error());
  return text;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::uint64_t file_bytes,
                                                   std::string_view name) {
  Defects defects;
  std::optional<SafetensorsHeader> header =
      parse_padded(simdjson::padded_string(text), file_bytes, name, defects);
  if (!defects.empty()) return std::unexpected(to_error(defects.front()));
  return *std::move(header);
}

std::optional<SafetensorsHeader> survey_safetensors_header(const File& file,
                                                           std::uint64_t max_bytes,
                                                           Defects& defects) {
  const Checked<simdjson::padded_string> text = read_header_text(file, max_bytes);
  if (!text) {
    defects.push_back(text.error());
    return std::nullopt;
  }
  return parse_padded(*text, file.size(), file.path().string(), defects);
}

Result<SafetensorsHeader> read_safetensors_header(const File& file, std::uint64_t max_bytes) {
  Defects defects;
  std::optional<SafetensorsHeader> header = survey_safetensors_header(file, max_bytes, defects);
  if (!defects.empty()) return std::unexpected(to_error(defects.front()));
  return *std::move(header);
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
