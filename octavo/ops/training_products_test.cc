// Quantized tensors and the three products of training against the scalar steps one after another,
// bit for bit: the generic cast kernels on row-major (and explicitly transposed) matrices, then
// order C on the codes.
#include "octavo/ops/training_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/formats/convert.h"
#include "octavo/kernels/select.h"

namespace octavo::ops {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A tensor (rows, cols) in f32 or bf16.
struct Tensor {
  Format format;
  std::size_t rows, cols, stride;
  std::vector<float> values;  // (rows, cols), exact in the format
  std::vector<std::uint8_t> bytes;

  Operand operand() const { return {{format, bytes.data(), rows, cols, stride}, {}}; }
};

Tensor tensor_of(Format format, std::size_t rows, std::size_t cols, std::size_t gap,
                 std::vector<float> values) {
  const std::size_t size = bytes_per_element(format);
  Tensor t{format, rows, cols, cols + gap, std::move(values), {}};
  t.bytes.resize(rows * t.stride * size);
  for (std::size_t i = 0; i < rows * cols; ++i) {
    auto bits = std::bit_cast<std::uint32_t>(t.values[i]);
    if (format == Format::bf16) {
      bits >>= 16;
      t.values[i] = std::bit_cast<float>(bits << 16);
    }
    std::memcpy(t.bytes.data() + (i / cols * t.stride + i % cols) * size, &bits, size);
  }
  return t;
}

std::vector<float> normal_values(std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, std::exp2(static_cast<float>(random() % 12) - 6));
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

std::vector<float> turned(const std::vector<float>& values, std::size_t rows, std::size_t cols) {
  std::vector<float> to(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) to[i % cols * rows + i / cols] = values[i];
  return to;
}

float decoded(Format format, std::uint8_t code) {
  switch (format) {
    case Format::e4m3fn:
      return decode<Format::e4m3fn>(code);
    case Format::e5m2:
      return decode<Format::e5m2>(code);
    case Format::e4m3fnuz:
      return decode<Format::e4m3fnuz>(code);
    default:
      return decode<Format::e5m2fnuz>(code);
  }
}

std::uint8_t encoded(Format format, float x) {
  const auto as = [x]<Format F>() {
    return static_cast<std::uint8_t>(encode<F>(x, Rounding::nearest_even, Overflow::saturate));
  };
  switch (format) {
    case Format::e4m3fn:
      return as.operator()<Format::e4m3fn>();
    case Format::e5m2:
      return as.operator()<Format::e5m2>();
    case Format::e4m3fnuz:
      return as.operator()<Format::e4m3fnuz>();
    default:
      return as.operator()<Format::e5m2fnuz>();
  }
}

// What a matrix (rows, cols) becomes whose rows a product contracts.
struct Expected {
  std::size_t rows, cols;
  std::vector<std::uint8_t> codes;
  std::vector<float> values;  // of codes
  std::vector<float> scales;
  BlockSize block;

  float scale(std::size_t row, std::size_t k) const {
    return scales[row / block.rows * ceil_div(cols, block.cols) + k / block.cols];
  }
};

// From the formulas, element by element.
Expected expected_of(const std::vector<float>& values, std::size_t rows, std::size_t cols,
                     const TensorRecipe& recipe) {
  Expected e{rows,
             cols,
             std::vector<std::uint8_t>(values.size()),
             std::vector<float>(values.size()),
             {},
             {rows, cols}};
  if (recipe.scaling == Scaling::blocks) e.block = recipe.block;
  const std::size_t across = ceil_div(cols, e.block.cols);
  const auto block_of = [&](std::size_t i) {
    return i / cols / e.block.rows * across + i % cols / e.block.cols;
  };
  std::vector<float> amax(ceil_div(rows, e.block.rows) * across);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& largest = amax[block_of(i)];
    if (!(std::abs(values[i]) <= largest))
      largest = std::isnan(largest) ? largest : std::abs(values[i]);
  }
  std::vector<BlockScale> scales;
  for (const float largest : amax) {
    if (recipe.scaling == Scaling::delayed) {
      scales.push_back({recipe.scale, recipe.scale});
    } else if (!std::isfinite(largest)) {
      scales.push_back({kNan, 1.0f});
    } else {
      scales.push_back(compute_scale(largest, recipe.rule, recipe.scale_fmt,
                                     static_cast<float>(traits(recipe.format).largest)));
    }
    e.scales.push_back(scales.back().scale);
  }
  const bool divides = recipe.scaling == Scaling::delayed ||
                       scale_op(recipe.rule, recipe.scale_fmt) == kernels::ScaleOp::divide;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float factor = scales[block_of(i)].factor;
    e.codes[i] = encoded(recipe.format, divides ? values[i] / factor : values[i] * factor);
    e.values[i] = decoded(recipe.format, e.codes[i]);
  }
  return e;
}

