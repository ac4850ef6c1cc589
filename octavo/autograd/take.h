#pragma once

#include "octavo/autograd/variable.h"

namespace octavo {

// Rows of a table: jnp.take(table, ids, axis=0), what Flax's Embed does. table: (n, ...), f32,
// bf16, f16 or f64; ids: any shape, i32. The result is ids' shape, then the table's without its
// first axis. The gradient adds up the rows of each id in the order of ids, in f32 (f64 in f64),
// rounded once. ContractError: a table of rank 0 or of packed elements, ids of another type or
// outside [0, n).
Variable take(const Variable& table, const Tensor& ids);

}  // namespace octavo
