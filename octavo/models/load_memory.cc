// Where weights are while the model runs: in memory, or left in files that are mapped.
#include <fmt/format.h>

#include "octavo/base/machine.h"
#include "octavo/base/words.h"
#include "octavo/formats/traits.h"
#include "octavo/models/load_internal.h"
#include "octavo/ops/kv_cache.h"

namespace octavo::models {
namespace {

// Products take a weight from its file only where its elements are aligned.
bool is_aligned(const TensorInfo& info, std::size_t element_bytes) {
  return info.offset % element_bytes == 0;
}

// Of all tensors where products read them from memory: packed, and of that what cannot be left in
// the files.
struct Needed {
  std::uint64_t packed = 0, made = 0;
};

Needed needed_by(const Checkpoint& checkpoint, const Pairing& pairing, const ConversionPlan* plan,
                 bool dequantize) {
  Needed needed;
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const TensorInfo& info = checkpoint.tensors[i].info;
    const bool is_weight = pairing.roles[i] == Pairing::Role::weight;
    std::uint64_t bytes = info.bytes;
    if (is_weight && dequantize) {
      bytes *= 2;  // bf16
    } else if (plan != nullptr && plan->tensors[i].action == Action::quantize) {
      bytes = element_count(info.shape).value_or(info.bytes);  // a byte each
    } else if (info.dtype == DType::f16) {
      bytes *= 2;  // f32
    }
    needed.packed += bytes;
    const std::optional<Format> format = dtype_info(info.dtype).format;
    const bool left = bytes == info.bytes && info.shape.size() >= 2 &&
                      (!format || is_aligned(info, bytes_per_element(*format)));
    if (!left) needed.made += bytes;
  }
  return needed;
}

}  // namespace

Result<void> ParameterReader::place(const ModelConfig& config) {
  maps_ = options_.weights == WeightPlacement::mapped;
  if (options_.weights != WeightPlacement::automatic) return {};
  const std::uint64_t available =
      options_.available_bytes != 0 ? options_.available_bytes : available_memory();
  if (available == 0) return {};
  const Needed needed =
      needed_by(checkpoint_, pairing_, plan_ ? &*plan_ : nullptr, options_.dequantize);
  const std::uint64_t kv = ops::kv_cache_bytes(
      {config.num_hidden_layers, config.num_key_value_heads, config.head_dim,
       std::min(config.max_position_embeddings, kReservedTokens), options_.kv_cache});
  if (needed.packed + kv <= available) return {};
  if (needed.made > available) {
    return fail(ErrorCode::bad_value,
                fmt::format("{}: weights that cannot be left in their files (made while loading, "
                            "or at odd addresses) take {} of memory, {} are available: `octavo "
                            "quantize` or `octavo dequantize` writes files that fit; --weights "
                            "packed tries all the same",
                            checkpoint_.directory.string(), human_bytes(needed.made),
                            human_bytes(available)));
  }
  maps_ = true;
  placement_.packed_bytes = needed.packed;
  placement_.kv_bytes = kv;
  placement_.available_bytes = available;
  return {};
}

Result<std::optional<ops::PackedWeight>> ParameterReader::mapped(const CheckpointTensor& tensor,
                                                                 Format format, std::size_t n,
                                                                 std::size_t k,
                                                                 std::size_t first_row,
                                                                 const ops::ScaleGrid& scale) {
  const std::size_t element = bytes_per_element(format);
  if (!maps_ || n == 0 || !is_aligned(tensor.info, element)) return std::nullopt;
  mappings_.resize(checkpoint_.shards.size());
  std::optional<FileMapping>& mapping = mappings_[tensor.shard];
  if (!mapping) {
    OCTAVO_TRY(mapping, FileMapping::map(checkpoint_.shards[tensor.shard].file));
  }
  const std::byte* rows = mapping->bytes().data() + tensor.info.offset + first_row * k * element;
  const std::size_t bytes = n * k * element;
  placement_.mapped_weights++;
  placement_.mapped_bytes += bytes;
  count(bytes);
  return ops::unpacked_weight({{format, rows, n, k, k}, scale, false});
}

std::vector<FileMapping> ParameterReader::take_mappings() {
  std::vector<FileMapping> taken;
  for (std::optional<FileMapping>& mapping : mappings_) {
    if (mapping) taken.push_back(std::move(*mapping));
  }
  mappings_.clear();
  return taken;
}

}  // namespace octavo::models
