// Two checkpoints, tensor by tensor: the same bits, the same numbers, one rounding apart, or
// different.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/pairing.h"

namespace octavo {

// Worst first.
enum class Verdict : std::uint8_t {
  missing,       // only one of the checkpoints has it
  different,     // shapes differ, or an element does by more than `rounded` allows
  rounded,       // every element lies within half a step of the coarser of both formats there
                 // (docs/cli.md, "compare")
  equal_values,  // every element is the same number: NaN is NaN, -0 is 0
  equal_bits,    // dtype, shape, bytes, and dtype, layout and bytes of the scales
};
inline constexpr std::size_t kVerdictCount = 5;
std::string_view verdict_name(Verdict verdict);

// How one checkpoint stores a tensor. A complex tensor counts as pairs of reals: its shape has one
// more dimension, of 2.
struct StoredTensor {
  DType dtype;
  Shape shape;  // logical: two elements a byte where packed
  std::optional<DType> scale_dtype;
  BlockSize block;  // of the scales, where there are any
};

// a - b over the elements that are finite in both. All of it is finite, but for snr_db; what
// exceeds the largest double is the largest double.
struct Difference {
  std::uint64_t elements = 0;
  std::uint64_t differing = 0;   // elements that are not the same number
  std::uint64_t non_finite = 0;  // of these: NaN or infinite in a or b alone, or other infinities
  double max_abs = 0;
  double rms = 0;
  double snr_db = 0;  // sum(a^2) / sum((a - b)^2); infinity: no difference; -infinity: a is zero,
                      // or non_finite is not
  double cosine = 1;  // of two zero vectors 1, of one 0
};

struct WorstElement {  // of the largest |a - b|; the first that counts in `non_finite`, if any
  Shape index;
  double a;
  double b;
};

struct TensorComparison {
  std::string name;
  Verdict verdict;
  std::optional<StoredTensor> a;  // none: missing there
  std::optional<StoredTensor> b;
  std::optional<Difference> difference;  // where both are there, in one shape
  std::optional<WorstElement> worst;     // where elements differ
};

struct Comparison {
  std::vector<TensorComparison> tensors;              // worst first: by verdict, by SNR, by name
  std::array<std::uint64_t, kVerdictCount> counts{};  // by verdict
  std::uint64_t elements = 0;                         // that were compared
  Difference differing;                               // over the tensors that are not equal
  std::vector<std::string> warnings;
};

struct CompareOptions {
  int threads = 1;
  PairingOptions pairing;  // of both
  // Bytes read and to be read, of both; called from any thread. The total may grow.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;
};

// Tensors are matched by name. A quantized weight is the numbers it stands for, code x scale in
// f32; its scales are part of it. A weight whose scales do not fit (a problem of pair_scales) is
// compared as it is stored, scales apart, with a warning. Activation scales are left out where the
// other checkpoint has no quantized weights.
//
// Reads in bands, at most 16 MB per thread. The result does not depend on the number of threads.
Result<Comparison> compare_checkpoints(const Checkpoint& a, const Checkpoint& b,
                                       const CompareOptions& options);

}  // namespace octavo
