#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "octavo/base/ceil_div.h"
#include "octavo/checkpoint/bands_internal.h"
#include "octavo/checkpoint/window_internal.h"
#include "octavo/formats/traits.h"

namespace octavo {
namespace {

// Small enough that source and codes of a band stay in a core's L2 between reading, quantizing and
// writing.
constexpr std::uint64_t kBandElements = std::uint64_t{1} << 19;
constexpr std::uint64_t kCopyBytes = 1 << 20;

Window window_of(const Band& band) {
  return {band.slice, band.row, band.rows, band.col, band.cols};
}

Result<void> write_window(const File& file, const TensorInfo& tensor, const Matrices& m,
                          const Window& w, std::span<const std::byte> from) {
  return for_each_run(m, static_cast<std::uint64_t>(dtype_bits(tensor.dtype)), w,
                      [&](std::uint64_t offset, std::uint64_t at, std::uint64_t bytes) {
                        return file.write_at(tensor.offset + offset, from.subspan(at, bytes));
                      });
}

std::string position(const OutputTensor& output, std::uint64_t slice, std::uint64_t row,
                     std::uint64_t col) {
  return output.shape.size() > 2
             ? fmt::format("{}[{}, {}, {}]", output.source->info.name, slice, row, col)
             : fmt::format("{}[{}, {}]", output.source->info.name, row, col);
}

// Scales of a quantized source for a window of it.
Result<void> read_source_scales(const BandSettings& settings, const OutputTensor& output,
                                const Window& w, std::vector<float>& scales) {
  OCTAVO_CHECK(read_window_scales(settings.checkpoint, *output.codes, w, scales));
  const auto bad = std::ranges::find_if(scales, [](float s) { return !std::isfinite(s); });
  if (settings.allow_non_finite || bad == scales.end()) return {};
  const ScaleLayout& layout = output.codes->layout;
  const Window grid = grid_window(w, layout);
  const auto at = static_cast<std::uint64_t>(bad - scales.begin());
  const std::uint64_t row = grid.slice * layout.grid_rows + grid.row + at / grid.cols;
  return fail(
      ErrorCode::bad_model,
      fmt::format("{}: scale {} of {} is {}; --allow-non-finite multiplies by it all the same",
                  settings.checkpoint.tensors[*output.codes->scale].info.name,
                  row * layout.grid_cols + grid.col + at % grid.cols, output.source->info.name,
                  *bad));
}

Result<CodeWindow> read_codes(const BandSettings& settings, const OutputTensor& output,
                              const Window& w, Scratch& scratch) {
  const Format format = output.codes->format;
  const std::uint64_t bits = format == Format::e2m1fn ? 4 : 8;
  OCTAVO_CHECK(read_window(settings.checkpoint, *output.source, as_matrices(output.shape), bits, w,
                           scratch.source));
  OCTAVO_CHECK(read_source_scales(settings, output, w, scratch.source_scales));
  return CodeWindow{format,
                    reinterpret_cast<const std::uint8_t*>(scratch.source.data()),
                    w.cols * bits / 8,
                    w.row,
                    w.col,
                    w.rows,
                    w.cols};
}

// The source of a `quantize` as wide floats: as in the file, or dequantized to f32.
Result<ConstMatrix> read_wide(const BandSettings& settings, const OutputTensor& output,
                              const Window& w, Scratch& scratch) {
  if (output.codes == nullptr) {
    const DTypeInfo& dtype = dtype_info(output.source->info.dtype);
    OCTAVO_CHECK(read_window(settings.checkpoint, *output.source, as_matrices(output.shape),
                             static_cast<std::uint64_t>(dtype.bits), w, scratch.source));
    return ConstMatrix{*dtype.format, scratch.source.data(), w.rows, w.cols, w.cols};
  }
  OCTAVO_TRY(const CodeWindow codes, read_codes(settings, output, w, scratch));
  scratch.wide.resize(w.rows * w.cols);
  dequantize_blocks(settings.kernels, codes, output.codes->layout.block, scratch.source_scales,
                    {Format::f32, scratch.wide.data(), w.cols, false, false, nullptr});
  return ConstMatrix{Format::f32, scratch.wide.data(), w.rows, w.cols, w.cols};
}

// Elements that were not finite, for --allow-non-finite: they are zero while scales and codes are
// computed, and their codes become NaN afterwards.
struct NonFiniteMask {
  std::vector<bool> at;  // empty: all are finite
  std::vector<bool> negative;
  std::uint64_t count = 0;
};

NonFiniteMask take_non_finite(const ConstMatrix& matrix) {
  const std::size_t elements = matrix.rows * matrix.cols;
  NonFiniteMask mask{std::vector<bool>(elements), std::vector<bool>(elements), 0};
  const std::size_t bytes = bytes_per_element(matrix.format);
  const FormatTraits& format = traits(matrix.format);
  auto* data = static_cast<std::byte*>(const_cast<void*>(matrix.data));  // our own scratch
  for (std::size_t i = 0; i < elements; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, data + i * bytes, bytes);
    if (is_finite_magnitude(matrix.format, bits & format.magnitude_bits())) continue;
    mask.at[i] = true;
    mask.negative[i] = (bits & format.sign_bit()) != 0;
    ++mask.count;
    std::memset(data + i * bytes, 0, bytes);
  }
  return mask;
}

Error non_finite_error(const OutputTensor& output, const Window& w, const NonFinite& bad) {
  return {ErrorCode::bad_model,
          fmt::format("{} is {}; nothing was quantized. --allow-non-finite turns NaN and "
                      "infinities into NaN codes",
                      position(output, w.slice, w.row + bad.row, w.col + bad.col), bad.value)};
}

Result<void> write_scales(const OutputTensor& output, const BlockSize& block, const Window& w,
                          std::span<const float> scales, const File& to) {
  const Matrices m = as_matrices(output.shape);
  const Matrices grid{m.slices, ceil_div(m.rows, block.rows), ceil_div(m.cols, block.cols)};
  const Window at = grid_window(w, block);
  if (output.scale->dtype == DType::f32)
    return write_window(to, *output.scale, grid, at, std::as_bytes(scales));
  std::vector<std::uint8_t> exponents(scales.size());
  for (std::size_t i = 0; i < scales.size(); ++i) exponents[i] = ue8m0_exact(scales[i]).value();
  return write_window(to, *output.scale, grid, at, std::as_bytes(std::span(exponents)));
}

// Adds what the codes of a window lost against its source.
void add_error(const BandSettings& settings, const ConstMatrix& source, const CodeWindow& codes,
               std::span<const float> scales, Scratch& scratch, QuantizationError& error) {
  const std::size_t count = source.rows * source.cols;
  scratch.left.resize(count);
  scratch.right.resize(count);
  settings.kernels.cast(
      {source.format, source.data, Format::f32, scratch.left.data(), count, Overflow::special});
  dequantize_blocks(settings.kernels, codes, settings.recipe.block, scales,
                    {Format::f32, scratch.right.data(), source.cols, false, false, nullptr});
  // Eight chains, so that the sums vectorize and their order is fixed.
  constexpr std::size_t kChains = 8;
  double squared_error[kChains] = {};
  double squared_source[kChains] = {};
  float largest[kChains] = {};
  for (std::size_t i = 0; i < count; ++i) {
    const float difference = scratch.right[i] - scratch.left[i];
    squared_error[i % kChains] += static_cast<double>(difference) * difference;
    squared_source[i % kChains] += static_cast<double>(scratch.left[i]) * scratch.left[i];
    largest[i % kChains] = std::max(largest[i % kChains], std::fabs(difference));
  }
  for (std::size_t i = 0; i < kChains; ++i) {
    error.sum_squared_error += squared_error[i];
    error.sum_squared_source += squared_source[i];
    error.max_abs = std::max(error.max_abs, static_cast<double>(largest[i]));
  }
  error.elements += count;
}

// Codes of a window whose scales are in scratch.scales, to the file.
Result<void> finish_window(const BandSettings& settings, const OutputTensor& output,
                           const Window& w, const ConstMatrix& source, const NonFiniteMask& mask,
                           const File& to, Scratch& scratch, BandResult& result) {
  if (settings.measure_error) {
    const auto* codes = reinterpret_cast<const std::uint8_t*>(scratch.output.data());
    add_error(settings, source, {Format::e4m3fn, codes, w.cols, w.row, w.col, w.rows, w.cols},
              scratch.scales, scratch, result.error);
  }
  for (std::size_t i = 0; i < mask.at.size() && mask.count > 0; ++i) {
    if (mask.at[i])
      scratch.output[i] = std::byte{mask.negative[i] ? std::uint8_t{0xFF} : std::uint8_t{0x7F}};
  }
  result.non_finite += mask.count;
  return write_window(to, output.main, as_matrices(output.shape), w, scratch.output);
}

Result<BandResult> quantize_band(const BandSettings& settings, const OutputTensor& output,
                                 const Band& band, const File& to, Scratch& scratch) {
  const BlockSize& block = settings.recipe.block;
  const Window w = window_of(band);
  BandResult result;
  OCTAVO_TRY(const ConstMatrix source, read_wide(settings, output, w, scratch));
  const Window grid = grid_window(w, block);
  scratch.scales.resize(grid.rows * grid.cols);
  scratch.output.resize(w.rows * w.cols);
  const CodeMatrix codes{reinterpret_cast<std::uint8_t*>(scratch.output.data()), w.cols};
  const auto quantize = [&] {
    return quantize_blocks(settings.kernels, source, settings.recipe, codes, scratch.scales, false);
  };
  NonFiniteMask mask;
  if (const std::optional<NonFinite> bad = quantize()) {
    if (!settings.allow_non_finite) return std::unexpected(non_finite_error(output, w, *bad));
    mask = take_non_finite(source);
    quantize();
  }
  OCTAVO_CHECK(write_scales(output, block, w, scratch.scales, to));
  OCTAVO_CHECK(finish_window(settings, output, w, source, mask, to, scratch, result));
  return result;
}

// Pieces of at most kMaxBandElements.
std::vector<Window> cut_window(const Window& w) {
  std::vector<Window> pieces;
  const std::uint64_t cols = std::min(w.cols, kMaxBandElements);
  const std::uint64_t rows = std::max<std::uint64_t>(1, kMaxBandElements / cols);
  for (std::uint64_t r = 0; r < w.rows; r += rows) {
    for (std::uint64_t c = 0; c < w.cols; c += cols) {
      pieces.push_back(
          {w.slice, w.row + r, std::min(rows, w.rows - r), w.col + c, std::min(cols, w.cols - c)});
    }
  }
  return pieces;
}

// One block that does not fit in memory: read twice.
Result<BandResult> quantize_large_block(const BandSettings& settings, const OutputTensor& output,
                                        const Band& band, const File& to, Scratch& scratch) {
  const Window w = window_of(band);
  const BlockSize& block = settings.recipe.block;
  BandResult result;
  float amax = 0;
  for (const Window& piece : cut_window(w)) {
    OCTAVO_TRY(const ConstMatrix source, read_wide(settings, output, piece, scratch));
    std::uint32_t bits = 0;
    block_row_amax(settings.kernels, source, piece.cols, std::span(&bits, 1));
    if (!is_finite_magnitude(source.format, bits)) {
      if (!settings.allow_non_finite)
        return std::unexpected(non_finite_error(output, piece, *find_non_finite(source)));
      take_non_finite(source);
      bits = 0;
      block_row_amax(settings.kernels, source, piece.cols, std::span(&bits, 1));
    }
    amax = std::max(amax, magnitude(source.format, bits));
  }
  const BlockScale scale = compute_scale(amax, settings.recipe.rule, settings.recipe.scale_fmt);
  scratch.scales.assign(1, scale.scale);
  OCTAVO_CHECK(write_scales(output, block, w, scratch.scales, to));
  for (const Window& piece : cut_window(w)) {
    OCTAVO_TRY(const ConstMatrix source, read_wide(settings, output, piece, scratch));
    const NonFiniteMask mask =
        settings.allow_non_finite ? take_non_finite(source) : NonFiniteMask{};
    scratch.output.resize(piece.rows * piece.cols);
    block_row_quantize(settings.kernels, source, piece.cols, std::span(&scale.factor, 1),
                       scale_op(settings.recipe.rule, settings.recipe.scale_fmt),
                       {reinterpret_cast<std::uint8_t*>(scratch.output.data()), piece.cols},
                       nullptr, false);
    OCTAVO_CHECK(finish_window(settings, output, piece, source, mask, to, scratch, result));
  }
  return result;
}

Result<BandResult> dequantize_band(const BandSettings& settings, const OutputTensor& output,
                                   const Band& band, const File& to, Scratch& scratch) {
  const Window w = window_of(band);
  BandResult result;
  OCTAVO_TRY(const CodeWindow codes, read_codes(settings, output, w, scratch));
  const DTypeInfo& dtype = dtype_info(output.main.dtype);
  scratch.output.resize(w.rows * w.cols * static_cast<std::uint64_t>(dtype.bits) / 8);
  dequantize_blocks(
      settings.kernels, codes, output.codes->layout.block, scratch.source_scales,
      {*dtype.format, scratch.output.data(), w.cols, settings.clamp, false, &result.counts});
  OCTAVO_CHECK(write_window(to, output.main, as_matrices(output.shape), w, scratch.output));
  return result;
}

Result<BandResult> copy_band(const BandSettings& settings, const OutputTensor& output,
                             const Band& band, const File& to, Scratch& scratch) {
  scratch.source.resize(band.rows);
  OCTAVO_CHECK(settings.checkpoint.read(*output.source, band.row, scratch.source));
  OCTAVO_CHECK(to.write_at(output.main.offset + band.row, scratch.source));
  return BandResult{};
}

}  // namespace

