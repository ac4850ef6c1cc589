#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "octavo/base/parallel.h"
#include "octavo/checkpoint/verify_internal.h"
#include "octavo/formats/traits.h"

namespace octavo {
namespace {

constexpr std::uint64_t kPartBytes = 8 << 20;  // a whole number of elements of any type

// A stretch of a tensor.
struct Part {
  std::size_t tensor;
  std::uint64_t offset;
  std::uint64_t bytes;
};

struct PartResult {
  ElementCounts counts;
  std::uint64_t first_nan = 0;  // byte of the part, then of the tensor
  std::uint64_t first_infinite = 0;
  bool all_zero = true;
  std::optional<Error> failure;
};

enum class Kind : std::uint8_t { number, nan, infinite, saturated, subnormal, zero };

Kind kind_of(Format format, std::uint32_t code) {
  const FormatTraits& t = traits(format);
  if (t.is_nan(code)) return Kind::nan;
  if (t.is_infinite(code)) return Kind::infinite;
  if (!t.has_sign()) return Kind::number;  // e8m0fnu: every other code is a power of two
  const std::uint32_t magnitude = code & t.magnitude_bits();
  if (magnitude == 0) return Kind::zero;
  if (magnitude == t.largest_code) return Kind::saturated;
  return magnitude >> t.mantissa_bits == 0 ? Kind::subnormal : Kind::number;
}

void add(ElementCounts& counts, Kind kind, std::uint64_t count) {
  counts.elements += count;
  switch (kind) {
    case Kind::number:
      break;
    case Kind::nan:
      counts.nan += count;
      break;
    case Kind::infinite:
      counts.infinite += count;
      break;
    case Kind::saturated:
      counts.saturated += count;
      break;
    case Kind::subnormal:
      counts.subnormal += count;
      break;
    case Kind::zero:
      counts.zero += count;
      break;
  }
}

// How often each byte stands there. Four tables, so that equal neighbours do not wait for each
// other.
std::array<std::uint64_t, 256> histogram(std::span<const std::byte> bytes) {
  std::array<std::array<std::uint32_t, 256>, 4> tables{};
  std::size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4) {
    for (std::size_t lane = 0; lane < 4; ++lane)
      ++tables[lane][std::to_integer<std::size_t>(bytes[i + lane])];
  }
  for (; i < bytes.size(); ++i) ++tables[0][std::to_integer<std::size_t>(bytes[i])];
  std::array<std::uint64_t, 256> sum{};
  for (const auto& table : tables) {
    for (std::size_t code = 0; code < 256; ++code) sum[code] += table[code];
  }
  return sum;
}

// Codes of one byte, or two packed FP4 codes a byte.
PartResult look_at_codes(Format format, std::span<const std::byte> bytes) {
  PartResult result;
  const bool packed = format == Format::e2m1fn;
  const std::array<std::uint64_t, 256> counts = histogram(bytes);
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    if (counts[byte] == 0) continue;
    result.all_zero = result.all_zero && byte == 0;
    if (packed) {
      add(result.counts, kind_of(format, byte & 0xF), counts[byte]);
      add(result.counts, kind_of(format, byte >> 4), counts[byte]);
    } else {
      add(result.counts, kind_of(format, byte), counts[byte]);
    }
  }
  const auto first = [&](Kind kind) {
    const auto found = std::ranges::find_if(bytes, [&](std::byte b) {
      return kind_of(format, std::to_integer<std::uint32_t>(b)) == kind;
    });
    return static_cast<std::uint64_t>(found - bytes.begin());
  };
  if (result.counts.nan > 0) result.first_nan = first(Kind::nan);
  if (result.counts.infinite > 0) result.first_infinite = first(Kind::infinite);
  return result;
}

// IEEE floats of unsigned type U whose exponent field is `exponent`, `lanes` of them an element.
template <class U>
PartResult look_at_floats(std::span<const std::byte> bytes, U exponent, std::size_t lanes = 1) {
  PartResult result;
  const auto magnitude = static_cast<U>(static_cast<U>(~U{0}) >> 1);
  const std::size_t count = bytes.size() / (lanes * sizeof(U)) * lanes;
  std::uint64_t special = 0;
  U any = 0;
  for (std::size_t i = 0; i < count; ++i) {
    U bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(U), sizeof(U));
    any |= bits;
    special += (bits & exponent) == exponent ? 1 : 0;
  }
  result.counts.elements = count / lanes;
  result.all_zero = any == 0;
  for (std::size_t i = 0; special > 0 && i < count; ++i) {
    U bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(U), sizeof(U));
    if ((bits & exponent) != exponent) continue;
    --special;
    const bool nan = (bits & magnitude) != exponent;
    std::uint64_t& seen = nan ? result.counts.nan : result.counts.infinite;
    if (seen++ == 0) (nan ? result.first_nan : result.first_infinite) = i * sizeof(U);
  }
  return result;
}

PartResult look_at(DType dtype, std::optional<Format> codes, std::span<const std::byte> bytes) {
  if (codes) return look_at_codes(*codes, bytes);
  switch (dtype) {
    case DType::bf16:
      return look_at_floats<std::uint16_t>(bytes, 0x7F80);
    case DType::f16:
      return look_at_floats<std::uint16_t>(bytes, 0x7C00);
    case DType::f32:
      return look_at_floats<std::uint32_t>(bytes, 0x7F800000);
    case DType::c64:
      return look_at_floats<std::uint32_t>(bytes, 0x7F800000, 2);
    case DType::f64:
      return look_at_floats<std::uint64_t>(bytes, 0x7FF0000000000000);
    default:
      break;
  }
  PartResult result;  // integers have no bad values: reading them was the check
  result.all_zero = false;
  return result;
}

