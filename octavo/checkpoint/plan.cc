#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "octavo/checkpoint/plan_internal.h"

namespace octavo {
namespace {

// Their FP8 weights are ours to read; where none is found, the weights are wide.
constexpr std::array<std::string_view, 6> kMethods = {
    "", "fp8", "mxfp8", "modelopt", "fbgemm_fp8", "compressed-tensors"};

// Tensors that only packed integer formats have.
constexpr std::array<std::string_view, 3> kPacked = {".qweight", ".weight_packed", ".qzeros"};

}  // namespace

Result<void> check_quant_method(const Checkpoint& checkpoint, const Pairing& pairing) {
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    for (const std::string_view ending : kPacked) {
      if (!tensor.info.name.ends_with(ending)) continue;
      return fail(
          ErrorCode::unsupported,
          fmt::format("{}: {} holds packed integers; FP8, packed FP4 and wide floats are read",
                      checkpoint.directory.string(), tensor.info.name));
    }
  }
  const std::string& method = checkpoint.quantization.quant_method;
  if (!checkpoint.quantization.present || !pairing.weights.empty() ||
      std::ranges::find(kMethods, method) != kMethods.end()) {
    return {};
  }
  return fail(
      ErrorCode::unsupported,
      fmt::format(
          "{}: its config says quant_method \"{}\", which is not read (fp8, mxfp8, modelopt "
          "and compressed-tensors with FP8 weights are)",
          checkpoint.directory.string(), method));
}

void leave_out_stale_files(const Checkpoint& checkpoint, ConversionPlan& plan) {
  constexpr std::string_view kName = "hf_quant_config.json";
  if (std::ranges::find(checkpoint.side_files, kName) != checkpoint.side_files.end()) {
    plan.dropped_files.emplace_back(kName);
  }
}

}  // namespace octavo
