// What the parts of gemm share.
#pragma once

#include <cstddef>

#include "octavo/ops/gemm.h"

namespace octavo::ops {

// Throws ContractError that begins with `operation` and names the operand.
void check_operand(const char* operation, const char* name, const Operand& operand);

// The scales of an operand alone.
void check_scale(const char* operation, const char* name, const Operand& operand);

// The same for a weight that was packed: it is whole, not moved from, its sizes fit one another.
void check_packed(const char* operation, const PackedWeight& w);

// Throws ContractError if the context has no pool.
void check_context(const char* operation, const Context& context);

// Whether addresses reach the last of `lines` lines (at least 1) of `length` elements, `stride`
// apart. What passes can be padded and multiplied by an element's size without overflow.
bool is_addressable(std::size_t lines, std::size_t length, std::size_t stride, Format format);

// The level that OCTAVO_CPU or the machine gives; its error as ContractError.
Isa selected_level(const char* operation);

// The whole of `rows` as strips of a packed weight that begin at `packed`.
void pack_strips(const char* operation, const ConstMatrix& rows, bool transposed,
                 std::uint8_t* packed, const Context& context);

// Memory of at least `size` bytes that a thread keeps from call to call: grows and stays, its
// content does not.
inline std::uint8_t* grown(AlignedBytes& bytes, std::size_t size) {
  if (bytes.size() < size) bytes = AlignedBytes(size);
  return bytes.data();
}

// Scales of a weight by strip and block; the second form reuses the memory of `scales`.
PackedScales pack_scales(const Operand& w);
void pack_scales(const Operand& w, PackedScales& scales);

// The k that share one scale of a row: 0 for all of them.
std::size_t scale_width(const Operand& operand);

// Element (row, block) of a grid as f32.
float scale_at(const ScaleGrid& grid, std::size_t row, std::size_t block);

}  // namespace octavo::ops
