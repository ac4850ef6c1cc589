// The bits of a row do not depend on how many rows there are, on where it stands among them, on the
// threads, the level, the shape, the arithmetic, or on whether the weight was packed before.
#include <gtest/gtest.h>

#include <array>

#include "octavo/ops/gemm_testing.h"

namespace octavo::ops::testing {
namespace {

struct Case {
  Format activations, weights;
  std::size_t n, k;
};

// One product of all rows, and a sample of its rows that was held against order C.
class RowsOf {
 public:
  RowsOf(const Case& c, std::size_t most, std::uint32_t seed)
      : random_(seed),
        a_(random_matrix(random_, c.activations, most, c.k)),
        w_(random_matrix(random_, c.weights, c.n, c.k)),
        whole_(Format::f32, most, c.n) {
    if (bytes_per_element(c.activations) == 1) add_scales(random_, a_, {1, 128}, Format::f32);
    if (bytes_per_element(c.weights) == 1) add_scales(random_, w_, {128, 128}, Format::f32);
    packed_ = pack_weight(w_.operand());
    ways_ = all_ways(c.activations, c.weights);
    // The fastest one gives the reference; the scalar specification takes part with few rows.
    gemm(a_.operand(), packed_, whole_.output(), ways_.back().options());
    const Model model(a_, w_);
    for (std::size_t i = 0; i < 20; ++i) {
      const std::size_t m = random_() % most;
      for (std::size_t n = 0; n < c.n; ++n) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(model.output(m, n)), whole_.bits(m, n));
      }
    }
  }

  std::size_t ways() const { return ways_.size(); }

  // m rows from a random place on, in a way, in a pool. The outputs that were compared.
  std::size_t compare(std::size_t m, std::size_t way, ThreadPool& pool) {
    if (ways_[way].isa == Isa::generic && m > 10) return 0;
    const std::size_t first = random_() % (a_.rows - m + 1);
    Operand part = a_.operand();
    part.matrix.rows = m;
    part.matrix.data = a_.bytes.data() + first * a_.stride * bytes_per_element(a_.format);
    if (part.scale.data != nullptr) {
      part.scale.data = a_.scales.data() + first * a_.grid.stride * sizeof(float);
    }
    const Context context{&pool};
    Product c(Format::f32, m, w_.rows);
    const bool packed = random_() % 4 != 0;
    if (packed) {
      gemm(part, packed_, c.output(), ways_[way].options(&context));
    } else {
      gemm(part, w_.operand(), c.output(), ways_[way].options(&context));
    }
    const std::size_t row_bytes = w_.rows * sizeof(float);
    EXPECT_EQ(std::memcmp(c.bytes.data(), whole_.bytes.data() + first * row_bytes, m * row_bytes),
              0)
        << m << " rows from " << first << ", " << ways_[way].name() << ", " << pool.threads()
        << " threads" << (packed ? "" : ", unpacked");
    return m * w_.rows;
  }

 private:
  std::mt19937 random_;
  Matrix a_, w_;
  PackedWeight packed_{};
  Product whole_;
  std::vector<Way> ways_;
};

constexpr std::array kCases = {
    Case{Format::e4m3fn, Format::e4m3fn, 70, 131}, Case{Format::bf16, Format::e4m3fn, 33, 70},
    Case{Format::bf16, Format::bf16, 64, 129}, Case{Format::f32, Format::f32, 40, 60}};

// Every M from 1 to 512 with 8-bit operands, every third one with others, and more than one chunk
// of rows, in turns over ways and pools.
TEST(GemmRows, DoNotKnowOneAnother) {
  ThreadPool one(1), two(2), three(3), seven(7);
  ThreadPool* const pools[] = {&one, &two, &three, &seven};
  std::size_t compared = 0, turn = 0;
  for (const Case& c : kCases) {
    RowsOf rows(c, 1200, 12);
    const std::size_t step = bytes_per_element(c.activations) == 1 ? 1 : 3;
    for (std::size_t m = 1; m <= 512; m += step) {
      // Two ways for each M, further ones for its neighbours.
      for (int i = 0; i < 2; ++i, ++turn) {
        compared += rows.compare(m, turn % rows.ways(), *pools[turn / rows.ways() % 4]);
      }
    }
    for (const std::size_t m : {529u, 600u, 1100u}) {
      for (std::size_t way = 0; way < rows.ways(); ++way, ++turn) {
        compared += rows.compare(m, way, *pools[turn % 4]);
      }
    }
  }
  std::printf("%zu outputs compared\n", compared);
  const bool levels_above = RowsOf({Format::f32, Format::f32, 1, 1}, 1, 1).ways() > 1;
  EXPECT_GT(compared, levels_above ? 10'000'000u : 10'000u);
}

// Columns and rows that several threads share: whole blocks, single strips, chunks within shares.
TEST(GemmRows, DoNotKnowTheThreads) {
  ThreadPool one(1), two(2), three(3), seven(7);
  std::size_t compared = 0;
  for (const Case& c : {Case{Format::e4m3fn, Format::e4m3fn, 1030, 140},
                        Case{Format::bf16, Format::e4m3fn, 30, 300}}) {
    RowsOf rows(c, 1300, 13);
    for (const std::size_t m : {1u, 4u, 16u, 129u, 400u, 1250u}) {
      for (std::size_t way = 0; way < rows.ways(); ++way) {
        for (ThreadPool* pool : {&one, &two, &three, &seven}) {
          compared += rows.compare(m, way, *pool);
        }
      }
    }
  }
  std::printf("%zu outputs compared\n", compared);
}

TEST(GemmRowsSlow, DoNotKnowOneAnotherInEveryWay) {
  ThreadPool one(1), two(2), three(3), seven(7);
  ThreadPool* const pools[] = {&one, &two, &three, &seven};
  std::size_t compared = 0, turn = 0;
  for (const Case& c :
       {Case{Format::e4m3fn, Format::e4m3fn, 257, 1003},
        Case{Format::e5m2, Format::e4m3fn, 160, 520}, Case{Format::bf16, Format::e5m2, 300, 260},
        Case{Format::bf16, Format::bf16, 129, 700}, Case{Format::f32, Format::e4m3fn, 100, 384}}) {
    RowsOf rows(c, 1200, 14);
    for (std::size_t m = 1; m <= 620; ++m) {
      for (std::size_t way = 0; way < rows.ways(); ++way, ++turn) {
        compared += rows.compare(m, way, *pools[turn % 4]);
      }
    }
  }
  std::printf("%zu outputs compared\n", compared);
  EXPECT_GT(compared, 20'000'000u);
}

}  // namespace
}  // namespace octavo::ops::testing
