// Which tensor-parallel degrees a model can be split into, by its names, shapes, heads and blocks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/pairing.h"

namespace octavo {

inline constexpr std::uint64_t kMaxListedDegree = 64;

enum class Split : std::uint8_t {
  replicated,  // whole on every device
  column,      // output features: rows of the stored matrix
  row,         // input features: columns of the stored matrix
  vocabulary,  // embeddings and head, padded where the vocabulary does not divide
  unknown,     // no rule for the name: taken as replicated
};

enum class SplitVerdict : std::uint8_t {
  works,
  does_not_divide,  // heads or features: refused
  blocks_cut,       // it divides, but a shard ends within a block of scales
};

// A weight for one degree.
struct SplitResult {
  SplitVerdict verdict = SplitVerdict::works;
  std::uint64_t shard = 0;  // features of one device, of the part that decides
  std::string reason;       // of what does not work: "768 / 4 = 192 is no multiple of 128"
};

struct SplitRow {
  std::size_t tensor;  // index into Checkpoint::tensors
  Split split;
  bool expert;          // inside one of many experts
  std::uint64_t block;  // along the features that are split; 0: no scale changes along them
  std::vector<SplitResult> results;  // by degree
};

struct TensorParallelPlan {
  std::vector<std::uint64_t> degrees;
  std::vector<SplitRow> rows;  // weights of rank 2 and more, in the order of Checkpoint::tensors
  // Degrees up to kMaxListedDegree that work for every weight; and those that only cut blocks.
  std::vector<std::uint64_t> working;
  std::vector<std::uint64_t> cutting;
  std::vector<std::string> notes;
};

// `degrees` are 1 or more. Shapes and the config alone; nothing is read.
TensorParallelPlan plan_tensor_parallel(const Checkpoint& checkpoint, const Pairing& pairing,
                                        std::span<const std::uint64_t> degrees);

std::string_view to_string(Split split);           // "column"
std::string_view to_string(SplitVerdict verdict);  // "works", "does not divide", "blocks cut"

}  // namespace octavo
