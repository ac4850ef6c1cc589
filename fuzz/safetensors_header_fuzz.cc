// The beginning of a .safetensors file: length, header, perhaps data.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string>

#include "fuzz/check.h"
#include "octavo/checkpoint/safetensors.h"

namespace octavo::fuzz {
namespace {

constexpr std::string_view kName = "file";

// A file with this content that is on no disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : descriptor_(::memfd_create("fuzz", 0)) {
    const auto written = ::write(descriptor_, content.data(), content.size());
    require(written == static_cast<::ssize_t>(content.size()), "a memory file can be written");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

bool same(const TensorInfo& a, const TensorInfo& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes;
}

bool by_name(const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; }

// What the rest of the library takes for granted.
void require_sound(const SafetensorsHeader& header, std::uint64_t file_bytes) {
  std::uint64_t at = header.data_offset;
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : header.tensors) {
    require(names.insert(tensor.name).second, "names are unique");
    require(tensor.name != "__metadata__", "__metadata__ is no tensor");
    require(tensor.offset == at, "tensors lie one after the other");
    require(tensor.bytes <= file_bytes - at, "tensors lie within the file");
    require(byte_count(tensor.dtype, tensor.shape) == tensor.bytes, "bytes are dtype times shape");
    at += tensor.bytes;
  }
  require(at == file_bytes, "the file ends with the last tensor");
}

// Written anew, the same tensors and metadata are read.
void require_same_after_writing(const SafetensorsHeader& header) {
  const SafetensorsLayout layout = layout_safetensors(header.tensors, header.metadata);
  require(layout.head.size() % 8 == 0, "data begins at a multiple of 8");
  const Result<SafetensorsHeader> again =
      parse_safetensors_header(std::string_view(layout.head).substr(8), layout.file_bytes, kName);
  require(again.has_value(), "what is written can be read");
  require_sound(*again, layout.file_bytes);
  require(again->metadata == header.metadata, "metadata stay");
  std::vector<TensorInfo> before = header.tensors;
  std::vector<TensorInfo> after = again->tensors;
  std::ranges::sort(before, by_name);
  std::ranges::sort(after, by_name);
  require(std::ranges::equal(before, after, same), "tensors stay");
}

void check_parse(std::string_view text, std::uint64_t file_bytes) {
  const Result<SafetensorsHeader> header = parse_safetensors_header(text, file_bytes, kName);
  if (!header) return require_message(header.error().message, kName);
  require(header->data_offset == 8 + text.size(), "data begin after the header");
  require_sound(*header, file_bytes);
  require_same_after_writing(*header);
}

// The size that the header needs if it is a sound one: its largest number is the end of the data.
// The fuzzer cannot guess it.
std::uint64_t fitting_size(std::string_view text) {
  std::uint64_t largest = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
    at = std::max(at + 1, static_cast<std::size_t>(end - text.data()));
    if (error == std::errc()) largest = std::max(largest, number);
  }
  constexpr std::uint64_t kLongestFile = std::uint64_t{1} << 62;
  return std::min(largest, kLongestFile) + 8 + text.size();
}

void check_file(std::string_view content) {
  const MemoryFile memory(content);
  const Result<File> file = File::open(memory.path());
  require(file.has_value(), "a memory file can be opened");
  Defects defects;
  const auto survey = survey_safetensors_header(*file, kMaxHeaderBytes, defects);
  for (const Defect& defect : defects) require_message(defect.message, memory.path());
  const Result<SafetensorsHeader> header = read_safetensors_header(*file);
  require(header.has_value() == defects.empty(),
          "a file is refused if and only if it has a defect");
  require(survey.has_value() || !header, "what is read was surveyed");
  if (header) require_sound(*header, content.size());
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace octavo::fuzz;
  const std::string_view content = as_text(data, size);
  check_file(content);
  if (size < 8) return 0;
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | data[i];
  // A damaged length does not hide the header from this half.
  const std::string_view text = content.substr(8, length <= size - 8 ? length : size - 8);
  check_parse(text, fitting_size(text));
  check_parse(text, size);
  return 0;
}