// Order C of octavo/kernels/gemm/gemm.h.
std::vector<float> product(const Expected& a, const Expected& w) {
  const auto width = [](const Expected& x) {
    return x.block.cols >= x.cols ? 128 : std::min<std::size_t>(x.block.cols, 128);
  };
  const std::size_t block = std::min(width(a), width(w)), k = a.cols;
  std::vector<float> c;
  for (std::size_t m = 0; m < a.rows; ++m) {
    for (std::size_t n = 0; n < w.rows; ++n) {
      const float* x = a.values.data() + m * k;
      const float* y = w.values.data() + n * k;
      float total = 0;
      for (std::size_t first = 0; first < k; first += block) {
        float sum = 0;
        for (std::size_t i = first; i < std::min(k, first + block); i += 2) {
          const bool both = i + 1 < k;
          sum = std::fma(both ? x[i + 1] : 0.0f, both ? y[i + 1] : 0.0f, sum);
          sum = std::fma(x[i], y[i], sum);
        }
        total = std::fma(sum, w.scale(n, first) * a.scale(m, first), total);
      }
      c.push_back(std::isnan(total) ? kNan : total);
    }
  }
  return c;
}

struct Pools {
  ThreadPool one{1}, two{2}, three{3};
};
Pools& pools() {
  static Pools pools;
  return pools;
}

struct Results {
  std::vector<float> y, dx, dw;
};

Results computed(const Tensor& x, const Tensor& w, const Tensor& g, const TrainingRecipes& recipes,
                 TrainingTensors& tensors, ThreadPool& pool) {
  Results r{std::vector<float>(x.rows * w.rows), std::vector<float>(x.rows * x.cols),
            std::vector<float>(w.rows * w.cols)};
  training_products({x.operand(), w.operand(), g.operand()}, recipes, tensors,
                    {{Format::f32, r.y.data(), w.rows},
                     {Format::f32, r.dx.data(), x.cols},
                     {Format::f32, r.dw.data(), w.cols}},
                    {&pool});
  return r;
}

Results expected(const Tensor& x, const Tensor& w, const Tensor& g,
                 const TrainingRecipes& recipes) {
  const auto along = [](const Tensor& t, const TensorRecipe& recipe) {
    return expected_of(t.values, t.rows, t.cols, recipe);
  };
  const auto across = [](const Tensor& t, const TensorRecipe& recipe) {
    return expected_of(turned(t.values, t.rows, t.cols), t.cols, t.rows, recipe);
  };
  return {product(along(x, recipes.x), along(w, recipes.w)),
          product(along(g, recipes.g), across(w, recipes.w)),
          product(across(g, recipes.g), across(x, recipes.x))};
}

testing::AssertionResult same_bits(const std::vector<float>& got, const std::vector<float>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(want[i])) continue;
    return testing::AssertionFailure() << "element " << i << ": " << got[i] << ", not " << want[i];
  }
  return testing::AssertionSuccess();
}

void expect_same(const Results& got, const Results& want) {
  EXPECT_TRUE(same_bits(got.y, want.y)) << "Y";
  EXPECT_TRUE(same_bits(got.dx, want.dx)) << "dX";
  EXPECT_TRUE(same_bits(got.dw, want.dw)) << "dW";
}

TensorRecipe any_recipe(std::vector<Format> formats, bool square, std::mt19937& random) {
  const Scaling scalings[] = {Scaling::delayed, Scaling::current, Scaling::blocks};
  const ScaleRule rules[] = {ScaleRule::transformers, ScaleRule::deepseek, ScaleRule::deepgemm};
  const std::size_t widths[] = {32, 64, 128};
  TensorRecipe r;
  r.format = formats[random() % formats.size()];
  r.scaling = scalings[random() % 3];
  r.scale = std::exp2(static_cast<float>(random() % 16) - 12) * 1.3f;
  r.block.cols = widths[random() % 3];
  r.block.rows = square ? r.block.cols : 1;
  r.rule = rules[random() % 3];
  r.scale_fmt = random() % 2 == 0 ? ScaleFormat::float32 : ScaleFormat::ue8m0;
  return r;
}

TrainingRecipes all_recipes(Scaling scaling) {
  TrainingRecipes recipes;
  recipes.x.scaling = recipes.w.scaling = recipes.g.scaling = scaling;
  recipes.x.scale = 0.01f;
  recipes.w.scale = 0.002f;
  recipes.g.scale = 1e-3f;
  recipes.w.block = {128, 128};
  return recipes;
}

