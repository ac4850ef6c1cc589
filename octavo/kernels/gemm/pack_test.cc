// Packing, every implementation against the layouts that gemm.h describes, written down here as the
// order in which elements follow each other in memory.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "octavo/formats/convert.h"
#include "octavo/kernels/cast/cast_testing.h"
#include "octavo/kernels/gemm/gemm_internal.h"
#include "octavo/kernels/select.h"

namespace octavo::kernels::testing {
namespace {

class PackTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const std::string name = isa_name(GetParam());
    if (!is_built(GetParam())) GTEST_SKIP() << name << " is not in this build";
    if (!supports(cpu_features(), GetParam())) GTEST_SKIP() << name << " is not on this machine";
    kernels_ = pack_kernels(GetParam());  // throws if it is not in gemm_manifest.inc
  }
  PackKernels kernels_ = {};
};

class PackWeights : public PackTest {};
class UnpackWeights : public PackTest {};
class PackActivations : public PackTest {};
OCTAVO_FOR_EACH_ISA(PackWeights);
OCTAVO_FOR_EACH_ISA(UnpackWeights);
OCTAVO_FOR_EACH_ISA(PackActivations);

std::size_t up_to_multiple(std::size_t n, std::size_t of) { return (n + of - 1) / of * of; }

std::uint32_t load(const std::uint8_t* from, std::size_t size) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, from, size);
  return bits;
}

void append(std::vector<std::uint8_t>& bytes, std::uint32_t bits, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::uint8_t>(bits >> 8 * i));
}

// A matrix of `rows` x `cols`, stored row-major or transposed, that ends where memory ends.
struct Source {
  Format format;
  std::size_t rows, cols, stride;
  bool transposed;
  GuardedBytes bytes;

  Source(Format f, std::size_t r, std::size_t c, std::size_t gap, bool columns, bool at_start)
      : format(f),
        rows(r),
        cols(c),
        stride((columns ? r : c) + gap),
        transposed(columns),
        bytes(((columns ? c : r) - 1) * stride * bytes_of(f) + (columns ? r : c) * bytes_of(f),
              at_start) {}

  // Zero outside.
  std::uint32_t operator()(std::size_t r, std::size_t c) const {
    if (r >= rows || c >= cols) return 0;
    const std::size_t at = transposed ? c * stride + r : r * stride + c;
    return load(bytes.data() + at * bytes_of(format), bytes_of(format));
  }
};

std::uint32_t flushed_bf16(std::uint32_t bits, float below) {
  return std::abs(decode<Format::bf16>(static_cast<std::uint16_t>(bits))) < below ? 0 : bits;
}

// Of all strips.
std::vector<std::uint8_t> expected_weights(const Source& w) {
  std::vector<std::uint8_t> packed;
  const std::size_t size = bytes_of(w.format);
  const auto put = [&](std::size_t n, std::size_t k) {
    const std::uint32_t bits = w(n, k);
    append(packed, size == 2 ? flushed_bf16(bits, 0x1p-40f) : bits, size);
  };
  for (std::size_t strip = 0; strip < w.rows; strip += 32) {
    for (std::size_t k = 0; k < w.cols; k += 2) {
      if (size == 1) {
        for (std::size_t lane = 0; lane < 4; ++lane) {
          for (const std::size_t first : {4 * lane, 16 + 4 * lane}) {
            for (std::size_t n = strip + first; n < strip + first + 4; ++n)
              put(n, k), put(n, k + 1);
          }
        }
      } else if (size == 2) {
        for (std::size_t n = strip; n < strip + 32; ++n) put(n, k), put(n, k + 1);
      } else {
        for (std::size_t n = strip; n < strip + 32; ++n) put(n, k);
        for (std::size_t n = strip; n < strip + 32; ++n) put(n, k + 1);
      }
    }
  }
  return packed;
}

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

std::uint32_t f32_bits(Format format, std::uint32_t bits, float flush_below) {
  const auto code = static_cast<std::uint8_t>(bits);
  switch (format) {
    case Format::f32:
      return bits;
    case Format::bf16:
      return bits_of(
          decode<Format::bf16>(static_cast<std::uint16_t>(flushed_bf16(bits, flush_below))));
    case Format::e4m3fn:
      return bits_of(decode<Format::e4m3fn>(code));
    case Format::e5m2:
      return bits_of(decode<Format::e5m2>(code));
    case Format::e4m3fnuz:
      return bits_of(decode<Format::e4m3fnuz>(code));
    default:
      return bits_of(decode<Format::e5m2fnuz>(code));
  }
}

