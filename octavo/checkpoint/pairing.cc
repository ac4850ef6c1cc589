#include "octavo/checkpoint/pairing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <expected>

#include "octavo/checkpoint/names.h"
#include "octavo/formats/convert.h"

namespace octavo {
namespace {

// What may follow the module of "<module>.weight", and the name of any other parameter.
constexpr std::array<std::string_view, 3> kModuleSuffixes = {".weight_scale_inv", ".weight_scale",
                                                             ".scale"};
constexpr std::array<std::string_view, 2> kParameterSuffixes = {"_scale_inv", "_scales_inv"};
constexpr std::array<std::string_view, 2> kActivationSuffixes = {".activation_scale",
                                                                 ".input_scale"};

std::string describe(const Checkpoint& checkpoint, const CheckpointTensor& tensor) {
  return fmt::format("{}: {} ({} {})",
                     (checkpoint.directory / checkpoint.shards[tensor.shard].file_name).string(),
                     tensor.info.name, dtype_name(tensor.info.dtype), to_string(tensor.info.shape));
}

template <class T>
using Checked = std::expected<T, Defect>;

// `more` follows the description of the tensor.
std::unexpected<Defect> refuse(DefectCode code, const Checkpoint& checkpoint,
                               const CheckpointTensor& tensor, std::string_view more) {
  return std::unexpected(
      make_defect(code, (checkpoint.directory / checkpoint.shards[tensor.shard].file_name).string(),
                  tensor.info.name, {}, describe(checkpoint, tensor) + ": " + std::string(more)));
}

std::vector<const CheckpointTensor*> find_scales(const Checkpoint& checkpoint,
                                                 std::string_view weight) {
  std::vector<const CheckpointTensor*> found;
  const auto look = [&](std::string_view base, auto suffixes) {
    for (const std::string_view suffix : suffixes) {
      if (const CheckpointTensor* tensor = checkpoint.find(fmt::format("{}{}", base, suffix)))
        found.push_back(tensor);
    }
  };
  if (weight.ends_with(kWeightSuffix)) {
    look(module_name(weight), kModuleSuffixes);
  } else {
    look(weight, kParameterSuffixes);
  }
  return found;
}

bool holds_scales(DType dtype) {
  return is_wide_float(dtype) || dtype == DType::f8_e8m0 || dtype == DType::u8;
}

// By its name it can only be a weight's scale. ".scale" alone is a norm's parameter too.
bool is_scale_name(const TensorInfo& tensor) {
  const std::string_view name = tensor.name;
  return name.ends_with(".weight_scale") || name.ends_with("_scale_inv") ||
         name.ends_with("_scales_inv") ||
         (name.ends_with(".scale") && tensor.dtype == DType::f8_e8m0);
}

Result<bool> same_scales(const Checkpoint& checkpoint, const CheckpointTensor& a,
                         const CheckpointTensor& b) {
  const std::uint64_t count = element_count(a.info.shape).value();
  if (count != element_count(b.info.shape).value()) return false;
  constexpr std::uint64_t kPart = 1 << 18;
  std::vector<float> left(std::min(count, kPart));
  std::vector<float> right(left.size());
  for (std::uint64_t at = 0; at < count; at += kPart) {
    const std::uint64_t part = std::min(kPart, count - at);
    OCTAVO_CHECK(read_scales(checkpoint, a, at, std::span(left).first(part)));
    OCTAVO_CHECK(read_scales(checkpoint, b, at, std::span(right).first(part)));
    if (std::memcmp(left.data(), right.data(), part * sizeof(float)) != 0) return false;
  }
  return true;
}

// What a tensor holds, seen with the scales that lie beside it: nullopt for a plain tensor.
struct Codes {
  Format format;
  Shape shape;
};

Checked<std::optional<Codes>> codes_of(const Checkpoint& checkpoint, const CheckpointTensor& tensor,
                                       const std::vector<const CheckpointTensor*>& scales,
                                       const PairingOptions& options) {
  const TensorInfo& info = tensor.info;
  if (is_scale_name(info)) return std::nullopt;  // also in FP8, as NVFP4 stores it
  if (is_fp8(info.dtype)) return Codes{*dtype_info(info.dtype).format, info.shape};
  if (scales.empty() || info.shape.size() < 2) return std::nullopt;
  if (info.dtype == DType::f4) return Codes{Format::e2m1fn, info.shape};
  if (info.dtype == DType::i8) {
    Shape shape = info.shape;
    shape.back() *= 2;
    const DType scale = scales.front()->info.dtype;
    if (scale == DType::f8_e8m0 || scale == DType::u8)
      return Codes{Format::e2m1fn, std::move(shape)};
    return refuse(
        DefectCode::unsupported_format, checkpoint, tensor,
        fmt::format(
            "I8 with {} scales is an integer format, not packed FP4 (which has E8M0 scales)",
            dtype_name(scale)));
  }
  if (info.dtype == DType::u8) {
    if (scales.front()->info.dtype == DType::f8_e4m3) {
      return refuse(DefectCode::unsupported_format, checkpoint, tensor,
                    "U8 with F8_E4M3 scales is NVFP4, which is not read");
    }
    if (options.u8_as_e4m3) return Codes{Format::e4m3fn, info.shape};
    return refuse(DefectCode::raw_bytes, checkpoint, tensor,
                  "U8 tensor with a block-scale sibling; looks like FP8 bytes: --u8-as-e4m3 reads "
                  "it as E4M3");
  }
  return std::nullopt;
}

Checked<std::optional<QuantizedWeight>> pair_weight(const Checkpoint& checkpoint, std::size_t index,
                                                    const PairingOptions& options) {
  const CheckpointTensor& tensor = checkpoint.tensors[index];
  const std::vector<const CheckpointTensor*> scales = find_scales(checkpoint, tensor.info.name);
  OCTAVO_TRY(const std::optional<Codes> codes, codes_of(checkpoint, tensor, scales, options));
  if (!codes) return std::nullopt;
  QuantizedWeight weight{index, codes->format, codes->shape, {}, {}};
  if (codes->shape.size() < 2) {
    return refuse(DefectCode::unsupported_format, checkpoint, tensor,
                  "codes in a tensor of rank below 2");
  }
  const Matrices matrices = as_matrices(codes->shape);
  if (scales.empty()) {
    if (!options.missing_scale_as_one) {
      return refuse(DefectCode::missing_scale, checkpoint, tensor,
                    "no scale for it (looked for .weight_scale_inv, .weight_scale, .scale, "
                    "_scale_inv); --missing-scale-as-one takes 1");
    }
    weight.layout = {
        {std::max<std::uint64_t>(1, matrices.rows), std::max<std::uint64_t>(1, matrices.cols)},
        1,
        1,
        1};
    return weight;
  }
  for (const CheckpointTensor* scale : scales) {
    if (!holds_scales(scale->info.dtype)) {
      return refuse(DefectCode::scale_dtype, checkpoint, *scale,
                    fmt::format("scales of dtype {} are not read (F32, F16, BF16, F8_E8M0, U8 are)",
                                dtype_name(scale->info.dtype)));
    }
  }
  for (std::size_t i = 1; i < scales.size(); ++i) {
    const Result<bool> same = same_scales(checkpoint, *scales[0], *scales[i]);
    if (!same) {
      const bool damaged = same.error().code == ErrorCode::bad_file;
      return refuse(damaged ? DefectCode::truncated : DefectCode::unreadable, checkpoint,
                    *scales[i], same.error().message);
    }
    if (!*same) {
      return refuse(DefectCode::scales_differ, checkpoint, tensor,
                    fmt::format("{} and {} are both there and differ", scales[0]->info.name,
                                scales[i]->info.name));
    }
  }
  const TensorInfo& scale = scales[0]->info;
  const bool exponents = scale.dtype == DType::f8_e8m0 || scale.dtype == DType::u8;
  // expert_dtype fp4: a group of 32 whatever the configured block says.
  std::optional<BlockSize> block =
      options.block ? options.block : checkpoint.quantization.weight_block_size;
  if (codes->format == Format::e2m1fn) block = BlockSize{1, 32};
  Result<ScaleLayout> layout = match_scale(codes->shape, scale.shape, block, exponents);
  if (!layout) {
    return refuse(DefectCode::scale_shape, checkpoint, tensor,
                  fmt::format("{}: {}; --weight-block-size gives the right one", scale.name,
                              layout.error().message));
  }
  weight.scale = static_cast<std::size_t>(scales[0] - checkpoint.tensors.data());
  weight.layout = *layout;
  return weight;
}

}  // namespace

std::string scale_name(std::string_view weight) {
  return fmt::format("{}_scale_inv", weight);  // both cases of the rule are the same suffix
}

std::size_t count_quantized(const Pairing& pairing) {
  return pairing.weights.size() + pairing.refused_weights + pairing.unpaired_weights;
}

std::size_t count_scales(const Pairing& pairing) {
  return static_cast<std::size_t>(std::ranges::count(pairing.roles, Pairing::Role::scale)) +
         pairing.unpaired_scales;
}

Result<void> read_scales(const Checkpoint& checkpoint, const CheckpointTensor& scale,
                         std::uint64_t first, std::span<float> to) {
  if (!holds_scales(scale.info.dtype)) {
    const std::filesystem::path& file = checkpoint.shards[scale.shard].file_name;
    return fail(ErrorCode::unsupported,
                fmt::format("{}: {} ({}): scales in F32, F16, BF16, F8_E8M0 or U8 are expected",
                            (checkpoint.directory / file).string(), scale.info.name,
                            dtype_name(scale.info.dtype)));
  }
  const auto bytes = static_cast<std::uint64_t>(dtype_bits(scale.info.dtype)) / 8;
  // The narrow values are read into the end of `to` and widened from the front.
  const std::span<std::byte> all = std::as_writable_bytes(to);
  const std::span<std::byte> raw = all.last(to.size() * bytes);
  OCTAVO_CHECK(checkpoint.read(scale, first * bytes, raw));
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, raw.data() + i * bytes, bytes);
    switch (scale.info.dtype) {
      case DType::f32:
        to[i] = std::bit_cast<float>(bits);
        break;
      case DType::bf16:
        to[i] = decode<Format::bf16>(static_cast<std::uint16_t>(bits));
        break;
      case DType::f16:
        to[i] = decode<Format::f16>(static_cast<std::uint16_t>(bits));
        break;
      default:
        to[i] = ue8m0_value(static_cast<std::uint8_t>(bits));
        break;
    }
  }
  return {};
}

