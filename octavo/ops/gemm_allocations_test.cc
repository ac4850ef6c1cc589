// Products allocate nothing once the buffers of their threads have grown. All allocations of this
// program are counted: those of operator new, and those of std::aligned_alloc.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <thread>

#include "octavo/ops/gemm_testing.h"

namespace {

std::atomic<std::size_t> allocations = 0;

// Not inlined: g++ would see malloc on one side and operator delete on the other.
[[gnu::noinline]] void* allocate(std::size_t size, std::size_t alignment) {
  ++allocations;
  void* p = nullptr;
  const int failed = posix_memalign(&p, std::max(alignment, sizeof(void*)), size);
  return failed == 0 ? p : nullptr;
}

[[gnu::noinline]] void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* p = allocate(size, alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

[[gnu::noinline]] void release(void* p) noexcept { std::free(p); }

}  // namespace

void* operator new(std::size_t size) {
  return allocate_or_throw(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  void* p = allocate(size, alignment);
  if (p == nullptr) errno = ENOMEM;
  return p;
}

namespace octavo::ops::testing {
namespace {

struct Case {
  const char* name;
  Format activations, weights;
  std::optional<BlockSize> a_block, w_block;
  Format scales;
};

constexpr std::size_t kN = 200, kK = 260;
constexpr std::size_t kAll = ~std::size_t{0};
constexpr Case kCases[] = {
    {"no scales", Format::bf16, Format::e4m3fn, {}, {}, Format::f32},
    {"f32 1 x 128", Format::e4m3fn, Format::e4m3fn, {{1, 128}}, {{128, 128}}, Format::f32},
    {"f32 per token", Format::e4m3fn, Format::e4m3fn, {{1, kAll}}, {{1, kAll}}, Format::f32},
    {"f32 3 x 64", Format::e5m2, Format::e4m3fn, {{3, 64}}, {{32, 64}}, Format::f32},
    {"e8m0fnu 1 x 32", Format::e4m3fn, Format::e4m3fn, {{1, 32}}, {{1, 32}}, Format::e8m0fnu},
    {"e8m0fnu per tensor", Format::e4m3fn, Format::e5m2, {{kAll, kAll}}, {}, Format::e8m0fnu},
    {"bf16", Format::bf16, Format::bf16, {}, {}, Format::f32},
    {"f32", Format::f32, Format::f32, {}, {}, Format::f32}};

Matrix operand(std::mt19937& random, Format format, std::size_t rows, std::size_t k,
               std::optional<BlockSize> block, Format scales) {
  Matrix m = random_matrix(random, format, rows, k);
  if (block) add_scales(random, m, {std::min(block->rows, rows), std::min(block->cols, k)}, scales);
  return m;
}

// Allocations of a number of calls.
std::size_t allocations_of(const Case& c, std::size_t m, bool is_packed, ThreadPool& pool,
                           int calls_before, int calls) {
  std::mt19937 random(1);
  const Matrix a = operand(random, c.activations, m, kK, c.a_block, c.scales);
  const Matrix w = operand(random, c.weights, kN, kK, c.w_block, c.scales);
  const PackedWeight packed = pack_weight(w.operand());
  const Context context{&pool};
  const GemmOptions options{.context = &context};
  const Operand a_operand = a.operand(), w_operand = w.operand();
  Product product(Format::f32, m, kN);
  std::size_t before = allocations;
  for (int i = -calls_before; i < calls; ++i) {
    if (i == 0) before = allocations;
    if (is_packed) {
      gemm(a_operand, packed, product.output(), options);
    } else {
      gemm(a_operand, w_operand, product.output(), options);
    }
  }
  return allocations - before;
}

TEST(GemmAllocations, NoneOnceBuffersHaveGrown) {
  ThreadPool one(1);
  for (const Case& c : kCases) {
    for (const std::size_t m : {1u, 5u, 20u}) {
      for (const bool is_packed : {true, false}) {
        EXPECT_EQ(allocations_of(c, m, is_packed, one, 1, 2), 0u)
            << c.name << ", " << m << (is_packed ? " rows" : " rows, unpacked");
      }
    }
  }
}

// A thread's first call makes its buffers, and is seen to.
TEST(GemmAllocations, AreSeenAsBuffersGrow) {
  const auto of_a_new_thread = [](const Case& c, bool is_packed) {
    std::size_t count = 0;
    ThreadPool one(1);
    std::thread([&] { count = allocations_of(c, 1, is_packed, one, 0, 1); }).join();
    return count;
  };
  EXPECT_EQ(of_a_new_thread(kCases[0], true), 2u);   // activations, scratch
  EXPECT_GT(of_a_new_thread(kCases[4], true), 2u);   // and expanded scales
  EXPECT_GT(of_a_new_thread(kCases[0], false), 3u);  // and packed weights, their scales
}

// Which thread does a part is not known, and so not when its buffers grow: once each. The workers
// have only scratch to make, since the caller packs so few rows.
TEST(GemmAllocations, OfSharedProductsAreThoseOfEachThread) {
  ThreadPool three(3);
  ASSERT_EQ(kernels::plan_gemm({1, kN, kK, Format::e4m3fn, Format::bf16},
                               kernels::gemm_machine(kernels::selected_isa().value(), 3))
                .threads,
            3);
  for (const Case& c : kCases) {
    EXPECT_LE(allocations_of(c, 1, true, three, 1, 50), 2u) << c.name;
  }
}

}  // namespace
}  // namespace octavo::ops::testing
