#include "octavo/autograd/take.h"

#include <fmt/format.h>

#include <cstring>

#include "octavo/autograd/compute_internal.h"

namespace octavo {
namespace {

void check(const Variable& table, const Tensor& ids) {
  if (table.rank() == 0 || ids.dtype() != DType::i32) {
    throw ContractError(
        fmt::format("take: given a table {} and ids of {}, expected rank 1 or more and ids of I32",
                    to_string(table.shape()), dtype_name(ids.dtype())));
  }
  if (dtype_bits(table.dtype()) % 8 != 0) {
    throw ContractError(fmt::format("take: given a table of {}, expected elements of whole bytes",
                                    dtype_name(table.dtype())));
  }
  const auto values = ids.values<std::int32_t>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= 0 && static_cast<std::uint64_t>(values[i]) < table.shape()[0]) continue;
    throw ContractError(fmt::format("take: given the id {} at position {}, expected one of {} rows",
                                    values[i], i, table.shape()[0]));
  }
}

// Rows of whole elements, copied as they are.
Tensor gathered(const Tensor& table, const Tensor& ids) {
  Shape shape = ids.shape();
  shape.insert(shape.end(), table.shape().begin() + 1, table.shape().end());
  Tensor result(table.dtype(), std::move(shape));
  if (result.size() == 0) return result;
  const std::size_t row = table.bytes() / table.shape()[0];
  const auto* from = static_cast<const std::byte*>(table.data());
  auto* to = static_cast<std::byte*>(result.mutable_data());
  for (const std::int32_t id : ids.values<std::int32_t>()) {
    std::memcpy(to, from + static_cast<std::size_t>(id) * row, row);
    to += row;
  }
  return result;
}

}  // namespace

Variable take(const Variable& table, const Tensor& ids) {
  check(table, ids);
  return record("take", gathered(table.value(), ids), std::span(&table, 1),
                [ids, shape = table.shape()](const Tensor& g) -> std::vector<Cotangent> {
                  return {compute(g.dtype(), shape, [&]<class T>(std::span<T> to) {
                    const Values<T> cotangent(g);
                    std::ranges::fill(to, T(0));
                    const std::size_t row = cotangent.size() / std::max<std::size_t>(ids.size(), 1);
                    const T* from = cotangent.data();
                    for (const std::int32_t id : ids.values<std::int32_t>()) {
                      T* sum = to.data() + static_cast<std::size_t>(id) * row;
                      for (std::size_t i = 0; i < row; ++i) sum[i] += from[i];
                      from += row;
                    }
                  })};
                });
}

}  // namespace octavo
