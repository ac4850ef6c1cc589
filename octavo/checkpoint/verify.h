// Is this checkpoint whole and sound? Headers, index, config and scale values; on request every
// byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/pairing.h"

namespace octavo {

struct VerifyOptions {
  bool full = false;  // every byte of every tensor, not the scales alone
  int threads = 1;
  PairingOptions pairing;
  OpenOptions open;
  std::function<void(std::uint64_t done, std::uint64_t total)>
      on_progress;  // bytes of tensors; from any thread
};

// The elements of one tensor by kind. Of codes: saturated are those of the largest magnitude.
struct ElementCounts {
  std::uint64_t elements = 0;
  std::uint64_t nan = 0;
  std::uint64_t infinite = 0;
  std::uint64_t saturated = 0;
  std::uint64_t subnormal = 0;
  std::uint64_t zero = 0;  // -0 included
};

struct TensorHealth {
  std::string name;
  ElementCounts counts;
};

struct VerifyReport {
  Defects defects;
  Defects notes;
  std::size_t files = 0;
  std::size_t tensors = 0;
  std::uint64_t tensor_bytes = 0;
  std::size_t fp8_weights = 0;  // packed FP4 included
  std::size_t scales = 0;
  std::size_t unpaired = 0;
  double least_scale = std::numeric_limits<double>::infinity();  // of the finite ones
  double largest_scale = -std::numeric_limits<double>::infinity();
  std::vector<TensorHealth> health;  // quantized weights, with `full`
  ReadTotals read;                   // by this check
};

// io only where there is nothing at `path`; all else that is wrong is in the report. 8 MB per
// thread beside headers.
Result<VerifyReport> verify_checkpoint(const std::filesystem::path& path,
                                       const VerifyOptions& options);

}  // namespace octavo
