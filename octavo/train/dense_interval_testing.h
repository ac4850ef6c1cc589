// A Dense layer with delayed scaling, and an MLP of two, in intervals: what every run of the same
// f32 operations gives, whatever the order of its sums. A quotient that lies as near to the middle
// of two codes as it is wide becomes both codes.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>

#include "octavo/autograd/variables.h"
#include "octavo/ops/fp8.h"
#include "octavo/train/interval_testing.h"

namespace octavo::testing {

// Paths below "params/" to what they can be.
using Grids = std::map<std::string, Grid>;

inline void add_to(Grids& grids, const std::string& path, const Grid& grid) {
  const auto [found, is_new] = grids.try_emplace(path, grid);
  if (!is_new) found->second = map_cells(found->second, grid, std::plus<Interval>());
}

// f32 numbers around x.
inline float float_below(double x) {
  const auto nearest = static_cast<float>(x);
  return nearest > x ? std::nextafter(nearest, -std::numeric_limits<float>::infinity()) : nearest;
}
inline float float_above(double x) { return -float_below(-x); }

// Codes of x / scale, as their values. Rounding is monotonic: the ends of a quotient are rounded.
inline Grid quantized(const Grid& x, Interval scale, DType type) {
  const float top = fp8::get_fp8_max(type);
  const auto codes_of = [&](double Interval::* end) {
    std::vector<float> quotients;
    for (const Interval cell : x.cells) {
      quotients.push_back(std::clamp(static_cast<float>(over(cell, scale).*end), -top, top));
    }
    return Tensor::from(quotients, {x.rows, x.cols}).astype(type).to_floats();
  };
  const std::vector<float> low = codes_of(&Interval::low), high = codes_of(&Interval::high);
  Grid codes = x;
  for (std::size_t i = 0; i < low.size(); ++i) codes.cells[i] = {low[i], high[i]};
  return codes;
}

// The delayed scaling of one tensor, margin 0.
struct Meta {
  DType type;
  std::vector<Interval> history;
  Interval scale{1, 1};

  Meta(DType fp8_type, std::size_t length) : type(fp8_type), history(length) {}

  // Takes x in; the scale for it.
  void update(const Grid& x) {
    Interval amax_before;
    for (const Interval entry : history) {
      amax_before.low = std::max(amax_before.low, entry.low);
      amax_before.high = std::max(amax_before.high, entry.high);
    }
    const float top = fp8::get_fp8_max(type);
    // Of an empty history the scale stays.
    if (amax_before.high > 0) {
      scale = {1.0f / (top / float_below(amax_before.low)),
               1.0f / (top / float_above(amax_before.high))};
    }
    std::ranges::rotate(history, history.begin() + 1);
    history.front() = amax(x);
  }
};

// A quantized operand: codes with their scale, or dequantized, with the scale 1.
struct Operand {
  Grid values;
  Interval scale;
};

inline Grid scaled_product(const Operand& a, const Operand& b) {
  return map_cells(product(a.values, b.values), [&](Interval sum) {
    return rounded(times(sum, times(a.scale, b.scale)), 3);  // sum, scales, result
  });
}
inline Operand transposed(const Operand& x) { return {transposed(x.values), x.scale}; }

struct Pair {
  fp8::Fp8Types types;
  bool is_qdq;  // products of dequantized values
};

// A Dense layer with its FP8 state.
class DenseGrids {
 public:
  DenseGrids(Pair pair, std::size_t length)
      : metas_{Meta(pair.types.e4m3, length), Meta(pair.types.e4m3, length),
               Meta(pair.types.e5m2, length)},
        is_qdq_(pair.is_qdq) {}

  Grid forward(const Grid& x, const Grid& kernel, const Grid& bias) {
    x_ = quantize(metas_[0], x);
    kernel_ = quantize(metas_[1], kernel);
    return map_cells(scaled_product(x_, kernel_), bias, std::plus<Interval>());
  }