// As gemm.h says: up to 48 rows one panel, up to 95 two equal ones, then 48 each.
std::size_t height_of_panels(std::size_t rows) {
  if (rows <= 48) return rows;
  return rows <= 95 ? (rows + 1) / 2 : 48;
}

// Of all panels.
std::vector<std::uint8_t> expected_activations(const Source& a, Arithmetic arithmetic,
                                               float flush_below) {
  std::vector<std::uint8_t> packed;
  const std::size_t panel = height_of_panels(a.rows);
  const std::size_t step = arithmetic == Arithmetic::fma ? 1 : 2;
  for (std::size_t chunk = 0; chunk < a.cols; chunk += 128) {
    for (std::size_t first = 0; first < a.rows; first += panel) {
      for (std::size_t k = chunk; k < chunk + 128; k += step) {
        for (std::size_t m = first; m < first + panel; ++m) {
          const std::uint32_t even = f32_bits(a.format, a(m, k), flush_below);
          if (step == 1) append(packed, even, 4);
          if (step == 1) continue;
          append(packed, even >> 16, 2);
          append(packed, f32_bits(a.format, a(m, k + 1), flush_below) >> 16, 2);
        }
      }
    }
  }
  return packed;
}

// Whether `packed` is `expected` in the bytes that `written` says, and untouched elsewhere.
constexpr std::uint8_t kUntouched = 0xA5;
bool is_written_only_where(const GuardedBytes& packed, const std::vector<std::uint8_t>& expected,
                           const std::function<bool(std::size_t)>& written) {
  if (packed.size() != expected.size()) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (packed.data()[i] != (written(i) ? expected[i] : kUntouched)) return false;
  }
  return true;
}

struct Range {
  std::size_t begin, end;
  bool contains(std::size_t i) const { return i >= begin && i < end; }
};

Range any_range(std::size_t count) {
  if (*rc::gen::arbitrary<bool>()) return {0, count};
  const auto begin = *rc::gen::inRange<std::size_t>(0, count + 1);
  return {begin, *rc::gen::inRange<std::size_t>(begin, count + 1)};
}

std::size_t any_size(std::size_t most) {
  return *rc::gen::weightedOneOf<std::size_t>(
      {{2, rc::gen::inRange<std::size_t>(1, 8)},
       {3, rc::gen::inRange<std::size_t>(1, most)},
       {1, rc::gen::element<std::size_t>(16, 32, 48, 64, 96, 128)}});
}

Source any_source(Format format, std::size_t most_rows, std::size_t most_cols) {
  const std::size_t rows = any_size(most_rows), cols = any_size(most_cols);
  return Source(format, rows, cols, *rc::gen::element<std::size_t>(0, 0, 1, 5, 64),
                *rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>());
}

void fill(Source& source, std::mt19937& random, bool all_patterns) {
  if (bytes_of(source.format) == 1) return fill_bytes(source.bytes, random);
  fill_floats(source.bytes, source.format, random, all_patterns);
}

PackWeightsArgs whole_weight(const Source& w, void* packed) {
  return {w.format, w.bytes.data(), w.stride, w.transposed,
          w.rows,   w.cols,         0,        up_to_multiple(w.rows, 32) / 32,
          packed,   false};
}

TEST_P(PackWeights, OnAnyShape) {
  EXPECT_TRUE(check_often([this] {
    const Format format = *rc::gen::element(Format::e4m3fn, Format::e5m2fnuz, Format::e4m3fn,
                                            Format::bf16, Format::f32);
    Source w = any_source(format, 200, 400);
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    fill(w, random, *rc::gen::arbitrary<bool>());
    GuardedBytes packed(packed_weight_bytes(format, w.rows, w.cols), *rc::gen::arbitrary<bool>());
    packed.fill(kUntouched);

    PackWeightsArgs args = whole_weight(w, packed.data());
    const Range strips = any_range(args.strip_end);
    args.strip_begin = strips.begin;
    args.strip_end = strips.end;
    args.stream = *rc::gen::arbitrary<bool>();
    kernels_.pack_weights(args);
    const std::size_t strip_bytes = (w.cols + 1) / 2 * packed_tile_bytes(format);
    RC_ASSERT(is_written_only_where(packed, expected_weights(w), [&](std::size_t i) {
      return strips.contains(i / strip_bytes);
    }));
  }));
}