// Stretches of all tensors but scales, as far as their files go.
std::vector<Part> parts_of(const Checkpoint& checkpoint, const Pairing& pairing) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    if (holds_scale_values(checkpoint, pairing, i)) continue;
    const std::uint64_t bytes = bytes_there(checkpoint, checkpoint.tensors[i]);
    for (std::uint64_t at = 0; at < bytes; at += kPartBytes)
      parts.push_back({i, at, std::min(kPartBytes, bytes - at)});
  }
  return parts;
}

// What a tensor holds, seen with its scales.
std::optional<Format> codes_of(const Checkpoint& checkpoint, const Pairing& pairing,
                               std::size_t tensor) {
  if (pairing.roles[tensor] == Pairing::Role::weight)
    return pairing.weights[pairing.weight_of[tensor]].format;
  const DType dtype = checkpoint.tensors[tensor].info.dtype;
  return is_fp8(dtype) || dtype == DType::f8_e8m0 ? dtype_info(dtype).format : std::nullopt;
}

void report_tensor(const Checkpoint& checkpoint, const Pairing& pairing, std::size_t index,
                   const PartResult& sum, VerifyReport& report) {
  using enum DefectCode;
  const CheckpointTensor& tensor = checkpoint.tensors[index];
  const std::optional<Format> codes = codes_of(checkpoint, pairing, index);
  const std::string file = file_of(checkpoint, tensor);
  const auto element_bits = static_cast<std::uint64_t>(dtype_bits(tensor.info.dtype));
  const auto report_kind = [&](DefectCode code, std::uint64_t count, std::uint64_t first) {
    if (count == 0) return;
    const std::uint64_t offset = tensor.info.offset + first;
    report.defects.push_back(make_defect(
        code, file, tensor.info.name, offset,
        fmt::format("{}: {}: {} of {} elements are {}, first at {}, offset {}", file,
                    tensor.info.name, count, sum.counts.elements,
                    code == infinite_value ? "infinite"
                    : code == nan_code     ? "NaN codes"
                                           : "NaN",
                    to_string(unravel(first * 8 / element_bits, tensor.info.shape)), offset)));
  };
  report_kind(codes ? nan_code : nan_value, sum.counts.nan, sum.first_nan);
  report_kind(infinite_value, sum.counts.infinite, sum.first_infinite);
  if (sum.all_zero && tensor.info.shape.size() >= 2 && sum.counts.elements > 0) {
    report.notes.push_back(
        make_defect(all_zero, file, tensor.info.name, tensor.info.offset,
                    fmt::format("{}: {}: all {} elements are zero; a download that was cut and "
                                "filled up looks like this",
                                file, tensor.info.name, sum.counts.elements)));
  }
  const bool quantized = pairing.roles[index] == Pairing::Role::weight || is_fp8(tensor.info.dtype);
  if (quantized) report.health.push_back({tensor.info.name, sum.counts});
}

// `part` begins `before` bytes into the tensor.
void merge(PartResult& sum, const PartResult& part, std::uint64_t before) {
  if (!sum.failure) sum.failure = part.failure;
  if (part.counts.nan > 0 && sum.counts.nan == 0) sum.first_nan = before + part.first_nan;
  if (part.counts.infinite > 0 && sum.counts.infinite == 0)
    sum.first_infinite = before + part.first_infinite;
  sum.counts.elements += part.counts.elements;
  sum.counts.nan += part.counts.nan;
  sum.counts.infinite += part.counts.infinite;
  sum.counts.saturated += part.counts.saturated;
  sum.counts.subnormal += part.counts.subnormal;
  sum.counts.zero += part.counts.zero;
  sum.all_zero = sum.all_zero && part.all_zero;
}

}  // namespace

void verify_elements(const Checkpoint& checkpoint, const Pairing& pairing,
                     const VerifyOptions& options, VerifyReport& report) {
  const std::vector<Part> parts = parts_of(checkpoint, pairing);
  std::uint64_t total = 0;
  for (const Part& part : parts) total += part.bytes;
  std::vector<PartResult> results(parts.size());
  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(options.threads));
  std::atomic<std::uint64_t> done = 0;
  const auto look = [&](int worker, std::size_t i) -> Result<void> {
    const Part& part = parts[i];
    const CheckpointTensor& tensor = checkpoint.tensors[part.tensor];
    std::vector<std::byte>& buffer = buffers[static_cast<std::size_t>(worker)];
    buffer.resize(part.bytes);
    // One bad file does not keep the others from being looked at.
    if (const Result<void> got = checkpoint.read(tensor, part.offset, buffer); got) {
      results[i] = look_at(tensor.info.dtype, codes_of(checkpoint, pairing, part.tensor), buffer);
    } else {
      results[i].failure = got.error();
    }
    const std::uint64_t now = done.fetch_add(part.bytes) + part.bytes;
    if (options.on_progress) options.on_progress(now, total);
    return {};
  };
  parallel_for(parts.size(), options.threads, look).value();  // `look` never fails
  std::vector<bool> failed(checkpoint.shards.size());         // one defect a file is enough
  for (std::size_t i = 0; i < parts.size();) {
    const std::size_t index = parts[i].tensor;
    const CheckpointTensor& tensor = checkpoint.tensors[index];
    PartResult sum;
    for (; i < parts.size() && parts[i].tensor == index; ++i)
      merge(sum, results[i], parts[i].offset);
    if (!sum.failure) {
      report_tensor(checkpoint, pairing, index, sum, report);
    } else if (!failed[tensor.shard]) {
      failed[tensor.shard] = true;
      report.defects.push_back(read_defect(checkpoint, tensor, *sum.failure));
    }
  }
}

}  // namespace octavo
