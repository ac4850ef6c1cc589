// Products of two operands by equation, as jax.numpy.einsum: "mk,kn->mn".
#pragma once

#include <string_view>

#include "octavo/autograd/dot_general.h"

namespace octavo {

// Elements of x with equal indices on both axes; `other` disappears. x: f32, bf16, f16 or f64.
// ContractError: axes that are not there, of different sizes, or one and the same; another type.
Variable diagonal(const Variable& x, std::size_t axis, std::size_t other);

// The shapes of an equation with its operands. ContractError: as einsum.
struct EinsumShapes {
  Shape result;
  // Per axis of the result: the size of rhs's axis of that letter, 1 where it has none.
  Shape result_of_rhs;
  // The same without the axes that rhs lacks: of a bias of the kernel rhs.
  Shape rhs_in_result;
};
EinsumShapes einsum_shapes(std::string_view equation, const Shape& lhs, const Shape& rhs);

// Whether jax.numpy.einsum multiplies rhs by lhs: where the result's axes are not those of the
// batch, then those of lhs alone, then those of rhs alone. Flax's FP8 state of lhs is then that of
// "kernel" (import_flax_state).
bool is_exchanged_by_jax(std::string_view equation, const Shape& lhs, const Shape& rhs);

// The equation: letters name axes, "..." stands for the remaining ones, which are matched from the
// last; without "->" the result has the axes of "...", then the letters that occur once, sorted.
// Spaces do not count. In this order: an axis of size 1 that meets a larger one is dropped; a
// letter that one operand repeats is its diagonal; letters in one operand alone, and not in the
// result, are summed over; `inner` multiplies what remains, always lhs first, so that the scales of
// an FP8 product belong to the same operand whatever the equation (JAX exchanges those of some).
// Without `inner` dot_general multiplies; types and gradients are those of the product.
// ContractError: an equation that is none, or does not fit the operands.
Variable einsum(std::string_view equation, const Variable& lhs, const Variable& rhs,
                const DotGeneral& inner);
Variable einsum(std::string_view equation, const Variable& lhs, const Variable& rhs);

}  // namespace octavo
