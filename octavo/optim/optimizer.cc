#include "octavo/optim/optimizer.h"

#include <algorithm>

#include "octavo/autograd/elementwise.h"

namespace octavo::optim {

Variables apply_updates(const Variables& params, const Variables& updates) {
  return map_variables(params, [&](const std::string& path, const Variable& value) -> Variable {
    const Variable* update = updates.find(path);
    return update == nullptr ? value : cast(add(value, *update), value.dtype());
  });
}

}  // namespace octavo::optim
