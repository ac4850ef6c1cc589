#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/checkpoint/compare_values_internal.h"
#include "octavo/formats/traits.h"

namespace octavo {
namespace {

constexpr double kUnit = 0x1p-24;            // half an ulp of f32, relative
constexpr double kSubnormalUnit = 0x1p-150;  // half the step of f32 subnormals

// A format without scale: numbers are what they are, so nothing is slack.
RoundingGrid exact_grid(double least, int mantissa_bits) {
  return {1, 0, least, std::ldexp(0.5, -mantissa_bits), 0, 0};
}

}  // namespace

RoundingGrid plain_grid(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return exact_grid(0x1p-1022, 52);
    case DType::c64:
      return plain_grid(DType::f32);
    default:
      break;
  }
  // Integers: a step of 1 at every magnitude.
  const std::optional<Format> format = dtype_info(dtype).format;
  if (!format) return exact_grid(0x1p64, 64);
  return exact_grid(traits(*format).smallest_normal, traits(*format).mantissa_bits);
}

// Let x be the number that was quantized, s the stored scale, c the code, y = f32(c x s) what it
// stands for, u = 2^-24, and h(m) half the step between the codes around m. A quantizer computes
// t = x / s in f32, or t = x x q with q = f32(1 / s) or s = f32(1 / q), and c is the code nearest
// to t. So
//
//   t = (x / s)(1 + g),  |g| <= u + e + u e,  e = max(u, 2^-150 / s)   (the latter: s is subnormal)
//   |c - t| <= h(min(|c|, |t|))
//   |y - c s| <= max(u |c s|, 2^-150)
//   |x - y| <= s h + g |x| + u |y| / (1 - u) + 2^-150
//
// The smaller of |c| and |t| picks the step: a code that is a power of two has finer steps below
// it. Up to those errors it is min(|x|, |y|) / s; enlarged by them, it never falls below a power of
// two that c or t reaches, and codes below one are too far from it to be taken for it. If x / s and
// t lie on two sides of a power of two, c is that power, and g |x| covers the difference. At the
// largest code h is the half step below it, as if the codes went on. 2^-50 covers what the bound
// itself loses in double.
RoundingGrid scaled_grid(Format format, float scale) {
  const FormatTraits& f = traits(format);
  const double s = std::fabs(static_cast<double>(scale));
  if (!(s > 0) || std::isinf(s)) return {0, 0, f.smallest_normal, 0, 0, 0};
  const double scale_error = std::max(kUnit, kSubnormalUnit / s);
  const double slack = kUnit + scale_error + kUnit * scale_error + kUnit / (1 - kUnit) + 0x1p-50;
  return {
      (1 + slack) / s, kSubnormalUnit / s, f.smallest_normal, std::ldexp(s, -f.mantissa_bits - 1),
      slack,           kSubnormalUnit};
}

template <class Real>
Real rounding_bound(const RoundingGrid& grid, Real x, Real y) {
  const Real in_steps = std::min(std::fabs(x), std::fabs(y)) * static_cast<Real>(grid.per_unit) +
                        static_cast<Real>(grid.offset);
  const auto least = static_cast<Real>(grid.least);
  const Real power = in_steps < least ? least : std::ldexp(Real{1}, std::ilogb(in_steps));
  return power * static_cast<Real>(grid.half_step) +
         std::max(std::fabs(x), std::fabs(y)) * static_cast<Real>(grid.slack) +
         static_cast<Real>(grid.least_slack);
}
template double rounding_bound(const RoundingGrid&, double, double);
template long double rounding_bound(const RoundingGrid&, long double, long double);

void ValueSums::add(const ValueSums& later) {
  aa += later.aa;
  bb += later.bb;
  ab += later.ab;
  dd += later.dd;
  // A mismatch of what is not finite comes before every finite difference.
  if (non_finite == 0 && later.worst && (later.non_finite > 0 || later.max_abs > max_abs)) {
    worst = later.worst;
  }
  max_abs = std::max(max_abs, later.max_abs);
  differing += later.differing;
  non_finite += later.non_finite;
  beyond_rounding = beyond_rounding || later.beyond_rounding;
}