// In parts of k and of rows, each from memory of its own: nothing differs.
TEST_P(PackWeights, InParts) {
  EXPECT_TRUE(check_often([this] {
    const Format format = *rc::gen::element(Format::e4m3fn, Format::bf16, Format::f32);
    Source w = any_source(format, 100, 300);
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    fill(w, random, true);
    GuardedBytes packed(packed_weight_bytes(format, w.rows, w.cols));
    const std::size_t size = bytes_of(format);
    for (std::size_t k = 0; k < w.cols;) {
      const auto step = 2 * *rc::gen::inRange<std::size_t>(1, 60);
      PackWeightsArgs part = whole_weight(w, packed.data() + k / 2 * packed_tile_bytes(format));
      part.src = w.bytes.data() + k * (w.transposed ? w.stride : 1) * size;
      part.k = std::min(step, w.cols - k);
      part.whole_k = w.cols;
      kernels_.pack_weights(part);
      k += part.k;
    }
    RC_ASSERT(is_written_only_where(packed, expected_weights(w), [](std::size_t) { return true; }));
  }));
}

TEST_P(PackWeights, ATileByHand) {
  std::uint8_t w[32][2];
  for (std::size_t n = 0; n < 32; ++n) {
    w[n][0] = static_cast<std::uint8_t>(n);
    w[n][1] = static_cast<std::uint8_t>(100 + n);
  }
  alignas(64) std::uint8_t tile[64];
  kernels_.pack_weights({Format::e4m3fn, w, 2, false, 32, 2, 0, 1, tile, false});
  const std::uint8_t lane1[16] = {4,  104, 5,  105, 6,  106, 7,  107,
                                  20, 120, 21, 121, 22, 122, 23, 123};
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(tile[16 + i], lane1[i]) << i;
}

TEST_P(PackWeights, Bf16BelowTheThresholdIsZero) {
  std::uint16_t w[65536];
  for (std::uint32_t i = 0; i < 65536; ++i) w[i] = static_cast<std::uint16_t>(i);
  for (const bool transposed : {false, true}) {
    // One row of K = 65536, or one of 65536 columns: all dwords of n = 0.
    GuardedBytes packed(packed_weight_bytes(Format::bf16, 1, 65536));
    kernels_.pack_weights({Format::bf16, w, transposed ? 1u : 65536u, transposed, 1, 65536, 0, 1,
                           packed.data(), false});
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const bool tiny = (i & 0x7FFF) < 0x2B80;  // 2^-40
      ASSERT_EQ(load(packed.data() + i / 2 * 128 + i % 2 * 2, 2), tiny ? 0 : i);
    }
  }
}

TEST_P(UnpackWeights, GivesBackWhatWasPacked) {
  EXPECT_TRUE(check_often([this] {
    const Format format =
        *rc::gen::element(Format::e5m2, Format::e4m3fn, Format::bf16, Format::f32);
    Source w = any_source(format, 200, 400);
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    fill(w, random, *rc::gen::arbitrary<bool>());
    GuardedBytes packed(packed_weight_bytes(format, w.rows, w.cols), *rc::gen::arbitrary<bool>());
    const PackWeightsArgs all = whole_weight(w, packed.data());
    kernels_.pack_weights(all);

    const std::size_t size = bytes_of(format);
    Source dst(format, w.rows, w.cols, *rc::gen::element<std::size_t>(0, 0, 3, 64), false,
               *rc::gen::arbitrary<bool>());
    dst.bytes.fill(kUntouched);
    const Range strips = any_range(all.strip_end);
    kernels_.unpack_weights({format, packed.data(), w.rows, w.cols, strips.begin, strips.end,
                             dst.bytes.data(), dst.stride});
    for (std::size_t i = 0; i < dst.bytes.size() / size; ++i) {
      const std::size_t n = i / dst.stride, k = i % dst.stride;
      std::uint32_t expected = load(std::vector<std::uint8_t>(4, kUntouched).data(), size);
      if (k < w.cols && strips.contains(n / 32)) {
        expected = size == 2 ? flushed_bf16(w(n, k), 0x1p-40f) : w(n, k);
      }
      RC_ASSERT(load(dst.bytes.data() + i * size, size) == expected);
    }
  }));
}

