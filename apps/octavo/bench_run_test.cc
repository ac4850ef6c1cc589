// Rows that are wrong, and machines that are never quiet: fake kernels under a clock that they
// advance themselves.
#include "bench_run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bench_product.h"

namespace octavo::app {
namespace {

using ::testing::HasSubstr;

struct FakeRun {
  double now = 0;
  int kernel_calls = 0, asked = 0;
  std::vector<std::string> warnings;
  bool is_quiet = true;
  BenchContext context{};
  RunRules rules{.clock = [this] { return now; },
                 .scales =
                     [this](BenchContext&, int) {
                       ++asked;
                       return is_quiet;
                     },
                 .progress = [](std::size_t) {},
                 .warn = [this](const std::string& words) { warnings.push_back(words); }};

  Timed kernel() {
    return {[this] {
              ++kernel_calls;
              now += 1;
            },
            1};
  }
  Timed roof() {
    return {[this] { now += 1; }, 1};
  }
  std::vector<BenchRow> rows(const std::vector<BenchCase>& cases) {
    return measure_rows(cases, context, rules).value();
  }
};

BenchCase case_of(PreparedCase prepared, int threads = 1) {
  return {"gemm",    8,
          512,       512,
          "e4 x e4", threads,
          "k",       "GFLOP/s",
          "fma f32", [prepared](BenchContext&) -> Result<PreparedCase> { return prepared; }};
}

TEST(BenchRun, AWrongResultIsNamedAndHasNoFigure) {
  FakeRun fake;
  const Checked wrong = std::unexpected("(0, 3) is nan, expected 1.5");
  const std::vector<BenchRow> rows =
      fake.rows({case_of({[=] { return wrong; }, fake.kernel(), fake.roof()})});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].wrong,
            "wrong result: gemm 8x512x512 e4 x e4 by k, 1 thread: (0, 3) is nan, expected 1.5");
  EXPECT_EQ(rows[0].figures.valid, 0);
  EXPECT_FALSE(rows[0].error);
  EXPECT_EQ(fake.kernel_calls, 0);
}

TEST(BenchRun, WhatTheTimedCallsLeaveIsCheckedToo) {
  FakeRun fake;
  std::string calls;
  PreparedCase prepared{[&]() -> Checked {
                          calls += 'c';
                          return 0.0;
                        },
                        {[&] {
                           calls += 'k';
                           fake.now += 1;
                         },
                         1},
                        {}};
  prepared.poison = [&] { calls += 'p'; };
  prepared.recheck = [&]() -> Checked {
    calls += 'r';
    return std::unexpected("(1, 1) is nan, expected 2");
  };
  const std::vector<BenchRow> rows = fake.rows({case_of(prepared)});
  EXPECT_EQ(calls, "cpkkkkkkkr");
  EXPECT_THAT(rows.at(0).wrong, HasSubstr("(1, 1) is nan, expected 2"));
  EXPECT_EQ(rows[0].figures.valid, 0);
  EXPECT_FALSE(rows[0].error);
}

TEST(BenchRun, UnsupportedIsLeftOutAndABadValueEndsTheRun) {
  FakeRun fake;
  BenchCase left_out = case_of({}), refused = case_of({});
  left_out.prepare = [](BenchContext&) { return fail(ErrorCode::unsupported, "no such thing"); };
  refused.prepare = [](BenchContext&) { return fail(ErrorCode::bad_value, "--k 3: odd"); };
  EXPECT_TRUE(fake.rows({left_out}).empty());
  ASSERT_EQ(fake.warnings.size(), 1u);
  EXPECT_EQ(fake.warnings[0], "gemm 8x512x512 e4 x e4 by k, 1 thread: left out: no such thing");
  const auto rows = measure_rows({refused}, fake.context, fake.rules);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().message, "--k 3: odd");
}

