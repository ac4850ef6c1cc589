#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "octavo/base/ceil_div.h"
#include "octavo/checkpoint/names.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/select.h"
#include "octavo/models/load_internal.h"
#include "octavo/ops/weight_packer.h"

namespace octavo::models {
namespace {

using octavo::to_string;

// Bytes of a weight that are read at once.
constexpr std::size_t kPieceBytes = std::size_t{8} << 20;

std::string where(const Checkpoint& checkpoint, const CheckpointTensor& tensor) {
  return fmt::format("{}: {} ({} {})",
                     (checkpoint.directory / checkpoint.shards[tensor.shard].file_name).string(),
                     tensor.info.name, dtype_name(tensor.info.dtype), to_string(tensor.info.shape));
}

// Rows that are read at once: whole blocks and whole groups that a packer takes.
std::size_t piece_rows(std::size_t row_bytes, std::size_t block_rows) {
  const std::size_t step = std::lcm(ops::kPackRows, block_rows);
  return std::max<std::size_t>(kPieceBytes / std::max<std::size_t>(row_bytes, 1) / step, 1) * step;
}

// Scales (blocks, grid_cols) of a weight whose `n` rows begin `lead` rows into the first block.
class WeightScales {
 public:
  WeightScales(const float* scales, std::size_t grid_cols, const BlockSize& block, std::size_t lead,
               std::size_t n) {
    if (lead == 0) {
      grid_ = {scales, grid_cols, block, Format::f32};
    } else if (lead + n <= block.rows) {
      grid_ = {scales, grid_cols, {n, block.cols}, Format::f32};
    } else {
      by_row_.resize(n * grid_cols);
      for (std::size_t row = 0; row < n; ++row) {
        std::copy_n(scales + (lead + row) / block.rows * grid_cols, grid_cols,
                    by_row_.data() + row * grid_cols);
      }
      grid_ = {by_row_.data(), grid_cols, {1, block.cols}, Format::f32};
    }
  }
  WeightScales(const WeightScales&) = delete;  // grid_ points into by_row_
  const ops::ScaleGrid& grid() const { return grid_; }

