// ops::gemm against order C on row-major operands, bit for bit, in every way that there is.
#include <gtest/gtest.h>

#include <thread>

#include "octavo/ops/gemm_testing.h"

namespace octavo::ops::testing {
namespace {

std::vector<float> some_bias(std::mt19937& random, std::size_t n) {
  std::vector<float> bias(n);
  for (float& b : bias) b = static_cast<float>(random() % 101) / 50 - 1;
  return bias;
}

struct Form {
  Format c_format = Format::f32;
  std::size_t gap = 0;
  std::span<const float> bias = {};
  const Context* context = nullptr;
};

// Empty where every way gives order C, from packed weights and from weights as they lie. Adds the
// outputs compared.
std::string differences(const Matrix& a, const Matrix& w, const Form& form, std::size_t& compared) {
  const Product model = expected(a, w, form.c_format, form.gap, form.bias.data());
  const PackedWeight packed = pack_weight(w.operand());
  std::string found;
  for (const Way& way : all_ways(a.format, w.format)) {
    const GemmOptions options = way.options(form.context, form.bias);
    const std::string first =
        difference(multiply(a, packed, form.c_format, form.gap, options), model);
    compared += a.rows * w.rows;
    std::string second;
    // The scalar specification is slow: small products will do for it.
    if (way.isa != Isa::generic || a.rows * w.rows * a.cols < 50'000) {
      const bool contiguous = !w.transposed && w.stride == w.cols;
      second = difference(
          contiguous ? multiply(a, unpacked_weight(w.operand()), form.c_format, form.gap, options)
                     : multiply(a, w, form.c_format, form.gap, options),
          model);
      compared += a.rows * w.rows;
    }
    if (!first.empty()) found += way.name() + ", packed: " + first + "\n";
    if (!second.empty()) found += way.name() + ", unpacked: " + second + "\n";
  }
  return found;
}

// Blocks of scales: kNone, or with kAll rows or columns (per tensor; per channel or token).
constexpr std::size_t kNone = 0, kAll = ~std::size_t{0};
constexpr BlockSize kGrids[] = {{kNone, kNone}, {kAll, kAll}, {1, kAll},  {128, 128},
                                {1, 128},       {128, 64},    {64, 64},   {1, 32},
                                {32, 32},       {100, 128},   {128, 256}, {48, 384}};
constexpr std::size_t kPerToken = 4, kSquare = 3, kRagged = 9;  // indices: 1x128, 128x128, 100x128

void add_grid(std::mt19937& random, Matrix& m, std::size_t grid, Format format, Codes codes) {
  const BlockSize block = kGrids[grid];
  if (block.rows == kNone) return;
  add_scales(random, m, {std::min(block.rows, m.rows), std::min(block.cols, m.cols)}, format, codes,
             random() % 2);
}

TEST(Gemm, EveryPairOfFormatsWithEveryScaleGridIsOrderC) {
  std::mt19937 random(7);
  std::size_t compared = 0, turn = 0;
  for (const Format wf : kFormats) {
    for (const Format af : kFormats) {
      for (std::size_t grid = 0; grid < std::size(kGrids); ++grid, ++turn) {
        const std::size_t m = 1 + random() % 13, n = 33 + random() % 64, k = 1 + random() % 300;
        const Codes codes = turn % 3 == 0 ? Codes::all : Codes::finite;
        Matrix w = random_matrix(random, wf, n, k, codes, turn % 2 == 0, random() % 3);
        Matrix a = random_matrix(random, af, m, k, codes, random() % 2 == 0, random() % 3);
        const std::size_t a_grid = random() % std::size(kGrids);
        const Format w_scale = random() % 2 == 0 ? Format::f32 : Format::e8m0fnu;
        const Format a_scale = random() % 2 == 0 ? Format::f32 : Format::e8m0fnu;
        add_grid(random, w, grid, w_scale, codes);
        add_grid(random, a, a_grid, a_scale, codes);
        const std::vector<float> bias = some_bias(random, n);
        const Form form{random() % 2 == 0 ? Format::f32 : Format::bf16, random() % 4,
                        random() % 2 == 0 ? bias : std::span<const float>(), nullptr};
        ASSERT_EQ(differences(a, w, form, compared), "")
            << m << " x " << n << " x " << k << ", " << format_name(af) << " grid " << a_grid
            << " x " << format_name(wf) << " grid " << grid;
      }
    }
  }
  std::printf("%zu outputs compared\n", compared);
  EXPECT_EQ(turn, 36 * std::size(kGrids));
}

Matrix any_operand(std::mt19937& random, std::size_t rows, std::size_t k) {
  const Codes codes = *rc::gen::element(Codes::finite, Codes::all);
  const Format format = kFormats[*rc::gen::inRange<std::size_t>(0, std::size(kFormats))];
  Matrix m = random_matrix(random, format, rows, k, codes, *rc::gen::arbitrary<bool>(),
                           *rc::gen::element<std::size_t>(0, 0, 3));
  add_grid(random, m, *rc::gen::inRange<std::size_t>(0, std::size(kGrids)),
           *rc::gen::element(Format::f32, Format::e8m0fnu), codes);
  return m;
}

void check_any_product(std::size_t most_m, std::size_t most_n, std::size_t most_k,
                       std::size_t& compared) {
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  const std::size_t k = *rc::gen::inRange<std::size_t>(1, most_k);
  const Matrix a = any_operand(random, *rc::gen::inRange<std::size_t>(1, most_m), k);
  const Matrix w = any_operand(random, *rc::gen::inRange<std::size_t>(1, most_n), k);
  const std::vector<float> bias = some_bias(random, w.rows);
  const Form form{*rc::gen::element(Format::f32, Format::bf16),
                  *rc::gen::element<std::size_t>(0, 5),
                  *rc::gen::arbitrary<bool>() ? bias : std::span<const float>(), nullptr};
  RC_ASSERT(differences(a, w, form, compared) == "");
}

TEST(Gemm, AnyProductIsOrderC) {
  std::size_t compared = 0;
  EXPECT_TRUE(
      rc::check("any operands, every way", [&] { check_any_product(40, 200, 400, compared); }));
  std::printf("%zu outputs compared\n", compared);
}

TEST(GemmSlow, ManyAndLargerProductsAreOrderC) {
  std::size_t compared = 0;
  EXPECT_TRUE(rc::check("any operands, every way", [&] {
    for (int i = 0; i < 5; ++i) check_any_product(140, 300, 1100, compared);
  }));
  std::printf("%zu outputs compared\n", compared);
}

// Products large enough to be shared: by columns, in several chunks of rows, and by rows.
TEST(Gemm, SharedProductsAreOrderC) {
  const struct {
    std::size_t m, n, k;
    kernels::GemmSplit tiled_split;
  } shapes[] = {{5, 700, 310, kernels::GemmSplit::columns},
                {540, 200, 33, kernels::GemmSplit::columns},
                {400, 40, 70, kernels::GemmSplit::rows},
                {1130, 17, 61, kernels::GemmSplit::rows}};
  ThreadPool one(1), three(3), seven(7);
  std::mt19937 random(8);
  std::size_t compared = 0;
  for (const auto& shape : shapes) {
    ASSERT_EQ(kernels::plan_gemm({shape.m, shape.n, shape.k, Format::e4m3fn, Format::bf16},
                                 kernels::GemmMachine{Isa::avx2, false, 1 << 20, 7})
                  .split,
              shape.m > 11 ? shape.tiled_split : kernels::GemmSplit::columns);
    for (const auto& [af, wf] :
         {std::pair{Format::bf16, Format::e4m3fn}, std::pair{Format::e5m2, Format::e4m3fn},
          std::pair{Format::f32, Format::bf16}}) {
      Matrix a = random_matrix(random, af, shape.m, shape.k, Codes::finite, random() % 2 == 0);
      Matrix w = random_matrix(random, wf, shape.n, shape.k, Codes::finite, random() % 2 == 0);
      add_grid(random, a, kPerToken, Format::f32, Codes::finite);
      add_grid(random, w, random() % 2 == 0 ? kSquare : kRagged, Format::f32, Codes::finite);
      const std::vector<float> bias = some_bias(random, shape.n);
      const Product model = expected(a, w, Format::f32, 1, bias.data());
      for (ThreadPool* pool : {&one, &three, &seven}) {
        const Context context{pool};
        const PackedWeight packed = pack_weight(w.operand(), context);
        for (const Way& way : all_ways(af, wf)) {
          // The scalar specification is shared like all others: one pool will do.
          if (way.isa == Isa::generic && pool != &three) continue;
          const GemmOptions options = way.options(&context, bias);
          EXPECT_EQ(difference(multiply(a, packed, Format::f32, 1, options), model), "")
              << way.name() << ", " << pool->threads() << " threads";
          EXPECT_EQ(difference(multiply(a, w, Format::f32, 1, options), model), "")
              << way.name() << ", unpacked, " << pool->threads() << " threads";
          compared += 2 * shape.m * shape.n;
        }
      }
    }
  }
  std::printf("%zu outputs compared\n", compared);
}

// Y = X W^T. dX = G W: the weight transposed. dW = G^T X: both operands transposed, K is tokens.
TEST(Gemm, BackwardProductsAreOrderC) {
  std::mt19937 random(2);
  std::size_t compared = 0;
  const std::size_t tokens = 150, in = 70, out = 90;
  Matrix x = random_matrix(random, Format::e4m3fn, tokens, in, Codes::finite, false, 2);
  Matrix w = random_matrix(random, Format::e4m3fn, out, in);
  Matrix g = random_matrix(random, Format::e5m2, tokens, out, Codes::finite, false, 1);
  for (const bool scaled : {false, true}) {
    Matrix dx_weight = w.turned(), dw_left = g.turned(), dw_right = x.turned();
    if (scaled) {
      add_scales(random, g, {1, 128}, Format::f32);
      add_scales(random, dx_weight, {128, 128}, Format::f32);
      add_scales(random, dw_left, {dw_left.rows, dw_left.cols}, Format::f32);
      add_scales(random, dw_right, {1, 128}, Format::f32);
    }
    EXPECT_EQ(differences(g, dx_weight, {}, compared), "") << "dX = G W";
    EXPECT_EQ(differences(dw_left, dw_right, {}, compared), "") << "dW = G^T X";
  }
}

TEST(Gemm, StaysWithinTheBoundOfItsRoundings) {
  std::mt19937 random(4);
  const std::pair<Format, Format> pairs[] = {{Format::e4m3fn, Format::e4m3fn},
                                             {Format::e5m2, Format::e4m3fn},
                                             {Format::bf16, Format::e5m2fnuz},
                                             {Format::bf16, Format::bf16},
                                             {Format::f32, Format::f32}};
  for (const auto& [af, wf] : pairs) {
    for (const std::size_t k : {1u, 127u, 128u, 1000u}) {
      Matrix a = random_matrix(random, af, 9, k);
      Matrix w = random_matrix(random, wf, 40, k);
      add_scales(random, a, {1, 128}, Format::f32);
      add_scales(random, w, {128, 64}, Format::f32);
      const std::vector<float> bias = some_bias(random, w.rows);
      const Model model(a, w, bias.data());
      std::vector<Model::Exact> exact;
      for (std::size_t i = 0; i < a.rows * w.rows; ++i) {
        exact.push_back(model.exact(i / w.rows, i % w.rows));
      }
      for (const Way& way : all_ways(af, wf)) {
        const Product c = multiply(a, w, Format::f32, 0, way.options(nullptr, bias));
        for (std::size_t m = 0; m < a.rows; ++m) {
          for (std::size_t n = 0; n < w.rows; ++n) {
            const auto [value, bound] = exact[m * w.rows + n];
            ASSERT_LE(std::abs(c.at(m, n) - value), bound) << k << ": " << m << ", " << n;
          }
        }
      }
    }
  }
}

TEST(Gemm, WeightsOfZeroGivePlusZero) {
  std::mt19937 random(9);
  for (const Format wf : kFormats) {
    for (const Format af : kFormats) {
      Matrix a = random_matrix(random, af, 13, 201);
      Matrix w = random_matrix(random, wf, 40, 201);
      std::fill(w.bytes.begin(), w.bytes.end(), std::uint8_t{0});
      const bool has_minus_zero = value_of(wf, traits(wf).sign_bit()) == 0;
      for (std::size_t n = 0; has_minus_zero && n < w.rows; n += 2) {
        for (std::size_t k = 0; k < w.cols; ++k) w.set(n, k, traits(wf).sign_bit());
      }
      for (const Way& way : all_ways(af, wf)) {
        const Product c = multiply(a, w, Format::f32, 0, way.options());
        EXPECT_EQ(c.bytes, std::vector<std::uint8_t>(c.bytes.size(), 0)) << way.name();
      }
    }
  }
}

TEST(Gemm, NanReachesItsRowAndItsColumnOnly) {
  std::mt19937 random(10);
  for (const Format wf : kFormats) {
    for (const Format af : kFormats) {
      Matrix a = random_matrix(random, af, 14, 201);
      Matrix w = random_matrix(random, wf, 40, 201);
      a.set(3, 0, traits(af).nan_code);
      a.set(12, 200, traits(af).nan_code | traits(af).sign_bit());
      w.set(33, 130, traits(wf).nan_code);
      for (const Way& way : all_ways(af, wf)) {
        for (const Format c_format : {Format::f32, Format::bf16}) {
          const Product c = multiply(a, w, c_format, 0, way.options());
          for (std::size_t m = 0; m < a.rows; ++m) {
            for (std::size_t n = 0; n < w.rows; ++n) {
              const bool reached = m == 3 || m == 12 || n == 33;
              ASSERT_EQ(std::isnan(c.at(m, n)), reached) << way.name() << m << ", " << n;
              ASSERT_TRUE(!reached || c.bits(m, n) == traits(c_format).nan_code);
            }
          }
        }
      }
    }
  }
}

TEST(Gemm, InfinityKeepsItsSignAndIsNanAgainstZero) {
  const auto one = [](Format format) {
    return format == Format::e5m2 ? 0x3Cu : format == Format::bf16 ? 0x3F80u : 0x3F80'0000u;
  };
  std::mt19937 random(11);
  for (const Format af : {Format::e5m2, Format::bf16, Format::f32}) {
    Matrix a = random_matrix(random, af, 3, 130);
    Matrix w = random_matrix(random, Format::e4m3fn, 3, 130);
    for (std::size_t r = 0; r < 3; ++r) {
      for (std::size_t k = 0; k < 130; ++k) a.set(r, k, one(af)), w.set(r, k, 0x38);
    }
    a.set(1, 129, traits(af).infinity_code);
    w.set(1, 129, 0xB8);  // -1
    w.set(2, 129, 0x00);
    for (const Way& way : all_ways(af, w.format)) {
      const Product c = multiply(a, w, Format::f32, 0, way.options());
      EXPECT_EQ(c.at(0, 0), 130.0f) << way.name();
      EXPECT_EQ(c.bits(1, 0), 0x7F80'0000u) << way.name();
      EXPECT_EQ(c.bits(1, 1), 0xFF80'0000u) << way.name();
      EXPECT_EQ(c.bits(1, 2), 0x7FC0'0000u) << way.name();
      EXPECT_EQ(c.at(2, 2), 129.0f) << way.name();
    }
  }
}

TEST(Gemm, UnpackingGivesTheBitsBack) {
  std::mt19937 random(5);
  ThreadPool three(3);
  const Context context{&three};
  for (const Format format : kFormats) {
    for (const bool transposed : {false, true}) {
      for (const std::size_t n : {1u, 77u, 300u}) {
        // bf16 below 2^-40 is packed as +0.
        const Codes codes = format == Format::bf16 ? Codes::finite : Codes::all;
        const Matrix w = random_matrix(random, format, n, 131, codes, transposed, 2);
        const PackedWeight packed = pack_weight(w.operand(), context);
        Matrix back{format, n, 131, 140, false, {}, {}, {}};
        back.bytes.assign(n * 140 * bytes_per_element(format), 0xEE);
        unpack_weight(packed, back.bytes.data(), back.stride, context);
        for (std::size_t r = 0; r < n; ++r) {
          for (std::size_t k = 0; k < 131; ++k) ASSERT_EQ(back.bits(r, k), w.bits(r, k));
          for (std::size_t k = 131; k < 140; ++k) {
            ASSERT_EQ(back.bits(r, k), 0xEEEE'EEEEu >> (32 - 8 * bytes_per_element(format)));
          }
        }
      }
    }
  }
}

TEST(Gemm, CallersAtTheSameTimeDoNotDisturbOneAnother) {
  std::mt19937 random(6);
  ThreadPool shared(3);
  const Context context{&shared};
  const auto work = [&](const Matrix& a, const Matrix& w, const Product& model) {
    const PackedWeight packed = pack_weight(w.operand(), context);
    GemmOptions options;
    options.context = &context;
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(difference(multiply(a, packed, Format::f32, 0, options), model), "");
      EXPECT_EQ(difference(multiply(a, w, Format::f32, 0, options), model), "");
    }
  };
  const Matrix a1 = random_matrix(random, Format::bf16, 60, 300);
  const Matrix w1 = random_matrix(random, Format::e4m3fn, 200, 300);
  const Matrix a2 = random_matrix(random, Format::e5m2, 500, 90);
  const Matrix w2 = random_matrix(random, Format::e4m3fn, 40, 90);
  const Product model1 = expected(a1, w1), model2 = expected(a2, w2);
  std::thread other([&] { work(a2, w2, model2); });
  work(a1, w1, model1);
  other.join();
}

}  // namespace
}  // namespace octavo::ops::testing
