// The safetensors container: 8 bytes of header length (little endian), a JSON header, tensor bytes
// without holes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/file.h"
#include "octavo/checkpoint/defect.h"
#include "octavo/tensor/dtype.h"
#include "octavo/tensor/shape.h"

namespace octavo {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference reader's cap

struct TensorInfo {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t offset;  // of its first byte, from the beginning of the file
  std::uint64_t bytes;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;              // in the order of their bytes
  std::map<std::string, std::string> metadata;  // "__metadata__"
  std::uint64_t data_offset;                    // 8 + header length
};

// The header's text (without the length) of a file of `file_bytes`; `name` for messages. Every
// tensor lies within the file, has the bytes that its dtype and shape say, and overlaps no other.
// Messages hold the words of the reference reader (HeaderTooLarge, InvalidOffset, ...).
Result<SafetensorsHeader> parse_safetensors_header(std::string_view text, std::uint64_t file_bytes,
                                                   std::string_view name);

// Reads length and header of an open file.
Result<SafetensorsHeader> read_safetensors_header(const File& file,
                                                  std::uint64_t max_bytes = kMaxHeaderBytes);

// The same for a file that may be damaged: adds all that is wrong to `defects`. nullopt where the
// tensors cannot be known; else all tensors whose entries make sense, though they may lie beyond
// the end of the file or overlap.
std::optional<SafetensorsHeader> survey_safetensors_header(const File& file,
                                                           std::uint64_t max_bytes,
                                                           Defects& defects);

// A file to be written: offsets follow from the order of `tensors`, which is set so that every
// tensor is aligned to its element: wider elements first, else as given.
struct SafetensorsLayout {
  std::vector<TensorInfo> tensors;
  std::string head;          // length and header, padded with spaces to a multiple of 8
  std::uint64_t file_bytes;  // of the whole file
};
SafetensorsLayout layout_safetensors(std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata = {
                                         {"format", "pt"}});

}  // namespace octavo