  struct Gradients {
    Grid x, kernel, bias;
  };
  Gradients backward(const Grid& g) {
    const Operand q = quantize(metas_[2], g);
    return {scaled_product(q, transposed(kernel_)), scaled_product(transposed(x_), q),
            column_sums(g)};
  }

  // Codes that could be two, of all steps so far.
  std::ptrdiff_t in_doubt() const { return in_doubt_; }

  // What `state` has below `path` of the layer's operator, without width.
  void read_state(const std::string& path, const Variables& state) {
    for (std::size_t i = 0; i < 3; ++i) {
      metas_[i].scale = grid_of(state.value(path + kNames[i] + "_scale")).cells[0];
      metas_[i].history = grid_of(state.value(path + kNames[i] + "_amax_history")).cells;
    }
  }
  // To what `state` has there: uses of one layer add up, as in Flax.
  void add_state(const std::string& path, Grids& state) const {
    for (std::size_t i = 0; i < 3; ++i) {
      const Meta& meta = metas_[i];
      add_to(state, path + kNames[i] + "_scale", {1, 1, {meta.scale}});
      add_to(state, path + kNames[i] + "_amax_history", {1, meta.history.size(), meta.history});
    }
  }

 private:
  static constexpr const char* kNames[] = {"input", "kernel", "output_grad"};

  Operand quantize(Meta& meta, const Grid& x) {
    meta.update(x);
    const Grid codes = quantized(x, meta.scale, meta.type);
    in_doubt_ += std::ranges::count_if(codes.cells, [](Interval c) { return c.low != c.high; });
    if (!is_qdq_) return {codes, meta.scale};
    return {map_cells(codes, [&](Interval code) { return code * meta.scale; }), {1, 1}};
  }

  Meta metas_[3];
  bool is_qdq_;
  std::ptrdiff_t in_doubt_ = 0;
  Operand x_, kernel_;
};

struct StepGrids {
  Interval loss;
  Grids grads, state;
  std::ptrdiff_t in_doubt = 0;  // codes, of all steps so far
};

// mean((second(relu(first(x))) - target)^2). The two are one layer used twice where they have one
// name: of its parameters gradients and state add up.
struct MlpGrids {
  DenseGrids first, second;
  std::string op;  // their operator
  std::string first_name = "first", second_name = "second";

  StepGrids step(const Grids& params, const Grid& x, const Grid& target) {
    const auto param = [&](const std::string& layer, const char* name) {
      return params.at(layer + "/" + name);
    };
    const Grid before = first.forward(x, param(first_name, "kernel"), param(first_name, "bias"));
    const Grid hidden = map_cells(
        before, [](Interval v) { return Interval{std::max(v.low, 0.0), std::max(v.high, 0.0)}; });
    const Grid y = second.forward(hidden, param(second_name, "kernel"), param(second_name, "bias"));
    const Grid error = map_cells(y, target, std::minus<Interval>());
    const double per_term = 1 / static_cast<double>(error.cells.size());
    const auto of_second =
        second.backward(map_cells(error, [&](Interval e) { return 2 * per_term * e; }));
    const auto of_first = first.backward(map_cells(of_second.x, before, [](Interval g, Interval v) {
      return times(g, {v.low > 0 ? 1.0 : 0.0, v.high > 0 ? 1.0 : 0.0});
    }));
    StepGrids step{
        per_term * sum(map_cells(error, square)), {}, {}, first.in_doubt() + second.in_doubt()};
    add_to(step.grads, first_name + "/kernel", of_first.kernel);
    add_to(step.grads, first_name + "/bias", of_first.bias);
    add_to(step.grads, second_name + "/kernel", of_second.kernel);
    add_to(step.grads, second_name + "/bias", of_second.bias);
    first.add_state(first_name + "/" + op + "/", step.state);
    second.add_state(second_name + "/" + op + "/", step.state);
    return step;
  }
};

}  // namespace octavo::testing