Pairing pair_scales(const Checkpoint& checkpoint, const PairingOptions& options) {
  using Role = Pairing::Role;
  Pairing pairing;
  pairing.roles.assign(checkpoint.tensors.size(), Role::plain);
  pairing.weight_of.assign(checkpoint.tensors.size(), 0);
  const auto mark = [&](const CheckpointTensor* tensor, Role role) {
    if (tensor != nullptr)
      pairing.roles[static_cast<std::size_t>(tensor - checkpoint.tensors.data())] = role;
  };
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const std::string& name = checkpoint.tensors[i].info.name;
    Checked<std::optional<QuantizedWeight>> weight = pair_weight(checkpoint, i, options);
    if (!weight) {
      ++(find_scales(checkpoint, name).empty() ? pairing.unpaired_weights
                                               : pairing.refused_weights);
      pairing.problems.push_back(std::move(weight).error());
      // Its scales are accounted for: they are not reported a second time.
      for (const CheckpointTensor* scale : find_scales(checkpoint, name)) mark(scale, Role::scale);
      continue;
    }
    if (!*weight) continue;
    pairing.roles[i] = Role::weight;
    pairing.weight_of[i] = pairing.weights.size();
    pairing.weights.push_back(std::move(**weight));
    for (const CheckpointTensor* scale : find_scales(checkpoint, name)) mark(scale, Role::scale);
    for (const std::string_view suffix : kActivationSuffixes) {
      mark(checkpoint.find(fmt::format("{}{}", module_name(name), suffix)), Role::activation_scale);
    }
    mark(checkpoint.find(name + "_activation_scale"), Role::activation_scale);
  }
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const CheckpointTensor& tensor = checkpoint.tensors[i];
    if (pairing.roles[i] != Role::plain || !is_scale_name(tensor.info)) continue;
    ++pairing.unpaired_scales;
    pairing.problems.push_back(refuse(DefectCode::unused_scale, checkpoint, tensor,
                                      "a scale, but no quantized weight for it")
                                   .error());
  }
  return pairing;
}

}  // namespace octavo