TEST(BenchRun, AMachineThatIsNeverQuietEndsAfterABoundedNumberOfAttempts) {
  FakeRun fake;
  fake.is_quiet = false;
  constexpr int kRows = 50;
  const PreparedCase prepared{{}, fake.kernel(), fake.roof()};
  const std::vector<BenchRow> rows = fake.rows(std::vector<BenchCase>(kRows, case_of(prepared, 2)));
  ASSERT_EQ(rows.size(), std::size_t{kRows});
  int dropped = 0;
  for (const BenchRow& row : rows) {
    EXPECT_EQ(row.figures.valid, 0);
    EXPECT_GE(row.figures.dropped, fake.context.request.pairs);
    dropped += row.figures.dropped;
  }
  EXPECT_EQ(dropped, fake.asked);
  EXPECT_LE(dropped, (kRows + kDropsPerPair) * fake.context.request.pairs);
  EXPECT_EQ(fake.kernel_calls, 2 * kRows);  // to warm up; no pair is timed in vain
}

TEST(BenchRun, OneThreadIsNeverAsked) {
  FakeRun fake;
  fake.is_quiet = false;
  const std::vector<BenchRow> rows = fake.rows({case_of({{}, fake.kernel(), fake.roof()})});
  EXPECT_EQ(fake.asked, 0);
  EXPECT_EQ(rows.at(0).figures.valid, fake.context.request.pairs);
}

// ---- Products ----

struct SmallProduct {
  ProductData data{3, 200, 130, Format::e4m3fn, {}, {}, {}, {}, {}, {}};
  ProductKernel kernel{"k", "f", 8, false, true, true, true, {}};
  std::vector<float> c;

  SmallProduct() {
    for (std::size_t i = 0; i < data.m * data.k; ++i)
      data.a.push_back(static_cast<float>(i % 7) - 3);
    for (std::size_t i = 0; i < data.n * data.k; ++i)
      data.w.push_back(static_cast<float>(i % 11) - 4);
    for (std::size_t i = 0; i < data.m * 2; ++i)
      data.a_scale.push_back(0.5f * static_cast<float>(i + 1));
    data.w_scale = {1, 2, 0.25f, 4};
    c.resize(data.m * data.n);
  }
  // Integers and few powers of two: every order of summation gives the same.
  float value(std::size_t row, std::size_t col) const {
    double total = 0;
    for (std::size_t i = 0; i < data.k; ++i) {
      double scale = 1;
      if (kernel.a_scaled) scale *= data.a_scale[row * 2 + i / 128];
      if (kernel.w_scaled) scale *= data.w_scale[col / 128 * 2 + i / 128];
      total += scale * data.a[row * data.k + i] * data.w[col * data.k + i];
    }
    return static_cast<float>(total);
  }
  void write_all() {
    for (std::size_t i = 0; i < c.size(); ++i) c[i] = value(i / data.n, i % data.n);
  }
};

TEST(BenchProduct, TheReferenceIsTheScaledProduct) {
  for (const bool scaled : {true, false}) {
    for (const bool order_c : {true, false}) {
      SmallProduct small;
      small.kernel.order_c = order_c;
      small.kernel.a_scaled = small.kernel.w_scaled = scaled && order_c;
      const ProductReference reference = product_reference(small.kernel, small.data);
      EXPECT_EQ(reference.rows, (std::vector<std::size_t>{0, 1, 2}));
      ASSERT_EQ(reference.cols.size(), 64u);
      EXPECT_EQ(reference.cols.front(), 0u);
      EXPECT_EQ(reference.cols.back(), 199u);
      small.write_all();
      EXPECT_EQ(compare(reference, small.c.data()), Checked(0.0));
    }
  }
}

TEST(BenchProduct, AResultThatACallDoesNotWriteIsWrong) {
  SmallProduct small;
  const ProductReference reference = product_reference(small.kernel, small.data);
  const Product only_the_first_copy{[&](std::size_t copy) {
                                      if (copy == 0) small.write_all();
                                    },
                                    small.c.data()};
  EXPECT_EQ(check_product(reference, small.data, only_the_first_copy, 1), Checked(0.0));
  const Checked checked = check_product(reference, small.data, only_the_first_copy, 2);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error(), fmt::format("(0, 0) is nan, expected {}", double{small.value(0, 0)}));
}

TEST(BenchProduct, OneBitOffIsWrongAndItsPlaceIsNamed) {
  SmallProduct small;
  const ProductReference reference = product_reference(small.kernel, small.data);
  small.write_all();
  float& last = small.c.back();
  last = std::nextafter(last, 1e9f);
  const Checked checked = compare(reference, small.c.data());
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error(), HasSubstr("(2, 199) is "));
}

}  // namespace
}  // namespace octavo::app
