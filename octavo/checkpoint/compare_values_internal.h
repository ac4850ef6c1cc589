// Two runs of numbers against each other: sums, the worst element, and whether every difference is
// a rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "octavo/formats/format.h"
#include "octavo/tensor/dtype.h"

namespace octavo {

// How far rounding to a format, with a scale, moves a number. In units of the value:
//
//   half step at magnitude m = half_step x max(2^floor(log2(m x per_unit + offset)), least)
//
// and `slack` x magnitude + `least_slack` for what f32 arithmetic added.
struct RoundingGrid {
  double per_unit;     // 1 / |scale|, and a little more
  double offset;       // of the same units: for products that are subnormal
  double least;        // below this magnitude (of codes) steps stay as they are
  double half_step;    // per power of two
  double slack;        // of the larger magnitude
  double least_slack;  // absolute
};

// Of elements of `dtype` as they are.
RoundingGrid plain_grid(DType dtype);
// Of code x scale in f32. A scale that is zero or not finite has no steps.
RoundingGrid scaled_grid(Format format, float scale);

// Beyond this, x and y are not one rounding apart.
template <class Real>
Real rounding_bound(const RoundingGrid& grid, Real x, Real y);

// Of any number of runs, added in a fixed order. long double: squares of doubles fit.
struct ValueSums {
  long double aa = 0;
  long double bb = 0;
  long double ab = 0;
  long double dd = 0;  // (a - b)^2
  long double max_abs = 0;
  std::uint64_t differing = 0;
  std::uint64_t non_finite = 0;
  bool beyond_rounding = false;
  struct Element {
    std::uint64_t index;
    long double a;
    long double b;
  };
  std::optional<Element> worst;  // of max_abs, or the first that is non_finite; the lowest index

  // What stands behind this in the tensor.
  void add(const ValueSums& later);
};

// a and b of one length, their grids, and the index of their first element. An element is beyond
// rounding where it exceeds the bounds of both grids.
void compare_run(std::span<const float> a, std::span<const float> b, const RoundingGrid& grid_a,
                 const RoundingGrid& grid_b, std::uint64_t index, ValueSums& sums);
void compare_run(std::span<const long double> a, std::span<const long double> b,
                 const RoundingGrid& grid_a, const RoundingGrid& grid_b, std::uint64_t index,
                 ValueSums& sums);

}  // namespace octavo
