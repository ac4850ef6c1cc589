#include "octavo/tensor/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "octavo/base/error.h"

namespace octavo {

std::optional<std::uint64_t> element_count(const Shape& shape) {
  std::uint64_t count = 1;
  bool empty = false;
  for (const std::uint64_t extent : shape) {
    if (extent == 0) empty = true;
  }
  if (empty) return 0;
  for (const std::uint64_t extent : shape) {
    if (__builtin_mul_overflow(count, extent, &count) || count > (std::uint64_t{1} << 63))
      return std::nullopt;
  }
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Shape unravel(std::uint64_t index, const Shape& shape) {
  Shape position(shape.size());
  for (std::size_t i = shape.size(); i-- > 0;) {
    position[i] = index % shape[i];
    index /= shape[i];
  }
  return position;
}

std::optional<std::uint64_t> byte_count(DType dtype, const Shape& shape) {
  const std::optional<std::uint64_t> count = element_count(shape);
  if (!count) return std::nullopt;
  const auto bits = static_cast<std::uint64_t>(dtype_bits(dtype));
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(*count, bits, &total) || total % 8 != 0) return std::nullopt;
  // Rows of a sub-byte type must not share bytes.
  if (bits < 8 && !shape.empty() && (shape.back() * bits) % 8 != 0) return std::nullopt;
  return total / 8;
}

Matrices as_matrices(const Shape& shape) {
  if (shape.size() < 2)
    throw ContractError(fmt::format("as_matrices: shape {}, rank >= 2 expected", to_string(shape)));
  Matrices matrices{1, shape[shape.size() - 2], shape[shape.size() - 1]};
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) matrices.slices *= shape[i];
  return matrices;
}

}  // namespace octavo
