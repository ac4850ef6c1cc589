#include <algorithm>
#include <cstring>

#include "octavo/checkpoint/compare_read_internal.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/select.h"
#include "octavo/quant/block.h"

namespace octavo {
namespace {

std::uint64_t bits_of(const ComparedTensor& tensor) {
  if (tensor.codes != nullptr)
    return static_cast<std::uint64_t>(bits_per_element(tensor.codes->format));
  const DType dtype = tensor.stored->info.dtype;
  return dtype == DType::c64 ? 32 : static_cast<std::uint64_t>(dtype_bits(dtype));
}

template <class Stored, class Real>
void widen(const std::vector<std::byte>& raw, std::vector<Real>& to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    Stored value;
    std::memcpy(&value, raw.data() + i * sizeof value, sizeof value);
    to[i] = static_cast<Real>(value);
  }
}

void decode_floats(DType dtype, std::uint64_t count, ValueScratch& scratch) {
  scratch.narrow.resize(count);
  const kernels::CastKernels& kernels = kernels::cast_kernels();
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
      return widen<std::uint8_t>(scratch.raw, scratch.narrow);
    case DType::i8:
      return widen<std::int8_t>(scratch.raw, scratch.narrow);
    case DType::i16:
      return widen<std::int16_t>(scratch.raw, scratch.narrow);
    case DType::u16:
      return widen<std::uint16_t>(scratch.raw, scratch.narrow);
    case DType::f32:
    case DType::c64:
      std::memcpy(scratch.narrow.data(), scratch.raw.data(), count * sizeof(float));
      return;
    case DType::f4: {
      const float one = 1;
      const auto* codes = reinterpret_cast<const std::uint8_t*>(scratch.raw.data());
      return dequantize_blocks(kernels, {Format::e2m1fn, codes, count / 2, 0, 0, 1, count},
                               {1, count}, std::span(&one, 1),
                               {Format::f32, scratch.narrow.data(), count, false, false, nullptr});
    }
    default:
      return kernels.cast({*dtype_info(dtype).format, scratch.raw.data(), Format::f32,
                           scratch.narrow.data(), count, Overflow::special});
  }
}

}  // namespace

bool needs_long_double(const ComparedTensor& tensor) {
  switch (tensor.stored->info.dtype) {
    case DType::f64:
    case DType::i32:
    case DType::u32:
    case DType::i64:
    case DType::u64:
      return true;
    default:
      return false;
  }
}

Result<void> read_values(const ComparedTensor& tensor, const Matrices& matrices,
                         const Window& window, bool wide, ValueScratch& scratch) {
  const std::uint64_t count = window.count();
  OCTAVO_CHECK(read_window(*tensor.checkpoint, *tensor.stored, matrices, bits_of(tensor), window,
                           scratch.raw));
  if (tensor.codes != nullptr) {
    OCTAVO_CHECK(read_window_scales(*tensor.checkpoint, *tensor.codes, window, scratch.scales));
    scratch.narrow.resize(count);
    dequantize_blocks(
        kernels::cast_kernels(),
        {tensor.codes->format, reinterpret_cast<const std::uint8_t*>(scratch.raw.data()),
         window.cols * bits_of(tensor) / 8, window.row, window.col, window.rows, window.cols},
        tensor.codes->layout.block, scratch.scales,
        {Format::f32, scratch.narrow.data(), window.cols, false, false, nullptr});
  } else if (!needs_long_double(tensor)) {
    decode_floats(tensor.stored->info.dtype, count, scratch);
  }
  if (!wide) return {};
  scratch.wide.resize(count);
  if (!needs_long_double(tensor)) {
    std::ranges::copy(scratch.narrow, scratch.wide.begin());
    return {};
  }
  switch (tensor.stored->info.dtype) {
    case DType::f64:
      widen<double>(scratch.raw, scratch.wide);
      break;
    case DType::i32:
      widen<std::int32_t>(scratch.raw, scratch.wide);
      break;
    case DType::u32:
      widen<std::uint32_t>(scratch.raw, scratch.wide);
      break;
    case DType::i64:
      widen<std::int64_t>(scratch.raw, scratch.wide);
      break;
    default:
      widen<std::uint64_t>(scratch.raw, scratch.wide);
      break;
  }
  return {};
}

RowGrids::RowGrids(const ComparedTensor& tensor, const Window& window, const ValueScratch& scratch)
    : tensor_(tensor),
      window_(window),
      scratch_(scratch),
      plain_(plain_grid(tensor.stored->info.dtype)) {}

std::uint64_t RowGrids::end(std::uint64_t col) const {
  const std::uint64_t last = window_.col + window_.cols;
  if (tensor_.codes == nullptr) return last;
  const std::uint64_t block = tensor_.codes->layout.block.cols;
  return std::min(last, (col / block + 1) * block);
}

RoundingGrid RowGrids::at(std::uint64_t row, std::uint64_t col) const {
  if (tensor_.codes == nullptr) return plain_;
  const BlockSize& block = tensor_.codes->layout.block;
  const Window grid = grid_window(window_, tensor_.codes->layout);
  return scaled_grid(
      tensor_.codes->format,
      scratch_.scales[(row / block.rows - grid.row) * grid.cols + col / block.cols - grid.col]);
}

}  // namespace octavo