namespace {

template <class Real>
bool is_rounding(const RoundingGrid& grid_a, const RoundingGrid& grid_b, Real a, Real b) {
  const Real difference = std::fabs(a - b);
  return difference <= rounding_bound(grid_a, a, b) || difference <= rounding_bound(grid_b, a, b);
}

// Element by element, whatever the elements are. Real: what differences are exact enough in, double
// for floats.
template <class Real, class Element>
void compare_any(std::span<const Element> a, std::span<const Element> b, const RoundingGrid& grid_a,
                 const RoundingGrid& grid_b, std::uint64_t index, ValueSums& sums) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Real x = a[i];
    const Real y = b[i];
    if (!std::isfinite(x) || !std::isfinite(y)) {
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      if (sums.non_finite == 0) sums.worst = {index + i, x, y};
      ++sums.non_finite;
      ++sums.differing;
      sums.beyond_rounding = true;
      continue;
    }
    const auto wide_x = static_cast<long double>(x);
    const auto wide_y = static_cast<long double>(y);
    sums.aa += wide_x * wide_x;
    sums.bb += wide_y * wide_y;
    sums.ab += wide_x * wide_y;
    if (x == y) continue;
    const long double difference = std::fabs(wide_x - wide_y);
    sums.dd += difference * difference;
    ++sums.differing;
    if (!sums.beyond_rounding) sums.beyond_rounding = !is_rounding<Real>(grid_a, grid_b, x, y);
    if (difference <= sums.max_abs) continue;
    sums.max_abs = difference;
    if (sums.non_finite == 0) sums.worst = {index + i, x, y};
  }
}

// Two chains of each sum in one register of any x86 or ARM, as the compiler's vectors, and two such
// registers: their order is fixed. Vectors of 32 bytes, which g++ 12 splits badly, took 7.4 ns an
// element, these take 2.5 (one core of a Xeon at 2.6 GHz).
using Lanes [[gnu::vector_size(16)]] = double;
using LaneBits [[gnu::vector_size(16)]] = std::int64_t;
using LaneFloats [[gnu::vector_size(8)]] = float;
constexpr std::size_t kLanes = 2;
constexpr std::size_t kChains = 2;

// Runs are cut to this, so that looking into one again costs little.
constexpr std::size_t kRun = 1024;

struct FastSums {
  double aa;
  double bb;
  double ab;
  double dd;
  double max_abs;
  std::int64_t differing;
  bool beyond;  // the bound of the grid
};

struct Chain {
  Lanes aa{};
  Lanes bb{};
  Lanes ab{};
  Lanes dd{};
  Lanes largest{};
  LaneBits equal{};  // minus their number
  LaneBits beyond{};
};

