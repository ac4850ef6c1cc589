#include "octavo/autograd/dropout.h"

#include <fmt/format.h>

#include "octavo/autograd/broadcast_internal.h"
#include "octavo/autograd/compute_internal.h"

namespace octavo {
namespace {

// 1 where an element stays, one byte each.
Tensor draw(const Rng& rng, double keep, const Shape& shape) {
  const Tensor kept = bernoulli(rng, static_cast<float>(keep), shape);
  Tensor mask(DType::u8, shape);
  std::ranges::transform(kept.values<float>(), mask.mutable_values<std::uint8_t>().begin(),
                         [](float k) { return static_cast<std::uint8_t>(k); });
  return mask;
}

// x / keep where the mask, which broadcasts to x, is 1.
Tensor masked(const Tensor& x, const Tensor& mask, double keep) {
  // JAX divides by a number of x's type.
  const double divisor = Tensor::scalar(keep, x.dtype()).item();
  return compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> from(x);
    const auto stays = mask.values<std::uint8_t>();
    for_runs(mask.shape(), x.shape(), [&](std::size_t begin, std::size_t count, BroadcastRun run) {
      for (std::size_t i = 0; i < count; ++i) {
        const bool is_kept = stays[run.begin + i * run.step] != 0;
        to[begin + i] = is_kept ? from[begin + i] / static_cast<T>(divisor) : T(0);
      }
    });
  });
}

}  // namespace

Variable dropout(const Variable& x, double rate, const Rng& rng, const ops::Axes& broadcast_axes) {
  if (!(rate >= 0 && rate <= 1)) {
    throw ContractError(fmt::format("dropout: given the rate {}, expected 0 to 1", rate));
  }
  check_differentiable("dropout", x.dtype());
  Shape shape = x.shape();
  for (const std::size_t axis : broadcast_axes) {
    if (axis >= shape.size()) {
      throw ContractError(fmt::format("dropout: given axis {} of {}, expected one of its axes",
                                      axis, to_string(shape)));
    }
    shape[axis] = 1;
  }
  if (rate == 0) return x;
  if (rate == 1) return Tensor::zeros(x.dtype(), x.shape());
  const double keep = 1 - rate;
  const Tensor mask = draw(rng, keep, shape);
  return record(
      "dropout", masked(x.value(), mask, keep), std::span(&x, 1),
      [mask, keep](const Tensor& g) -> std::vector<Cotangent> { return {masked(g, mask, keep)}; });
}

}  // namespace octavo