TEST(TrainingProducts, AsTheScalarStepsForAnyShapeAndRecipe) {
  EXPECT_TRUE(rc::check([] {
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    const auto size = [&] { return 1 + random() % (random() % 4 == 0 ? 300 : 40); };
    const std::size_t m = size(), n = size(), k = size();
    const auto tensor = [&](std::size_t rows, std::size_t cols) {
      return tensor_of(random() % 2 == 0 ? Format::f32 : Format::bf16, rows, cols, random() % 3,
                       normal_values(rows * cols, random));
    };
    const Tensor x = tensor(m, k), w = tensor(n, k), g = tensor(m, n);
    TrainingRecipes recipes;
    const bool fnuz = random() % 4 == 0;
    const Format forward = fnuz ? Format::e4m3fnuz : Format::e4m3fn;
    recipes.x = any_recipe({forward}, random() % 2 == 0, random);
    recipes.w = any_recipe({forward}, random() % 2 == 0, random);
    recipes.g =
        any_recipe({fnuz ? Format::e5m2fnuz : Format::e5m2, forward}, random() % 2 == 0, random);
    const Results want = expected(x, w, g, recipes);
    TrainingTensors tensors;  // used again for another number of threads
    for (ThreadPool* pool : {&pools().one, &pools().two, &pools().three}) {
      const Results got = computed(x, w, g, recipes, tensors, *pool);
      RC_ASSERT(same_bits(got.y, want.y));
      RC_ASSERT(same_bits(got.dx, want.dx));
      RC_ASSERT(same_bits(got.dw, want.dw));
    }
  }));
}

TEST(TrainingProducts, TensorsOfSeveralTiles) {
  std::mt19937 random(3);
  const auto tensor = [&](std::size_t rows, std::size_t cols) {
    return tensor_of(Format::f32, rows, cols, 0, normal_values(rows * cols, random));
  };
  const Tensor x = tensor(150, 530), w = tensor(270, 530), g = tensor(150, 270);
  for (const Scaling scaling : {Scaling::delayed, Scaling::current, Scaling::blocks}) {
    SCOPED_TRACE(static_cast<int>(scaling));
    const TrainingRecipes recipes = all_recipes(scaling);
    const Results want = expected(x, w, g, recipes);
    for (ThreadPool* pool : {&pools().one, &pools().two}) {
      TrainingTensors tensors;
      expect_same(computed(x, w, g, recipes, tensors, *pool), want);
    }
  }
}

TEST(TrainingProducts, ElementsThatAreNotFinite) {
  std::mt19937 random(4);
  const auto tensor = [&](std::size_t rows, std::size_t cols, float first, float last) {
    std::vector<float> values = normal_values(rows * cols, random);
    values.front() = first;
    values.back() = last;
    return tensor_of(Format::f32, rows, cols, 0, values);
  };
  const Tensor x = tensor(140, 150, kNan, -kInfinity), w = tensor(160, 150, 1.0f, -kNan);
  const Tensor g = tensor(140, 160, kInfinity, 2.0f);
  for (const Scaling scaling : {Scaling::delayed, Scaling::current, Scaling::blocks}) {
    SCOPED_TRACE(static_cast<int>(scaling));
    const TrainingRecipes recipes = all_recipes(scaling);
    TrainingTensors tensors;
    const Results got = computed(x, w, g, recipes, tensors, pools().two);
    expect_same(got, expected(x, w, g, recipes));
    EXPECT_TRUE(std::isnan(got.y.front()));
    if (scaling == Scaling::delayed) {
      EXPECT_FALSE(std::isnan(got.dw.back())) << "infinity is the largest value there";
      EXPECT_TRUE(std::isnan(tensors.x.amax));
      EXPECT_EQ(tensors.g.amax, kInfinity);
    }
  }
}

TEST(QuantizedTensor, FindsTheLargestMagnitudeWhereverItIs) {
  std::mt19937 random(5);
  constexpr std::size_t kRows = 300, kCols = 1100;
  for (const Format format : {Format::f32, Format::bf16}) {
    for (const Format to : {Format::e5m2, Format::e4m3fnuz}) {
      for (const Scaling scaling : {Scaling::delayed, Scaling::current}) {
        for (int i = 0; i < 10; ++i) {
          std::vector<float> values(kRows * kCols, 0.5f);
          values[random() % values.size()] = -3.0f;
          const Tensor t = tensor_of(format, kRows, kCols, 1, values);
          QuantizedTensor q;
          quantize(t.operand(), {.format = to, .scaling = scaling}, {.codes = true}, q,
                   {&pools().three});
          ASSERT_EQ(q.amax, 3.0f) << format_name(format) << " to " << format_name(to);
        }
      }
    }
  }
}

