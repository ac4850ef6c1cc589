#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/tensor/dtype.h"

namespace octavo {

// Sizes of the axes, from the outermost; that of a scalar is empty.
using Shape = std::vector<std::uint64_t>;

std::optional<std::uint64_t> element_count(const Shape& shape);  // nullopt: beyond 2^63
std::string to_string(const Shape& shape);                       // "[576, 7168]", "[]"

// Where element `index` of a row-major tensor stands; index < element_count.
Shape unravel(std::uint64_t index, const Shape& shape);

// Bytes of a tensor. nullopt: overflow, or sub-byte elements that do not fill whole bytes.
std::optional<std::uint64_t> byte_count(DType dtype, const Shape& shape);

// A weight of rank >= 2 as `slices` matrices of (rows, cols): leading dimensions are batch
// (experts). ContractError: a lower rank.
struct Matrices {
  std::uint64_t slices;
  std::uint64_t rows;
  std::uint64_t cols;
};
Matrices as_matrices(const Shape& shape);

}  // namespace octavo
