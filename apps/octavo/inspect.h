// What `inspect` finds, and the ways it is printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/config_check.h"
#include "octavo/checkpoint/pairing.h"
#include "octavo/checkpoint/skip_list_check.h"
#include "octavo/checkpoint/tensor_parallel.h"

namespace octavo::app {

struct Inspection {
  Checkpoint checkpoint;
  Pairing pairing;
  SkipListCheck skip_list;
  std::vector<ConfigFact> facts;
  std::vector<std::string> problems;  // what a conversion would stop at, and an unreadable list
  std::optional<TensorParallelPlan> tensor_parallel;
};

// "F8_E4M3", "I8 (FP4x2)".
std::string format_of(const Inspection& inspection, std::size_t tensor);
std::string_view role_of(const Inspection& inspection, std::size_t tensor);

struct DTypeTotal {
  std::string name;
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
};
std::vector<DTypeTotal> dtype_totals(const Inspection& inspection);  // by name

// Rows and columns of the last block, at the matrix's edges.
BlockSize edge_block(const QuantizedWeight& weight);

// `all`: one row for each tensor, every entry of a list.
void print_inspection(const Inspection& inspection, bool all);
void print_tensor_parallel(const Inspection& inspection, bool all);
void print_inspection_json(const Inspection& inspection);

}  // namespace octavo::app