TEST(QuantizedTensor, CodesAndScalesOfBlocksBothWays) {
  std::mt19937 random(6);
  constexpr std::size_t kRows = 200, kCols = 700;
  const Tensor t = tensor_of(Format::bf16, kRows, kCols, 3, normal_values(kRows * kCols, random));
  const TensorRecipe recipe{.format = Format::e5m2, .scaling = Scaling::blocks, .block = {1, 64}};
  QuantizedTensor q;
  quantize(t.operand(), recipe, {.codes = true, .codes_transposed = true}, q, {&pools().two});
  const Expected along = expected_of(t.values, kRows, kCols, recipe);
  const Expected across = expected_of(turned(t.values, kRows, kCols), kCols, kRows, recipe);
  EXPECT_EQ(q.scales.data, along.scales);
  EXPECT_EQ(q.scales_transposed.data, across.scales);
  for (std::size_t i = 0; i < t.values.size(); ++i) {
    ASSERT_EQ(q.codes.data()[i], along.codes[i]) << i;
    ASSERT_EQ(q.codes_by_column.data()[i], across.codes[i % kCols * kRows + i / kCols]) << i;
  }
}

// Activations are kept as codes; the product with the gradient wants them along tokens.
TEST(QuantizedTensor, QuantizesKeptCodesAnew) {
  std::mt19937 random(7);
  constexpr std::size_t kRows = 290, kCols = 600;
  const Tensor t = tensor_of(Format::f32, kRows, kCols, 0, normal_values(kRows * kCols, random));
  const TensorRecipe recipe{.scaling = Scaling::blocks};
  QuantizedTensor kept, anew;
  quantize(t.operand(), recipe, {.codes = true}, kept, {&pools().two});
  quantize(kept.operand(), recipe, {.codes_transposed = true}, anew, {&pools().two});

  const Expected once = expected_of(t.values, kRows, kCols, recipe);
  std::vector<float> values(once.values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = once.values[i] * once.scale(i / kCols, i % kCols);
  }
  const Expected twice = expected_of(turned(values, kRows, kCols), kCols, kRows, recipe);
  EXPECT_EQ(anew.scales_transposed.data, twice.scales);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(anew.codes_by_column.data()[i], twice.codes[i % kCols * kRows + i / kCols]) << i;
  }
}

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const ContractError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TrainingContract, RefusesWithOperationGivenAndExpected) {
  const Tensor t = tensor_of(Format::f32, 4, 6, 0, std::vector<float>(24, 1.0f));
  QuantizedTensor q;
  const auto refused = [&](const TensorRecipe& recipe) {
    return message_of([&] { quantize(t.operand(), recipe, {.codes = true}, q); });
  };
  EXPECT_EQ(refused({}), "no error");
  EXPECT_THAT(refused({.format = Format::bf16}), AllOf(HasSubstr("quantize"), HasSubstr("bf16")));
  for (const float scale : {0.0f, -1.0f, kInfinity, kNan}) {
    EXPECT_THAT(refused({.scale = scale}), HasSubstr("finite, positive")) << scale;
  }
  EXPECT_THAT(refused({.scaling = Scaling::blocks, .block = {2, 128}}), HasSubstr("2 x 128"));
  EXPECT_THAT(refused({.scaling = Scaling::blocks, .block = {1, 256}}), HasSubstr("1 x 256"));

  Operand turned_over = t.operand();
  turned_over.transposed = true;
  turned_over.matrix.stride = 8;
  EXPECT_THAT(message_of([&] { quantize(turned_over, {}, {.codes = true}, q); }),
              HasSubstr("transposed source"));

  quantize(t.operand(), {.scaling = Scaling::blocks}, {.codes = true}, q);
  EXPECT_THAT(message_of([&] { q.operand_transposed(); }), HasSubstr("codes_transposed"));
  quantize(t.operand(), {}, {.weight = true}, q);
  EXPECT_THAT(message_of([&] { q.operand(); }), HasSubstr("without codes"));

  TrainingTensors tensors;
  std::vector<float> out(64);
  EXPECT_THAT(message_of([&] {
                training_products({t.operand(), t.operand(), t.operand()}, {}, tensors,
                                  {{Format::f32, out.data(), 6},
                                   {Format::f32, out.data(), 6},
                                   {Format::f32, out.data(), 6}});
              }),
              AllOf(HasSubstr("training_products"), HasSubstr("g (4, 6)")));
}

}  // namespace
}  // namespace octavo::ops