Result<void> cut_bands(const OutputTensor& output, std::size_t index, const BlockSize& block,
                       const std::function<Result<void>(const Band&)>& take) {
  const std::uint64_t source_bytes = output.source->info.bytes;
  if (output.planned->action == Action::keep) {
    for (std::uint64_t at = 0; at < source_bytes; at += kCopyBytes) {
      const std::uint64_t bytes = std::min(kCopyBytes, source_bytes - at);
      OCTAVO_CHECK(take({index, 0, at, bytes, 0, 0, bytes}));
    }
    return {};
  }
  const Matrices m = as_matrices(output.shape);
  if (source_bytes == 0) return {};
  // Units that a band is a multiple of: the new blocks, or for `dequantize` block rows of the old
  // ones where they fit.
  const bool quantize = output.planned->action == Action::quantize;
  std::uint64_t unit_rows =
      std::min(quantize ? block.rows : output.codes->layout.block.rows, m.rows);
  if (!quantize && unit_rows * m.cols > kMaxBandElements) unit_rows = 1;
  const std::uint64_t unit_cols =
      quantize ? std::min(block.cols, m.cols) : std::min<std::uint64_t>(m.cols, kMaxBandElements);
  const std::uint64_t across =
      std::max<std::uint64_t>(1, kMaxBandElements / unit_rows / unit_cols);  // units side by side
  const std::uint64_t cols =
      unit_rows * m.cols <= kMaxBandElements ? m.cols : std::min(m.cols, across * unit_cols);
  const std::uint64_t down =
      cols == m.cols ? std::max<std::uint64_t>(1, kBandElements / unit_rows / cols) : 1;
  const std::uint64_t rows = std::min(m.rows, down * unit_rows);
  for (std::uint64_t slice = 0; slice < m.slices; ++slice) {
    for (std::uint64_t r = 0; r < m.rows; r += rows) {
      for (std::uint64_t c = 0; c < m.cols; c += cols) {
        const std::uint64_t height = std::min(rows, m.rows - r);
        const std::uint64_t width = std::min(cols, m.cols - c);
        const std::uint64_t bits =
            output.codes != nullptr && output.codes->format == Format::e2m1fn
                ? 4
                : static_cast<std::uint64_t>(dtype_bits(output.source->info.dtype));
        OCTAVO_CHECK(take({index, slice, r, height, c, width, height * width * bits / 8}));
      }
    }
  }
  return {};
}

Result<BandResult> convert_band(const BandSettings& settings, const OutputTensor& output,
                                const Band& band, const File& to, Scratch& scratch) {
  switch (output.planned->action) {
    case Action::keep:
      return copy_band(settings, output, band, to, scratch);
    case Action::dequantize:
      return dequantize_band(settings, output, band, to, scratch);
    case Action::quantize:
      break;
    case Action::drop:
      throw ContractError("convert_band: a dropped tensor has no bands");
  }
  return band.rows * band.cols > kMaxBandElements
             ? quantize_large_block(settings, output, band, to, scratch)
             : quantize_band(settings, output, band, to, scratch);
}

}  // namespace octavo
