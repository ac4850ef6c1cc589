#include "octavo/checkpoint/tensor_file.h"

#include <fmt/format.h>

#include <span>

#include "octavo/base/file.h"
#include "octavo/base/machine.h"
#include "octavo/checkpoint/safetensors.h"

namespace octavo {
namespace {

Result<void> write_all(const File& file, const SafetensorsLayout& layout,
                       const std::map<std::string, Tensor>& tensors) {
  OCTAVO_CHECK(file.write_at(0, std::as_bytes(std::span(layout.head))));
  for (const TensorInfo& info : layout.tensors) {
    const Tensor& tensor = tensors.at(info.name);
    OCTAVO_CHECK(
        file.write_at(info.offset, {static_cast<const std::byte*>(tensor.data()), tensor.bytes()}));
  }
  return file.sync();
}

}  // namespace

Result<TensorFile> read_tensor_file(const std::filesystem::path& path) {
  OCTAVO_TRY(const File file, File::open(path));
  OCTAVO_TRY(SafetensorsHeader header, read_safetensors_header(file));
  std::uint64_t bytes = 0;
  for (const TensorInfo& info : header.tensors) bytes += info.bytes;
  const std::uint64_t available = available_memory();
  if (available != 0 && bytes > available) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: {} bytes of tensors are more than the memory that is available",
                            path.string(), bytes));
  }
  TensorFile result{{}, std::move(header.metadata)};
  for (const TensorInfo& info : header.tensors) {
    Tensor tensor(info.dtype, info.shape);
    auto* to = static_cast<std::byte*>(tensor.mutable_data());
    OCTAVO_CHECK(file.read_at(info.offset, {to, tensor.bytes()}));
    result.tensors.emplace(info.name, std::move(tensor));
  }
  return result;
}

Result<void> write_tensor_file(const std::filesystem::path& path, const TensorFile& file) {
  std::error_code ignored;
  const std::filesystem::file_status old = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(old) && !std::filesystem::is_regular_file(old)) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: not a regular file, which this would replace", path.string()));
  }
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : file.tensors) {
    infos.push_back({name, tensor.dtype(), tensor.shape(), 0, tensor.bytes()});
  }
  const SafetensorsLayout layout = layout_safetensors(std::move(infos), file.metadata);
  OCTAVO_TRY(const File partial, File::create(partial_path(path)));
  Result<void> status = write_all(partial, layout, file.tensors);
  if (status) status = publish(path);
  if (!status) {
    std::filesystem::remove(partial_path(path), ignored);
    return status;
  }
  return sync_directory(path.has_parent_path() ? path.parent_path() : ".");
}

}  // namespace octavo
