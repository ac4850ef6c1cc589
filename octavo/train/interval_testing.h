// Intervals that hold what every f32 computation of the same formulas gives, in whatever order it
// sums and whether or not it fuses a product with an addition.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "octavo/tensor/tensor.h"
#include "octavo/train/train_testing.h"

namespace octavo::testing {

struct Interval {
  double low = 0, high = 0;

  double largest() const { return std::max(std::fabs(low), std::fabs(high)); }
  double smallest() const {
    return low <= 0 && high >= 0 ? 0 : std::min(std::fabs(low), std::fabs(high));
  }
  bool holds(double x) const { return low <= x && x <= high; }
};

// XLA takes numbers below for 0.
inline constexpr double kSubnormal = 0x1p-126;

// Wider by n roundings to f32.
inline Interval rounded(Interval x, std::size_t n = 1) {
  if (x.low == 0 && x.high == 0) return x;
  const double unit = relative_rounding(n);
  return {x.low - unit * std::fabs(x.low) - kSubnormal,
          x.high + unit * std::fabs(x.high) + kSubnormal};
}

// Not rounded yet.
inline Interval times(Interval a, Interval b) {
  const auto [low, high] =
      std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
  return {low, high};
}
inline Interval over(Interval a, Interval b) {
  if (b.low <= 0) throw std::domain_error("an interval over one that is not positive");
  const auto [low, high] =
      std::minmax({a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high});
  return {low, high};
}

inline Interval operator+(Interval a, Interval b) {
  return rounded({a.low + b.low, a.high + b.high});
}
inline Interval operator-(Interval a, Interval b) { return a + Interval{-b.high, -b.low}; }
inline Interval operator*(Interval a, Interval b) { return rounded(times(a, b)); }
inline Interval operator/(Interval a, Interval b) { return rounded(over(a, b)); }
inline Interval operator*(double a, Interval b) { return rounded(times({a, a}, b), 2); }

inline Interval square(Interval x) {
  return rounded({x.smallest() * x.smallest(), x.largest() * x.largest()});
}
inline Interval root(Interval x) {
  return rounded({std::sqrt(std::max(x.low, 0.0)), std::sqrt(x.high)});
}

// In any order; terms are rounded once each, or not at all.
class Sum {
 public:
  void add(Interval x) {
    total_.low += x.low;
    total_.high += x.high;
    magnitude_ += x.largest();
    ++terms_;
  }
  Interval result() const {
    if (magnitude_ == 0) return {0, 0};
    const double error =
        magnitude_ * relative_rounding(terms_) + static_cast<double>(terms_) * kSubnormal;
    return {total_.low - error, total_.high + error};
  }

 private:
  Interval total_;
  double magnitude_ = 0;
  std::size_t terms_ = 0;
};

// A matrix of them; a vector is one row.
struct Grid {
  std::size_t rows = 0, cols = 0;
  std::vector<Interval> cells;  // by row

  Interval at(std::size_t i, std::size_t j) const { return cells[i * cols + j]; }
};

// Without width.
inline Grid grid_of(const Tensor& x) {
  const std::size_t cols = x.rank() == 0 ? 1 : x.shape().back();
  Grid grid{x.size() / cols, cols, {}};
  for (const float value : x.to_floats()) grid.cells.push_back({value, value});
  return grid;
}

inline void check_sizes(bool fit, const Grid& a, const Grid& b) {
  if (fit) return;
  throw std::invalid_argument(fmt::format("grids of {} x {} and {} x {} do not go together", a.rows,
                                          a.cols, b.rows, b.cols));
}

template <class F>
Grid map_cells(Grid x, const F& f) {
  for (Interval& cell : x.cells) cell = f(cell);
  return x;
}

// f of each cell of a and of that of b; a single row of b serves all.
template <class F>
Grid map_cells(Grid a, const Grid& b, const F& f) {
  check_sizes(a.cols == b.cols && (b.rows == 1 || b.rows == a.rows), a, b);
  for (std::size_t i = 0; i < a.cells.size(); ++i) {
    a.cells[i] = f(a.cells[i], b.cells[b.rows == 1 ? i % a.cols : i]);
  }
  return a;
}

inline Grid transposed(const Grid& x) {
  Grid result{x.cols, x.rows, {}};
  for (std::size_t j = 0; j < x.cols; ++j) {
    for (std::size_t i = 0; i < x.rows; ++i) result.cells.push_back(x.at(i, j));
  }
  return result;
}

inline Grid product(const Grid& a, const Grid& b) {
  check_sizes(a.cols == b.rows, a, b);
  Grid result{a.rows, b.cols, {}};
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < b.cols; ++j) {
      Sum sum;
      for (std::size_t k = 0; k < a.cols; ++k) sum.add(times(a.at(i, k), b.at(k, j)));
      result.cells.push_back(sum.result());
    }
  }
  return result;
}

inline Grid column_sums(const Grid& x) {
  Grid result{1, x.cols, {}};
  for (std::size_t j = 0; j < x.cols; ++j) {
    Sum sum;
    for (std::size_t i = 0; i < x.rows; ++i) sum.add(x.at(i, j));
    result.cells.push_back(sum.result());
  }
  return result;
}

inline Interval sum(const Grid& x) {
  Sum sum;
  for (const Interval cell : x.cells) sum.add(cell);
  return sum.result();
}

// The largest magnitude.
inline Interval amax(const Grid& x) {
  Interval result;
  for (const Interval cell : x.cells) {
    result.low = std::max(result.low, cell.smallest());
    result.high = std::max(result.high, cell.largest());
  }
  return result;
}

// Every element of both lies in its interval.
inline void expect_held(const Grid& grid, const Tensor& ours, const Tensor& theirs,
                        const std::string& what) {
  const std::vector<float> a = ours.to_floats(), b = theirs.to_floats();
  ASSERT_EQ(a.size(), grid.cells.size()) << what;
  ASSERT_EQ(b.size(), grid.cells.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(grid.cells[i].holds(a[i])) << what << " element " << i << ": ours " << a[i];
    EXPECT_TRUE(grid.cells[i].holds(b[i])) << what << " element " << i << ": theirs " << b[i];
  }
}

}  // namespace octavo::testing