 private:
  std::vector<float> by_row_;
  ops::ScaleGrid grid_;
};

}  // namespace

ParameterReader::ParameterReader(const Checkpoint& checkpoint, const LoadOptions& options)
    : checkpoint_(checkpoint),
      options_(options),
      context_(options.context != nullptr ? *options.context : default_context()) {}

Result<void> ParameterReader::prepare() {
  if (options_.quantize) {
    QuantizeOptions options = *options_.quantize;
    options.requantize = true;  // what that would mean is refused below
    OCTAVO_TRY(plan_, plan_quantize(checkpoint_, options));
    pairing_ = plan_->pairing;
    if (!pairing_.weights.empty()) {
      const CheckpointTensor& first = checkpoint_.tensors[pairing_.weights.front().tensor];
      return fail(ErrorCode::unsupported,
                  where(checkpoint_, first) +
                      ": it is quantized already, and not requantized while loading; leave "
                      "--quantize out, or `octavo quantize --requantize` writes a model to load");
    }
    return {};
  }
  pairing_ = pair_scales(checkpoint_, options_.pairing);
  if (!pairing_.problems.empty()) return std::unexpected(to_error(pairing_.problems.front()));
  return {};
}

void ParameterReader::count(std::uint64_t bytes) {
  bytes_done_ += bytes;
  if (options_.on_progress) options_.on_progress(bytes_done_, checkpoint_.tensor_bytes);
}

Result<const CheckpointTensor*> ParameterReader::find(const std::string& name, const Shape& shape,
                                                      const RowRange* rows) {
  const CheckpointTensor* tensor = checkpoint_.find(name);
  if (tensor == nullptr) {
    return fail(ErrorCode::bad_model,
                fmt::format("{}: TensorNotFound: {} {}, which config.json calls for",
                            checkpoint_.directory.string(), name, to_string(shape)));
  }
  Shape given = tensor->info.shape;
  const std::size_t i = index(*tensor);
  if (pairing_.roles[i] == Pairing::Role::weight)
    given = pairing_.weights[pairing_.weight_of[i]].shape;
  Shape expected = shape;
  if (rows != nullptr) expected[0] = rows->all;
  if (given != expected) {
    return fail(ErrorCode::bad_model,
                fmt::format("{}, but config.json says {}", where(checkpoint_, *tensor),
                            to_string(expected)));
  }
  read_.insert(name);
  return tensor;
}

Result<std::vector<float>> ParameterReader::vector(const std::string& name, std::size_t size,
                                                   const RowRange* rows) {
  OCTAVO_TRY(const CheckpointTensor* tensor, find(name, {size}, rows));
  const std::optional<Format> format = dtype_info(tensor->info.dtype).format;
  if (!is_wide_float(tensor->info.dtype)) {
    return fail(ErrorCode::unsupported,
                where(checkpoint_, *tensor) + ": BF16, F16 or F32 is expected here");
  }
  const std::size_t element = bytes_per_element(*format);
  std::vector<std::byte> bytes(size * element);
  OCTAVO_CHECK(checkpoint_.read(*tensor, rows != nullptr ? rows->begin * element : 0, bytes));
  std::vector<float> values(size);
  kernels::cast_kernels().cast(
      {*format, bytes.data(), Format::f32, values.data(), size, Overflow::special});
  count(bytes.size());
  return values;
}

Result<void> ParameterReader::check_width(const CheckpointTensor& tensor, const BlockSize& block,
                                          std::size_t k) const {
  if (ops::is_scale_width(block.cols, k)) return {};
  return fail(ErrorCode::unsupported,
              fmt::format("{}: blocks of {}, and products take 32, 64 or multiples of 128 "
                          "columns{}",
                          where(checkpoint_, tensor), to_string(block),
                          plan_ ? "" : "; --dequantize runs it in bf16"));
}

Result<std::vector<float>> ParameterReader::scales(const QuantizedWeight& weight) {
  const std::size_t all = weight.layout.slices * weight.layout.grid_rows * weight.layout.grid_cols;
  std::vector<float> values(all, 1.0f);
  if (weight.scale) {
    const CheckpointTensor& tensor = checkpoint_.tensors[*weight.scale];
    OCTAVO_CHECK(read_scales(checkpoint_, tensor, 0, values));
    read_.insert(tensor.info.name);
  }
  return values;
}

// Wide elements as they are (F16 as F32), or quantized as quantize_checkpoint does: by the blocks
// of the whole tensor, those that the rows begin and end within included.
Result<ops::PackedWeight> ParameterReader::wide(const CheckpointTensor& tensor, std::size_t n,
                                                std::size_t k, std::size_t first_row,
                                                bool quantize) {
  const Format source = *dtype_info(tensor.info.dtype).format;
  const std::size_t row_bytes = k * bytes_per_element(source);
  const BlockRecipe recipe = quantize ? options_.quantize->recipe : BlockRecipe{};
  const std::size_t all_rows = tensor.info.shape[0];
  const std::size_t grid_cols = ceil_div(k, std::min<std::size_t>(recipe.block.cols, k));
  const std::size_t block_rows = quantize ? std::min<std::size_t>(recipe.block.rows, all_rows) : 1;
  if (quantize) OCTAVO_CHECK(check_width(tensor, recipe.block, k));
  const Format packed = quantize ? Format::e4m3fn : source == Format::f16 ? Format::f32 : source;
  if (packed == source) {
    OCTAVO_TRY(std::optional<ops::PackedWeight> left, mapped(tensor, source, n, k, first_row, {}));
    if (left) return std::move(*left);
  }
  ops::WeightPacker packer(packed, n, k);
  const std::size_t step = std::min(piece_rows(row_bytes, block_rows), n);
  const std::size_t first_block = first_row / block_rows;
  const std::size_t blocks = ceil_div(first_row + n, block_rows) - first_block;
  const std::size_t most = std::min(step + 2 * (block_rows - 1), all_rows);
  std::vector<std::byte> bytes(most * row_bytes);
  std::vector<std::uint8_t> converted(packed == source ? 0 : most * k * bytes_per_element(packed));
  std::vector<float> scales(quantize ? blocks * grid_cols : 0);
  note_buffer(bytes.size() + converted.size() + scales.size() * sizeof(float));
  for (std::size_t row = 0; row < n; row += step) {
    const std::size_t rows = std::min(step, n - row), from = first_row + row;
    const std::size_t begin = from / block_rows * block_rows;
    const std::size_t end = std::min(ceil_div(from + rows, block_rows) * block_rows, all_rows);
    OCTAVO_CHECK(checkpoint_.read(tensor, begin * row_bytes,
                                  std::span(bytes).first((end - begin) * row_bytes)));
    const ConstMatrix piece{source, bytes.data(), end - begin, k, k};
    if (quantize) {
      const auto here = std::span(scales).subspan((begin / block_rows - first_block) * grid_cols,
                                                  ceil_div(end - begin, block_rows) * grid_cols);
      if (const auto bad = quantize_blocks(kernels::cast_kernels(), piece, recipe,
                                           {converted.data(), k}, here, false)) {
        return fail(
            ErrorCode::bad_model,
            fmt::format("{}: element [{}, {}] is {}, which has no scale",
                        where(checkpoint_, tensor), begin + bad->row, bad->col, bad->value));
      }
    } else if (packed != source) {
      kernels::cast_kernels().cast(
          {source, bytes.data(), packed, converted.data(), rows * k, Overflow::special});
    }
    const void* data = packed == source ? static_cast<const void*>(bytes.data())
                                        : converted.data() + (from - begin) * k;
    packer.add(row, {packed, data, rows, k, k}, context_);
    count(rows * row_bytes);
  }
  if (!quantize) return packer.finish({});
  return packer.finish(WeightScales(scales.data(), grid_cols, {block_rows, recipe.block.cols},
                                    first_row % block_rows, n)
                           .grid());
}

// Codes as they are, with their scales; as bf16 where they are to be dequantized.
Result<ops::PackedWeight> ParameterReader::codes(const CheckpointTensor& tensor,
                                                 const QuantizedWeight& weight, std::size_t n,
                                                 std::size_t k, std::size_t first_row) {
  OCTAVO_TRY(std::vector<float> scale, scales(weight));
  const BlockSize& block = weight.layout.block;
  const std::size_t grid_cols = weight.layout.grid_cols;
  if (weight.format == Format::e2m1fn) {
    return fail(ErrorCode::unsupported,
                where(checkpoint_, tensor) + ": FP4 weights are not run yet; `octavo dequantize`");
  }
  const WeightScales packed_scales(scale.data() + first_row / block.rows * grid_cols, grid_cols,
                                   block, first_row % block.rows, n);
  if (!options_.dequantize) {
    OCTAVO_CHECK(check_width(tensor, block, k));
    OCTAVO_TRY(std::optional<ops::PackedWeight> left,
               mapped(tensor, weight.format, n, k, first_row, packed_scales.grid()));
    if (left) return std::move(*left);
  }
  const Format packed = options_.dequantize ? Format::bf16 : weight.format;
  ops::WeightPacker packer(packed, n, k);
  const std::size_t step = std::min(piece_rows(k, 1), n);
  std::vector<std::byte> bytes(step * k);
  std::vector<std::uint16_t> wide(options_.dequantize ? step * k : 0);
  note_buffer(bytes.size() + 2 * wide.size() + scale.size() * sizeof(float));
  for (std::size_t row = 0; row < n; row += step) {
    const std::size_t rows = std::min(step, n - row), from = first_row + row;
    OCTAVO_CHECK(checkpoint_.read(tensor, from * k, std::span(bytes).first(rows * k)));
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    if (options_.dequantize) {
      const std::size_t first_block = from / block.rows;
      const std::size_t blocks = (from + rows - 1) / block.rows - first_block + 1;
      dequantize_blocks(kernels::cast_kernels(), {weight.format, data, k, from, 0, rows, k}, block,
                        std::span(scale).subspan(first_block * grid_cols, blocks * grid_cols),
                        {Format::bf16, wide.data(), k, false, false, nullptr});
    }
    packer.add(
        row,
        {packed, options_.dequantize ? static_cast<const void*>(wide.data()) : data, rows, k, k},
        context_);
    count(rows * k);
  }
  return packer.finish(options_.dequantize ? ops::ScaleGrid{} : packed_scales.grid());
}

Result<ops::PackedWeight> ParameterReader::weight(const std::string& name, std::size_t n,
                                                  std::size_t k, const RowRange* rows) {
  OCTAVO_TRY(const CheckpointTensor* tensor, find(name, {n, k}, rows));
  const std::size_t first_row = rows != nullptr ? rows->begin : 0;
  const std::size_t i = index(*tensor);
  if (pairing_.roles[i] == Pairing::Role::weight) {
    return codes(*tensor, pairing_.weights[pairing_.weight_of[i]], n, k, first_row);
  }
  if (!is_wide_float(tensor->info.dtype)) {
    return fail(ErrorCode::unsupported, where(checkpoint_, *tensor) +
                                            ": a weight in BF16, F16, F32 or FP8 with scales is "
                                            "expected");
  }
  const bool quantize = plan_ && plan_->tensors[i].action == Action::quantize;
  return wide(*tensor, n, k, first_row, quantize);
}

Result<float> ParameterReader::positive_number(const CheckpointTensor& tensor,
                                               std::string_view advice) {
  float value = 0;
  if (element_count(tensor.info.shape) != 1) {
    return fail(ErrorCode::bad_model,
                fmt::format("{}: one number is expected{}", where(checkpoint_, tensor), advice));
  }
  if (!is_wide_float(tensor.info.dtype)) {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: a number in F32, BF16 or F16 is expected{}",
                            where(checkpoint_, tensor), advice));
  }
  OCTAVO_CHECK(read_scales(checkpoint_, tensor, 0, std::span(&value, 1)));
  if (!(value > 0) || !std::isfinite(value)) {
    return fail(ErrorCode::bad_model, fmt::format("{}: {}, a positive number is expected{}",
                                                  where(checkpoint_, tensor), value, advice));
  }
  return value;
}

Result<nn::Linear> ParameterReader::linear(const std::string& module, std::size_t n, std::size_t k,
                                           bool bias, const RowRange* rows) {
  nn::Linear layer;
  OCTAVO_TRY(layer.weight, weight(module + ".weight", n, k, rows));
  if (bias) {
    OCTAVO_TRY(layer.bias, vector(module + ".bias", n, rows));
  }
  for (const char* suffix : {".activation_scale", ".input_scale"}) {
    const CheckpointTensor* tensor = checkpoint_.find(module + suffix);
    if (tensor == nullptr) continue;
    read_.insert(tensor->info.name);
    if (checkpoint_.quantization.activation_scheme == "dynamic") continue;
    OCTAVO_TRY(layer.activation_scale, positive_number(*tensor));
  }
  return layer;
}

std::vector<std::string> ParameterReader::unread() const {
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : checkpoint_.tensors) {
    if (!read_.contains(tensor.info.name)) names.push_back(tensor.info.name);
  }
  return names;
}

}  // namespace octavo::models
