#include "octavo/autograd/rope.h"

#include <fmt/format.h>

#include <cmath>

#include "octavo/autograd/compute_internal.h"

namespace octavo {
namespace {

void check(const Shape& x, const RopeTables& tables) {
  const Shape& table = tables.cos.shape();
  bool fits = tables.sin.shape() == table && !table.empty() && x.size() >= table.size() + 1 &&
              2 * table.back() <= x.back();
  // Positions end where the heads begin.
  for (std::size_t i = 0; fits && i + 1 < table.size(); ++i) {
    fits = table[i] == x[x.size() - 2 - (table.size() - 1) + i];
  }
  if (!fits) {
    throw ContractError(fmt::format(
        "rope: given x {} and tables {} and {}, expected (..., length, heads, head_dim) and "
        "(..., length, half) with 2 * half <= head_dim",
        to_string(x), to_string(table), to_string(tables.sin.shape())));
  }
}

// Rotates by the angles, or back (`direction` -1), which is the gradient.
Tensor rotated(const Tensor& x, const RopeTables& tables, int direction) {
  return compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> from(x), cosines(tables.cos), sines(tables.sin);
    const std::size_t half = tables.cos.shape().back(), width = x.shape().back();
    const std::size_t heads = x.shape()[x.rank() - 2];
    const std::size_t rows = half == 0 ? 1 : tables.cos.size() / half;
    const std::size_t tokens = x.size() / std::max<std::size_t>(heads * width, 1);
    const T sign = static_cast<T>(direction);
    for_pieces(tokens, heads * width, [&](std::size_t token, std::size_t end) {
      for (; token < end; ++token) {
        const T* cos = cosines.data() + token % rows * half;
        const T* sin = sines.data() + token % rows * half;
        for (std::size_t head = token * heads; head < (token + 1) * heads; ++head) {
          const T* v = from.data() + head * width;
          T* y = to.data() + head * width;
          for (std::size_t i = 0; i < half; ++i) {
            const T s = sign * sin[i];
            y[i] = v[i] * cos[i] - v[i + half] * s;
            y[i + half] = v[i + half] * cos[i] + v[i] * s;
          }
          std::copy(v + 2 * half, v + width, y + 2 * half);
        }
      }
    });
  });
}

}  // namespace

std::vector<float> rope_frequencies(double theta, std::size_t width) {
  if (width == 0 || width % 2 != 0) {
    throw ContractError(
        fmt::format("rope_frequencies: given the width {}, expected an even one", width));
  }
  std::vector<float> frequencies(width / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(width);
    frequencies[i] = static_cast<float>(std::pow(theta, -exponent));
  }
  return frequencies;
}

RopeTables rope_tables(const Tensor& positions, std::span<const float> frequencies, float scaling) {
  if (positions.dtype() != DType::i32) {
    throw ContractError(fmt::format("rope_tables: given positions of {}, expected I32",
                                    dtype_name(positions.dtype())));
  }
  Shape shape = positions.shape();
  shape.push_back(frequencies.size());
  RopeTables tables{Tensor(DType::f32, shape), Tensor(DType::f32, shape)};
  float* cos = tables.cos.mutable_values<float>().data();
  float* sin = tables.sin.mutable_values<float>().data();
  for (const std::int32_t position : positions.values<std::int32_t>()) {
    for (const float frequency : frequencies) {
      const double angle = static_cast<float>(position) * frequency;
      *cos++ = static_cast<float>(std::cos(angle)) * scaling;
      *sin++ = static_cast<float>(std::sin(angle)) * scaling;
    }
  }
  return tables;
}

Variable rope(const Variable& x, const RopeTables& tables) {
  check(x.shape(), tables);
  return record(
      "rope", rotated(x.value(), tables, 1), std::span(&x, 1),
      [tables](const Tensor& g) -> std::vector<Cotangent> { return {rotated(g, tables, -1)}; });
}

}  // namespace octavo
