#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "octavo/base/parallel.h"
#include "octavo/checkpoint/verify_internal.h"

namespace octavo {
namespace {

constexpr std::uint64_t kPart = 1 << 18;  // scales at a time

struct Fault {
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // element
  float value = 0;
};

constexpr std::array kFaults = {DefectCode::scale_nan, DefectCode::scale_infinite,
                                DefectCode::scale_zero, DefectCode::scale_negative,
                                DefectCode::scale_not_power_of_two};

struct ScaleResult {
  double least = std::numeric_limits<double>::infinity();
  double largest = -std::numeric_limits<double>::infinity();
  std::array<Fault, kFaults.size()> faults;
  std::optional<Error> failure;
};

// Index into kFaults, or nullopt for a scale as it should be.
std::optional<std::size_t> fault_of(float scale, bool powers_of_two) {
  if (std::isnan(scale)) return 0;
  if (std::isinf(scale)) return 1;
  if (scale == 0) return 2;
  if (scale < 0) return 3;
  int exponent = 0;
  if (powers_of_two && std::frexp(scale, &exponent) != 0.5f) return 4;
  return std::nullopt;
}

ScaleResult look_at(const Checkpoint& checkpoint, const CheckpointTensor& tensor,
                    bool powers_of_two, std::vector<float>& buffer) {
  ScaleResult result;
  const auto element_bytes = static_cast<std::uint64_t>(dtype_bits(tensor.info.dtype)) / 8;
  const std::uint64_t count = bytes_there(checkpoint, tensor) / element_bytes;
  for (std::uint64_t at = 0; at < count; at += kPart) {
    buffer.resize(std::min(kPart, count - at));
    if (const Result<void> got = read_scales(checkpoint, tensor, at, buffer); !got) {
      result.failure = got.error();
      return result;
    }
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      const float scale = buffer[i];
      if (const auto kind = fault_of(scale, powers_of_two)) {
        Fault& fault = result.faults[*kind];
        if (fault.count++ == 0) fault = {1, at + i, scale};
      }
      if (!std::isfinite(scale)) continue;
      result.least = std::min<double>(result.least, scale);
      result.largest = std::max<double>(result.largest, scale);
    }
  }
  return result;
}

void report_faults(const Checkpoint& checkpoint, const CheckpointTensor& tensor,
                   const ScaleResult& result, Defects& defects) {
  if (result.failure) {
    defects.push_back(read_defect(checkpoint, tensor, *result.failure));
    return;
  }
  const auto element_bytes = static_cast<std::uint64_t>(dtype_bits(tensor.info.dtype)) / 8;
  for (std::size_t i = 0; i < kFaults.size(); ++i) {
    const Fault& fault = result.faults[i];
    if (fault.count == 0) continue;
    const std::uint64_t offset = tensor.info.offset + fault.first * element_bytes;
    const std::string file = file_of(checkpoint, tensor);
    defects.push_back(make_defect(
        kFaults[i], file, tensor.info.name, offset,
        fmt::format("{}: {}: {} ({} of them), first {} at {}, offset {}", file, tensor.info.name,
                    defect_info(kFaults[i]).meaning, fault.count, fault.value,
                    to_string(unravel(fault.first, tensor.info.shape)), offset)));
  }
}

}  // namespace

bool holds_scale_values(const Checkpoint& checkpoint, const Pairing& pairing, std::size_t tensor) {
  const DType dtype = checkpoint.tensors[tensor].info.dtype;
  const Pairing::Role role = pairing.roles[tensor];
  return (role == Pairing::Role::scale || role == Pairing::Role::activation_scale) &&
         (is_wide_float(dtype) || dtype == DType::f8_e8m0 || dtype == DType::u8);
}

void verify_scales(const Checkpoint& checkpoint, const Pairing& pairing, int threads,
                   VerifyReport& report) {
  using Role = Pairing::Role;
  std::vector<std::size_t> scales;
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    if (holds_scale_values(checkpoint, pairing, i)) scales.push_back(i);
  }
  const bool powers_of_two = checkpoint.quantization.scale_fmt == "ue8m0";
  std::vector<ScaleResult> results(scales.size());
  std::vector<std::vector<float>> buffers(static_cast<std::size_t>(threads));
  const auto look = [&](int worker, std::size_t i) -> Result<void> {
    results[i] = look_at(checkpoint, checkpoint.tensors[scales[i]],
                         powers_of_two && pairing.roles[scales[i]] == Role::scale,
                         buffers[static_cast<std::size_t>(worker)]);
    return {};
  };
  parallel_for(scales.size(), threads, look).value();  // `look` never fails
  for (std::size_t i = 0; i < scales.size(); ++i) {
    report.least_scale = std::min(report.least_scale, results[i].least);
    report.largest_scale = std::max(report.largest_scale, results[i].largest);
    report_faults(checkpoint, checkpoint.tensors[scales[i]], results[i], report.defects);
  }
}

}  // namespace octavo
