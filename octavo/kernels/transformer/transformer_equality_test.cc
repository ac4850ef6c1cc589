// Every level against the specification, bit for bit, on rows of every length between guard pages.
#include <algorithm>

#include "octavo/kernels/transformer/transformer_testing.h"

namespace octavo::kernels::testing {
namespace {

constexpr std::size_t kLongest = 200;

class TransformerEquality : public TransformerKernelsTest {
 protected:
  // check(n, values, at_start) for every length, kind of value and side of the guarded memory.
  template <class Check>
  void for_each_row(const Check& check) {
    for (std::size_t n = 1; n <= kLongest; ++n) {
      for (const Values values : kAllValues) {
        for (const bool at_start : {false, true}) {
          check(n, values, at_start);
          if (HasFatalFailure()) {
            FAIL() << "n = " << n << ", values of kind " << static_cast<int>(values)
                   << (at_start ? ", at the start of memory" : ", at the end of memory");
          }
        }
      }
    }
  }
  std::vector<float> row(std::size_t n, Values kind) { return any_values(n, kind, random_); }

  std::mt19937 random_{20240917};
};
OCTAVO_FOR_EACH_OTHER_ISA(TransformerEquality);

TEST_P(TransformerEquality, RmsNorm) {
  for_each_row([&](std::size_t cols, Values kind, bool at_start) {
    const std::size_t rows = 1 + cols % 3, x_stride = cols + cols % 5, y_stride = cols + cols % 7;
    Row x(row((rows - 1) * x_stride + cols, kind), at_start), weight(row(cols, kind), at_start);
    const std::vector<float> before = row((rows - 1) * y_stride + cols, kind);
    Row got(before, at_start), expected(before);
    const float eps = cols % 2 == 0 ? 0.0f : 1e-5f;
    kernels_.rms_norm({x.data(), x_stride, weight.data(), eps, rows, cols, got.data(), y_stride});
    generic::rms_norm(
        {x.data(), x_stride, weight.data(), eps, rows, cols, expected.data(), y_stride});
    ASSERT_EQ(got.bits(), expected.bits());
    Row in_place(std::vector<float>(x.data(), x.data() + cols), at_start);
    kernels_.rms_norm({in_place.data(), cols, weight.data(), eps, 1, cols, in_place.data(), cols});
    ASSERT_TRUE(std::equal(in_place.data(), in_place.data() + cols, got.data(),
                           [](float a, float b) { return bits_of(a) == bits_of(b); }));
  });
}

TEST_P(TransformerEquality, Rope) {
  for_each_row([&](std::size_t head_dim, Values kind, bool at_start) {
    const std::size_t heads = 1 + head_dim % 3, half = (head_dim - head_dim % 4) / 2;
    Row cos(row(half, kind), at_start), sin(row(half, kind), at_start);
    const std::vector<float> before = row(heads * head_dim, kind);
    Row got(before, at_start), expected(before);
    kernels_.rope({got.data(), heads, head_dim, half, cos.data(), sin.data()});
    generic::rope({expected.data(), heads, head_dim, half, cos.data(), sin.data()});
    ASSERT_EQ(got.bits(), expected.bits());
  });
}

TEST_P(TransformerEquality, AddAndScale) {
  for_each_row([&](std::size_t n, Values kind, bool at_start) {
    const std::vector<float> before = row(n, kind);
    Row got(before, at_start), expected(before), other(row(n, kind), at_start);
    kernels_.add(got.data(), other.data(), n);
    generic::add(expected.data(), other.data(), n);
    ASSERT_EQ(got.bits(), expected.bits()) << "add";
    const float factor = any_value(kind, random_);
    kernels_.scale(got.data(), factor, n);
    generic::scale(expected.data(), factor, n);
    ASSERT_EQ(got.bits(), expected.bits()) << "scale";
  });
}

TEST_P(TransformerEquality, SiluMul) {
  for_each_row([&](std::size_t n, Values kind, bool at_start) {
    Row gate(row(n, kind), at_start), up(row(n, kind), at_start);
    Row got(row(n, kind), at_start), expected(row(n, kind));
    kernels_.silu_mul(gate.data(), up.data(), got.data(), n);
    generic::silu_mul(gate.data(), up.data(), expected.data(), n);
    ASSERT_EQ(got.bits(), expected.bits());
    kernels_.silu_mul(gate.data(), up.data(), gate.data(), n);
    ASSERT_EQ(gate.bits(), expected.bits()) << "in place";
  });
}

// Of every row one range within, so that it begins and ends in any lane.
TEST_P(TransformerEquality, RowMax) {
  for_each_row([&](std::size_t n, Values kind, bool at_start) {
    std::vector<float> values = row(n, kind);
    if (n % 2 == 0) {
      for (float& v : values) v = std::isnan(v) || v > 0 ? 0.0f : v;  // zeros of both signs lead
    }
    const std::size_t begin = random_() % n, end = begin + random_() % (n - begin + 1);
    // The memory holds the range alone, at its place in the row: what lies before must not be read.
    Row x(std::vector<float>(values.begin() + static_cast<std::ptrdiff_t>(at_start ? begin : 0),
                             values.begin() + static_cast<std::ptrdiff_t>(end)),
          at_start);
    const float* start = at_start ? x.data() - begin : x.data();
    ASSERT_EQ(bits_of(kernels_.row_max(start, begin, end)),
              bits_of(generic::row_max(values.data(), begin, end)))
        << "[" << begin << ", " << end << ")";
  });
}

TEST_P(TransformerEquality, ExpRowAndSumExp) {
  for_each_row([&](std::size_t n, Values kind, bool at_start) {
    const std::vector<float> values = row(n, kind);
    const std::size_t begin = random_() % n, end = begin + random_() % (n - begin + 1);
    const bool real = random_() % 2 == 0;
    const float max = real ? generic::row_max(values.data(), 0, n) : any_value(kind, random_);
    const float scale = real ? 0.25f * kLog2e : any_value(kind, random_);

    Row whole(values, at_start);
    const float sum = generic::sum_exp(values.data(), n, scale, max);
    ASSERT_EQ(bits_of(kernels_.sum_exp(whole.data(), n, scale, max)), bits_of(sum));

    Row got(values, at_start), expected(values);
    const float got_sum = kernels_.exp_row(got.data(), n, begin, end, scale, max);
    const float expected_sum = generic::exp_row(expected.data(), n, begin, end, scale, max);
    ASSERT_EQ(got.bits(), expected.bits()) << "[" << begin << ", " << end << ")";
    ASSERT_EQ(bits_of(got_sum), bits_of(expected_sum)) << "[" << begin << ", " << end << ")";

    ASSERT_EQ(bits_of(kernels_.exp_row(whole.data(), n, 0, n, scale, max)), bits_of(sum));
  });
}

}  // namespace
}  // namespace octavo::kernels::testing