Lanes magnitude(Lanes x) {
  return reinterpret_cast<Lanes>(reinterpret_cast<LaneBits>(x) &
                                 (LaneBits{} + std::int64_t{0x7FFF'FFFF'FFFF'FFFF}));
}

Lanes power_below(Lanes x) {  // the significand becomes 1
  return reinterpret_cast<Lanes>(reinterpret_cast<LaneBits>(x) &
                                 (LaneBits{} + std::int64_t{0x7FF0'0000'0000'0000}));
}

void add_lanes(LaneFloats a, LaneFloats b, const RoundingGrid& grid, Chain& chain) {
  const Lanes x = __builtin_convertvector(a, Lanes);
  const Lanes y = __builtin_convertvector(b, Lanes);
  const Lanes difference = x - y;
  chain.aa += x * x;
  chain.bb += y * y;
  chain.ab += x * y;
  chain.dd += difference * difference;
  const Lanes abs_x = magnitude(x);
  const Lanes abs_y = magnitude(y);
  const Lanes off = magnitude(difference);
  chain.largest = chain.largest < off ? off : chain.largest;
  chain.equal += (x == y);
  const Lanes small = abs_x < abs_y ? abs_x : abs_y;
  const Lanes large = abs_x < abs_y ? abs_y : abs_x;
  const Lanes power = power_below(small * grid.per_unit + grid.offset);
  const Lanes least = Lanes{} + grid.least;
  const Lanes bound =
      (power < least ? least : power) * grid.half_step + large * grid.slack + grid.least_slack;
  chain.beyond |= (off > bound);
}

void load(const float* from, std::size_t lanes, LaneFloats& to) {
  __builtin_memcpy(&to, from, lanes * sizeof(float));
}

// Of finite floats; otherwise aa or bb is not finite: squares of floats do not overflow in double.
FastSums fast_sums(const float* a, const float* b, std::size_t count, const RoundingGrid& grid) {
  Chain chains[kChains];
  std::size_t i = 0;
  for (; i + kLanes * kChains <= count; i += kLanes * kChains) {
    for (std::size_t c = 0; c < kChains; ++c) {
      LaneFloats from_a;
      LaneFloats from_b;
      load(a + i + c * kLanes, kLanes, from_a);
      load(b + i + c * kLanes, kLanes, from_b);
      add_lanes(from_a, from_b, grid, chains[c]);
    }
  }
  std::size_t padding = 0;
  for (; i < count; i += kLanes) {  // zeros on both sides change no sum
    const std::size_t lanes = std::min(kLanes, count - i);
    LaneFloats from_a{};
    LaneFloats from_b{};
    load(a + i, lanes, from_a);
    load(b + i, lanes, from_b);
    add_lanes(from_a, from_b, grid, chains[0]);
    padding += kLanes - lanes;
  }
  FastSums sums{0, 0, 0, 0, 0, static_cast<std::int64_t>(count + padding), false};
  for (const Chain& chain : chains) {
    sums.aa += chain.aa[0] + chain.aa[1];
    sums.bb += chain.bb[0] + chain.bb[1];
    sums.ab += chain.ab[0] + chain.ab[1];
    sums.dd += chain.dd[0] + chain.dd[1];
    sums.max_abs = std::max<double>({sums.max_abs, chain.largest[0], chain.largest[1]});
    sums.differing += chain.equal[0] + chain.equal[1];
    sums.beyond = sums.beyond || (chain.beyond[0] | chain.beyond[1]) != 0;
  }
  return sums;
}

// The grid that allows more, for nearly all elements: a scaled one, or the one with fewer bits.
const RoundingGrid& coarser(const RoundingGrid& a, const RoundingGrid& b) {
  return a.half_step * a.per_unit >= b.half_step * b.per_unit ? a : b;
}

}  // namespace

void compare_run(std::span<const float> a, std::span<const float> b, const RoundingGrid& grid_a,
                 const RoundingGrid& grid_b, std::uint64_t index, ValueSums& sums) {
  const RoundingGrid& grid = coarser(grid_a, grid_b);
  for (std::size_t at = 0; at < a.size(); at += kRun) {
    const std::size_t count = std::min(kRun, a.size() - at);
    const std::span<const float> x = a.subspan(at, count);
    const std::span<const float> y = b.subspan(at, count);
    const FastSums fast = fast_sums(x.data(), y.data(), count, grid);
    if (!std::isfinite(fast.aa) || !std::isfinite(fast.bb)) {
      compare_any<double>(x, y, grid_a, grid_b, index + at, sums);
      continue;
    }
    sums.aa += fast.aa;
    sums.bb += fast.bb;
    sums.ab += fast.ab;
    sums.dd += fast.dd;
    sums.differing += static_cast<std::uint64_t>(fast.differing);
    if (fast.beyond && !sums.beyond_rounding) {
      for (std::size_t i = 0; i < count && !sums.beyond_rounding; ++i) {
        sums.beyond_rounding = !is_rounding<double>(grid_a, grid_b, x[i], y[i]);
      }
    }
    if (fast.max_abs <= static_cast<double>(sums.max_abs)) continue;
    sums.max_abs = fast.max_abs;
    if (sums.non_finite > 0) continue;
    std::size_t i = 0;
    while (std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i])) != fast.max_abs) ++i;
    sums.worst = {index + at + i, x[i], y[i]};
  }
}

void compare_run(std::span<const long double> a, std::span<const long double> b,
                 const RoundingGrid& grid_a, const RoundingGrid& grid_b, std::uint64_t index,
                 ValueSums& sums) {
  compare_any<long double>(a, b, grid_a, grid_b, index, sums);
}

}  // namespace octavo
