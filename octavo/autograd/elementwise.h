// Operations on elements. Operands broadcast as numpy's; two types promote as JAX's: f32 and bf16
// to f32. f32, bf16 and f16 are computed in f32 and rounded once, f64 in f64.
// ContractError: shapes that do not broadcast, a result of another type.
#pragma once

#include "octavo/autograd/variable.h"

namespace octavo {

// x.astype(dtype), as Tensor::astype; the gradient is cast back.
Variable cast(const Variable& x, DType dtype);

// a + b, a - b and a * b (jax.numpy).
Variable add(const Variable& a, const Variable& b);
Variable sub(const Variable& a, const Variable& b);
Variable mul(const Variable& a, const Variable& b);
// x * factor, in the type of x: the factor is rounded to f32, of f64 it is not.
Variable scale(const Variable& x, double factor);

// add, sub and mul.
inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return mul(a, b); }

// jax.nn.relu and jax.nn.silu: shape and type of x.
Variable relu(const Variable& x);  // max(x, 0); the gradient at 0 is 0
Variable silu(const Variable& x);  // x / (1 + exp(-x))

// jax.nn.gelu (Hendrycks and Gimpel, 2016): shape and type of x.
enum class Gelu : std::uint8_t {
  tanh,  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): jax.nn.gelu's default
  erf,   // x / 2 (1 + erf(x / sqrt(2)))
};
Variable gelu(const Variable& x, Gelu kind = Gelu::tanh);

}  // namespace octavo
