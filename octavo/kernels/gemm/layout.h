// Where an element lies in the packed layouts of gemm.h. For scalar code and tests;
// instruction-set files have these numbers in their shuffles.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "octavo/base/ceil_div.h"
#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels {

// Element i of memory that holds Ts, whatever types it was written as.
template <class T>
T element(const void* memory, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(memory) + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void set_element(void* memory, std::size_t i, T value) {
  std::memcpy(static_cast<char*>(memory) + i * sizeof(T), &value, sizeof(T));
}

constexpr std::size_t strips(std::size_t n) { return ceil_div(n, kStrip); }

// In elements, of a weight whose K is rounded up to pairs = ceil(K / 2).
template <std::size_t element_bytes>
constexpr std::size_t packed_weight_offset(std::size_t n, std::size_t k, std::size_t pairs) {
  const std::size_t tile = (n / kStrip * pairs + k / 2) * 2 * kStrip, i = n % kStrip;
  if constexpr (element_bytes == 1) {
    return tile + 16 * (i % 16 / 4) + 8 * (i / 16) + 2 * (i % 4) + k % 2;
  } else if constexpr (element_bytes == 2) {
    return tile + 2 * i + k % 2;
  } else {
    return tile + kStrip * (k % 2) + i;
  }
}

// body(std::integral_constant<std::size_t, bytes>) for elements of 1, 2 or 4 bytes.
template <class Body>
constexpr auto for_element_bytes(std::size_t bytes, const Body& body) {
  switch (bytes) {
    case 1:
      return body(std::integral_constant<std::size_t, 1>());
    case 2:
      return body(std::integral_constant<std::size_t, 2>());
    default:
      return body(std::integral_constant<std::size_t, 4>());
  }
}

// Of 4-byte cells: of row m and k (Arithmetic::fma), or of row m and the pair k / 2 (dot).
constexpr std::size_t packed_activation_cell(Arithmetic arithmetic, std::size_t m, std::size_t k,
                                             std::size_t rows, std::size_t panel_rows) {
  const std::size_t cells = arithmetic == Arithmetic::fma ? kChunk : kChunk / 2;
  const std::size_t panel = k / kChunk * ceil_div(rows, panel_rows) + m / panel_rows;
  const std::size_t cell = arithmetic == Arithmetic::fma ? k % kChunk : k % kChunk / 2;
  return (panel * cells + cell) * panel_rows + m % panel_rows;
}

}  // namespace octavo::kernels
