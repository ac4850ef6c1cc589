// What the tests of the cast kernels share: one instance of a suite per implementation, and memory
// whose borders are watched.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "octavo/formats/traits.h"
#include "octavo/kernels/cast/cast_internal.h"
#include "octavo/kernels/select.h"

namespace octavo::kernels::testing {

// A suite over all levels of the ladder; those that cannot run here are skipped with the reason.
class CastKernelsTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const std::string name = isa_name(GetParam());
    if (!is_built(GetParam())) GTEST_SKIP() << name << " is not in this build";
    if (!supports(cpu_features(), GetParam())) GTEST_SKIP() << name << " is not on this machine";
    kernels_ = cast_kernels(GetParam());
  }
  CastKernels kernels_ = {};
};

inline std::string isa_of(const ::testing::TestParamInfo<Isa>& info) {
  return isa_name(info.param);
}

// For suites that compare with the reference, which is `generic`.
#define OCTAVO_FOR_EACH_OTHER_ISA(suite) \
  INSTANTIATE_TEST_SUITE_P(Isas, suite, ::testing::Values(Isa::avx2, Isa::avx512bf16), isa_of)
#define OCTAVO_FOR_EACH_ISA(suite)      \
  INSTANTIATE_TEST_SUITE_P(Isas, suite, \
                           ::testing::Values(Isa::generic, Isa::avx2, Isa::avx512bf16), isa_of)

// `size` bytes between two pages that fault when touched, close to the second or, with `at_start`,
// right after the first.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size, bool at_start = false) : size_(size) {
    const std::size_t inside = (size + kPage - 1) / kPage * kPage;
    mapped_ = inside + 2 * kPage;
    void* p = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::uint8_t*>(p);
    mprotect(base_, kPage, PROT_NONE);
    mprotect(base_ + kPage + inside, kPage, PROT_NONE);
    data_ = base_ + kPage + (at_start ? 0 : inside - size);
  }
  ~GuardedBytes() { munmap(base_, mapped_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  std::uint8_t* data() { return data_; }
  const std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }
  void fill(std::uint8_t byte) { std::memset(data_, byte, size_); }
  bool operator==(const GuardedBytes& other) const {
    return size_ == other.size_ && std::memcmp(data_, other.data_, size_) == 0;
  }

 private:
  static constexpr std::size_t kPage = 4096;
  std::size_t size_, mapped_;
  std::uint8_t* base_;
  std::uint8_t* data_;
};

inline std::size_t bytes_of(Format format) {
  return bits_per_element(format) <= 8 ? 1 : bits_per_element(format) / 8;
}

// rc::check with 20 cases in each of its runs; the seed is printed.
template <class Property>
bool check_often(const Property& property) {
  return rc::check([&] {
    for (int i = 0; i < 20; ++i) property();
  });
}

// rows x cols inside rows of `stride` elements; the last row ends with its last element.
struct Extent {
  std::size_t rows, cols, stride, block_cols;
  std::size_t elements() const { return rows == 0 || cols == 0 ? 0 : (rows - 1) * stride + cols; }
  std::size_t blocks() const { return (cols + block_cols - 1) / block_cols; }
};

// Shapes around all vector widths. `step` 2: cols, stride and block_cols are even.
inline Extent any_extent(std::size_t step = 1) {
  const auto even = [step](std::size_t n) { return (n + step - 1) / step * step; };
  Extent e{};
  e.rows = *rc::gen::inRange<std::size_t>(1, 9);
  e.cols = even(*rc::gen::weightedOneOf<std::size_t>(
      {{3, rc::gen::inRange<std::size_t>(1, 80)},
       {2, rc::gen::inRange<std::size_t>(80, 600)},
       {1, rc::gen::element<std::size_t>(64, 128, 256, 512)}}));
  e.stride = e.cols + even(*rc::gen::element<std::size_t>(0, 0, 1, 5, 64));
  e.block_cols = even(*rc::gen::weightedOneOf<std::size_t>(
      {{3, rc::gen::element<std::size_t>(1, 32, 64, 128, e.cols)},
       {1, rc::gen::inRange<std::size_t>(1, 200)}}));
  return e;
}

// Bit patterns of a floating-point format: uniform over all of them, or around 1 as weights are.
inline void fill_floats(GuardedBytes& bytes, Format format, std::mt19937& random,
                        bool all_patterns) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const std::size_t size = bytes_of(format);
  for (std::size_t i = 0; i + size <= bytes.size(); i += size) {
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if (!all_patterns) {
      const float x = normal(random);
      std::memcpy(&bits, &x, 4);
      if (format == Format::bf16) bits >>= 16;
      if (format == Format::f16) bits = 0x3000u | (bits & 0x87FFu);  // 0.125 to 0.5
    }
    std::memcpy(bytes.data() + i, &bits, size);
  }
}

inline void fill_bytes(GuardedBytes& bytes, std::mt19937& random) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes.data()[i] = static_cast<std::uint8_t>(random());
}

// A positive finite f32 of any magnitude, denormals included.
inline float any_positive(std::mt19937& random) {
  const std::uint32_t bits = std::uniform_int_distribution<std::uint32_t>(1, 0x7F7FFFFF)(random);
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// Of any sign, size and kind.
inline float any_float(std::mt19937& random) {
  const auto bits = static_cast<std::uint32_t>(random());
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

}  // namespace octavo::kernels::testing