TEST_P(PackActivations, OnAnyShape) {
  EXPECT_TRUE(check_often([this] {
    const Format format =
        *rc::gen::element(Format::f32, Format::f32, Format::bf16, Format::bf16, Format::e4m3fn,
                          Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz);
    const Arithmetic arithmetic =
        format != Format::f32 && *rc::gen::arbitrary<bool>() ? Arithmetic::dot : Arithmetic::fma;
    Source a = any_source(format, 150, 400);
    std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
    fill(a, random, *rc::gen::arbitrary<bool>());
    GuardedBytes packed(packed_activation_bytes(arithmetic, a.rows, a.cols));
    packed.fill(kUntouched);

    const std::size_t height = height_of_panels(a.rows);
    const std::size_t panel_count = (a.rows + height - 1) / height;
    const Range chunks = any_range((a.cols + 127) / 128), panels = any_range(panel_count);
    const float flush_below = *rc::gen::element(0.0f, kFlushAgainstFp8, kFlushAgainstBf16);
    kernels_.pack_activations({format, a.bytes.data(), a.stride, a.transposed, a.rows, a.cols,
                               arithmetic, flush_below, chunks.begin, chunks.end, panels.begin,
                               panels.end, packed.data()});
    const std::size_t panel_bytes = height * (arithmetic == Arithmetic::fma ? 512 : 256);
    RC_ASSERT(is_written_only_where(
        packed, expected_activations(a, arithmetic, flush_below), [&](std::size_t i) {
          const std::size_t panel = i / panel_bytes;
          return chunks.contains(panel / panel_count) && panels.contains(panel % panel_count);
        }));
  }));
}

TEST_P(PackActivations, InPartsOfRows) {
  for (const bool transposed : {false, true}) {
    for (const Format format : {Format::f32, Format::bf16, Format::e4m3fn}) {
      Source a(format, 130, 200, 3, transposed, false);
      std::mt19937 random(11);
      fill(a, random, true);
      GuardedBytes packed(packed_activation_bytes(Arithmetic::fma, a.rows, a.cols));
      for (std::size_t panel = 0; panel < 3; ++panel) {
        const std::size_t from = panel * 48 * (transposed ? 1 : a.stride) * bytes_of(format);
        kernels_.pack_activations({format, a.bytes.data() + from, a.stride, transposed, a.rows,
                                   a.cols, Arithmetic::fma, 0, 0, 2, panel, panel + 1,
                                   packed.data(), panel * 48});
      }
      ASSERT_TRUE(is_written_only_where(packed, expected_activations(a, Arithmetic::fma, 0),
                                        [](std::size_t) { return true; }))
          << format_name(format) << ", transposed " << transposed;
    }
  }
}

// As one row, as few and as many rows and transposed, because these are different code.
TEST_P(PackActivations, AllCodesAndAllBf16) {
  for (const Format format :
       {Format::bf16, Format::e4m3fn, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz}) {
    for (const std::size_t rows : {1, 2, 16}) {
      for (const bool transposed : {false, true}) {
        const std::size_t count = std::size_t{1} << bits_per_element(format);
        Source a(format, rows, count / rows, 0, transposed, false);
        for (std::size_t i = 0; i < count; ++i) {
          std::memcpy(a.bytes.data() + i * bytes_of(format), &i, bytes_of(format));
        }
        for (const Arithmetic arithmetic : {Arithmetic::fma, Arithmetic::dot}) {
          for (const float flush_below : {0.0f, kFlushAgainstFp8, kFlushAgainstBf16}) {
            GuardedBytes packed(packed_activation_bytes(arithmetic, a.rows, a.cols));
            kernels_.pack_activations({format, a.bytes.data(), a.stride, transposed, a.rows, a.cols,
                                       arithmetic, flush_below, 0, (a.cols + 127) / 128, 0, 1,
                                       packed.data()});
            ASSERT_TRUE(is_written_only_where(packed,
                                              expected_activations(a, arithmetic, flush_below),
                                              [](std::size_t) { return true; }))
                << format_name(format) << ", " << rows << " rows, transposed " << transposed
                << ", flush below " << flush_below;
          }
        }
      }
    }
  }
}

TEST_P(PackActivations, TheNanOfFnuzIsNan) {
  for (const Format format : {Format::e4m3fnuz, Format::e5m2fnuz}) {
    for (const std::size_t rows : {1, 3, 20, 50}) {
      const std::vector<std::uint8_t> codes(rows, 0x80);
      alignas(64) float cells[128 * 96];
      kernels_.pack_activations({format, codes.data(), 1, false, rows, 1, Arithmetic::fma, 0, 0, 1,
                                 0, (rows + 47) / 48, cells});
      EXPECT_TRUE(std::isnan(cells[0])) << format_name(format) << ", " << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace octavo::kernels::testing
