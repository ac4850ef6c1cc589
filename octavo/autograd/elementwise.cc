#include "octavo/autograd/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "octavo/autograd/broadcast_internal.h"
#include "octavo/autograd/compute_internal.h"

namespace octavo {
namespace {

// f(x[i], y[i]) over broadcast operands of one type.
template <class F>
Tensor zip(const Tensor& a, const Tensor& b, const Shape& shape, const F& f) {
  return compute(a.dtype(), shape, [&]<class T>(std::span<T> to) {
    const Values<T> of_a(a), of_b(b);
    for_runs(a.shape(), b.shape(), shape,
             [&](std::size_t begin, std::size_t count, BroadcastRun run_a, BroadcastRun run_b) {
               T* z = to.data() + begin;
               const T *x = of_a.data() + run_a.begin, *y = of_b.data() + run_b.begin;
               const bool is_x_one = run_a.step == 0, is_y_one = run_b.step == 0;
               for_pieces(count, 1, [&](std::size_t i, std::size_t end) {
                 if (is_x_one) {
                   for (; i < end; ++i) z[i] = f(*x, y[is_y_one ? 0 : i]);
                 } else if (is_y_one) {
                   for (; i < end; ++i) z[i] = f(x[i], *y);
                 } else {
                   for (; i < end; ++i) z[i] = f(x[i], y[i]);
                 }
               });
             });
  });
}

Tensor times(const Tensor& x, double factor) {
  return compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> from(x);
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] * static_cast<T>(factor);
  });
}

// f of broadcast operands. rule_of(x, y) is the rule, which keeps of them what it needs: from the
// cotangent those of x and y, before what was repeated is summed.
template <class F, class RuleOf>
Variable binary(const char* operation, const Variable& a, const Variable& b, const F& f,
                const RuleOf& rule_of) {
  const DType type = promoted(a.dtype(), b.dtype());
  const Variable x = cast(a, type), y = cast(b, type);
  const Shape shape = broadcast_shape(operation, x.shape(), y.shape());
  const std::array<Variable, 2> inputs = {x, y};
  return record(operation, zip(x.value(), y.value(), shape, f), inputs,
                [rule = rule_of(x.value(), y.value()), of_x = x.shape(),
                 of_y = y.shape()](const Tensor& g) -> std::vector<Cotangent> {
                  const auto [dx, dy] = rule(g);
                  return {sum_to(dx, of_x), sum_to(dy, of_y)};
                });
}

// y = f(x), and the gradient g * df(x).
template <class F, class Derivative>
Variable unary(const char* operation, const Variable& x, const F& f, const Derivative& df) {
  Tensor value = compute(x.dtype(), x.shape(), [&]<class T>(std::span<T> to) {
    const Values<T> from(x.value());
    for_pieces(to.size(), 1, [&](std::size_t i, std::size_t end) {
      for (; i < end; ++i) to[i] = f(from[i]);
    });
  });
  return record(operation, std::move(value), std::span(&x, 1),
                [df, kept = x.value()](const Tensor& g) -> std::vector<Cotangent> {
                  return {compute(g.dtype(), g.shape(), [&]<class T>(std::span<T> to) {
                    const Values<T> from(kept), cotangent(g);
                    const T *x_at = from.data(), *c = cotangent.data();
                    T* y = to.data();
                    for_pieces(to.size(), 1, [=](std::size_t i, std::size_t end) {
                      for (; i < end; ++i) y[i] = c[i] * df(x_at[i]);
                    });
                  })};
                });
}

template <class T>
T sigmoid(T x) {
  // exp of what is not positive: never infinite.
  const T e = std::exp(-std::fabs(x));
  return (x >= 0 ? T(1) : e) / (1 + e);
}

constexpr double kGeluCubic = 0.044715;

template <class T>
T gelu_inner(T x) {
  return T(std::sqrt(2 / std::numbers::pi)) * (x + T(kGeluCubic) * x * x * x);
}

}  // namespace

Variable cast(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return record(
      "cast", x.value().astype(dtype), std::span(&x, 1),
      [from = x.dtype()](const Tensor& g) -> std::vector<Cotangent> { return {g.astype(from)}; });
}

Variable add(const Variable& a, const Variable& b) {
  return binary(
      "add", a, b, [](auto x, auto y) { return x + y; },
      [](const Tensor&, const Tensor&) { return [](const Tensor& g) { return std::pair(g, g); }; });
}

Variable sub(const Variable& a, const Variable& b) {
  return binary(
      "sub", a, b, [](auto x, auto y) { return x - y; },
      [](const Tensor&, const Tensor&) {
        return [](const Tensor& g) { return std::pair(g, times(g, -1)); };
      });
}

Variable mul(const Variable& a, const Variable& b) {
  const auto product = [](auto x, auto y) { return x * y; };
  return binary("mul", a, b, product, [product](const Tensor& x, const Tensor& y) {
    return [=](const Tensor& g) {
      return std::pair(zip(g, y, g.shape(), product), zip(g, x, g.shape(), product));
    };
  });
}

Variable scale(const Variable& x, double factor) {
  return record("scale", times(x.value(), factor), std::span(&x, 1),
                [factor](const Tensor& g) -> std::vector<Cotangent> { return {times(g, factor)}; });
}

Variable relu(const Variable& x) {
  return unary(
      "relu", x, [](auto v) { return v > 0 || std::isnan(v) ? v : decltype(v)(0); },
      [](auto v) { return v > 0 ? decltype(v)(1) : decltype(v)(0); });
}

Variable silu(const Variable& x) {
  return unary(
      "silu", x, [](auto v) { return v * sigmoid(v); },
      [](auto v) {
        const auto s = sigmoid(v);
        return s * (1 + v * (1 - s));
      });
}

Variable gelu(const Variable& x, Gelu kind) {
  if (kind == Gelu::erf) {
    return unary(
        "gelu", x,
        [](auto v) {
          using T = decltype(v);
          return v * T(0.5) * (1 + std::erf(v * T(std::numbers::sqrt2 / 2)));
        },
        [](auto v) {
          using T = decltype(v);
          const T cdf = T(0.5) * (1 + std::erf(v * T(std::numbers::sqrt2 / 2)));
          const T density =
              T(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2) * std::exp(T(-0.5) * v * v);
          return cdf + v * density;
        });
  }
  // (1 + tanh(u)) / 2 is sigmoid(2 u), which cancels nothing where u is far below 0.
  return unary(
      "gelu", x, [](auto v) { return v * sigmoid(2 * gelu_inner(v)); },
      [](auto v) {
        using T = decltype(v);
        const T s = sigmoid(2 * gelu_inner(v));
        const T inner = T(std::sqrt(2 / std::numbers::pi)) * (1 + 3 * T(kGeluCubic) * v * v);
        return s + v * s * (1 - s) * 2 * inner;
      });
}

}  // namespace octavo
