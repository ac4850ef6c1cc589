// Block quantization and dequantization of a matrix that no cache holds, one thread, as a share of
// a stream that reads and writes the same bytes. Kernel and stream alternate, because memory
// bandwidth of shared machines drifts; the medians are over pairs.
//
//     cast_bench [--isa generic|avx2|avx512bf16] [--pairs N] [--chunk COLUMNS] [--no-stream]
//     [--no-prefetch]
//
// quantize_rows and dequantize_rows are the way to drive the kernels: a block row in chunks of some
// columns, the next chunk prefetched while this one is written, results stored past the caches.
#include <emmintrin.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "octavo/kernels/cast/cast_internal.h"
#include "octavo/kernels/select.h"

namespace octavo::kernels {
namespace {

constexpr std::size_t kRows = 65536, kCols = 4096, kBlock = 128;  // bf16: 512 MiB

struct Options {
  std::vector<Isa> isas;
  int pairs = 7;
  std::size_t chunk = 512;
  bool stream = true;
  bool prefetch = true;
};

struct Free {
  void operator()(void* p) const { std::free(p); }
};
template <class T>
using Array = std::unique_ptr<T[], Free>;

template <class T>
Array<T> allocate(std::size_t count) {
  return Array<T>(static_cast<T*>(std::aligned_alloc(4096, count * sizeof(T))));
}

struct Matrix {
  Array<std::uint16_t> bf16 = allocate<std::uint16_t>(kRows * kCols);
  Array<std::uint8_t> codes = allocate<std::uint8_t>(kRows * kCols);
  std::vector<float> scale = std::vector<float>(kRows / kBlock * (kCols / kBlock));
};

void quantize_rows(const CastKernels& k, Matrix& m, std::size_t rows, ScaleOp op,
                   const Options& o) {
  std::vector<std::uint32_t> amax(o.chunk / kBlock);
  std::vector<float> factor(amax.size());
  for (std::size_t r = 0; r < rows; r += kBlock) {
    for (std::size_t c = 0; c < kCols; c += o.chunk) {
      const std::uint16_t* src = m.bf16.get() + r * kCols + c;
      const bool row_ends = c + o.chunk == kCols;
      const std::uint16_t* next = row_ends ? m.bf16.get() + (r + kBlock) * kCols : src + o.chunk;
      if (row_ends && r + kBlock == rows) next = nullptr;
      std::fill(amax.begin(), amax.end(), 0u);
      k.block_amax({Format::bf16, src, kCols, kBlock, o.chunk, kBlock, amax.data()});
      for (std::size_t b = 0; b < amax.size(); ++b) {
        const std::uint32_t bits = amax[b] << 16;
        float largest;
        std::memcpy(&largest, &bits, 4);
        const float scale = largest / 448.0f;
        m.scale[r / kBlock * (kCols / kBlock) + c / kBlock + b] = scale;
        factor[b] = op == ScaleOp::divide ? scale : 448.0f / largest;
      }
      k.block_quantize({Format::bf16, src, kCols, kBlock, o.chunk, kBlock, factor.data(), op,
                        m.codes.get() + r * kCols + c, kCols, o.prefetch ? next : nullptr,
                        o.stream});
    }
  }
}

void dequantize_rows(const CastKernels& k, Matrix& m, std::size_t rows, Format format,
                     const Options& o) {
  DequantizeCounts counts = {};
  for (std::size_t r = 0; r < rows; r += kBlock) {
    for (std::size_t c = 0; c < kCols; c += o.chunk) {
      const std::uint8_t* codes = m.codes.get() + r * kCols + c;
      const bool row_ends = c + o.chunk == kCols;
      const std::uint8_t* next = row_ends ? m.codes.get() + (r + kBlock) * kCols : codes + o.chunk;
      if (row_ends && r + kBlock == rows) next = nullptr;
      k.block_dequantize({format, codes, kCols, kBlock, o.chunk, kBlock,
                          m.scale.data() + r / kBlock * (kCols / kBlock) + c / kBlock, Format::bf16,
                          m.bf16.get() + r * kCols + c, kCols, false, &counts,
                          o.prefetch ? next : nullptr, o.stream});
    }
  }
}

// Reads and writes with nothing in between: `in` and `out` lines of 64 bytes at a time.
template <int kIn, int kOut>
void stream_lines(const void* from, void* to, std::size_t steps) {
  const auto* src = static_cast<const __m128i*>(from);
  auto* dst = static_cast<__m128i*>(to);
  for (std::size_t i = 0; i < steps; ++i, src += 4 * kIn, dst += 4 * kOut) {
    __m128i line[4] = {};
    for (int k = 0; k < 4 * kIn; ++k)
      line[k % 4] = _mm_or_si128(line[k % 4], _mm_load_si128(src + k));
    for (int k = 0; k < 4 * kOut; ++k) _mm_stream_si128(dst + k, line[k % 4]);
  }
  _mm_sfence();
}

// Of this thread, so that a machine that others use too can be measured on.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds(const std::function<void()>& work) {
  const double start = thread_seconds();
  work();
  return thread_seconds() - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void report(std::string_view isa, std::string_view name, double bytes, int pairs,
            const std::function<void()>& roof, const std::function<void()>& kernel) {
  std::vector<double> share, rate, roof_rate;
  for (int i = -1; i < pairs; ++i) {  // the first pair warms up
    const double before = seconds(roof);
    const double time = seconds(kernel);
    const double limit = (before + seconds(roof)) / 2;
    if (i < 0) continue;
    share.push_back(limit / time);
    rate.push_back(bytes / time / 1e9);
    roof_rate.push_back(bytes / limit / 1e9);
  }
  const auto [low, high] = std::minmax_element(share.begin(), share.end());
  fmt::print("{:<11} {:<34} {:7.2f} GB/s {:7.2f} GB/s {:6.1f} % [{:.1f}, {:.1f}]\n", isa, name,
             median(rate), median(roof_rate), 100 * median(share), 100 * *low, 100 * *high);
  std::fflush(stdout);
}

// The first two block rows, against the reference.
bool check(const CastKernels& k, Matrix& m, const Options& o) {
  const CastKernels& reference = cast_kernels(Isa::generic);
  constexpr std::size_t kCount = 2 * kBlock * kCols;
  Options plain = o;
  plain.stream = plain.prefetch = false;
  const std::vector<std::uint16_t> weights(m.bf16.get(), m.bf16.get() + kCount);
  for (const ScaleOp op : {ScaleOp::multiply, ScaleOp::divide}) {
    quantize_rows(reference, m, 2 * kBlock, op, plain);
    const std::vector<std::uint8_t> codes(m.codes.get(), m.codes.get() + kCount);
    const std::vector<float> scale = m.scale;
    quantize_rows(k, m, 2 * kBlock, op, o);
    if (!std::equal(codes.begin(), codes.end(), m.codes.get()) || scale != m.scale) return false;
  }
  dequantize_rows(reference, m, 2 * kBlock, Format::e4m3fn, plain);
  const std::vector<std::uint16_t> values(m.bf16.get(), m.bf16.get() + kCount);
  dequantize_rows(k, m, 2 * kBlock, Format::e4m3fn, o);
  const bool equal = std::equal(values.begin(), values.end(), m.bf16.get());
  std::copy(weights.begin(), weights.end(), m.bf16.get());
  return equal;
}

void fill(Matrix& m) {
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i < kRows * kCols;
       i += 4) {  // Gaussian enough: sign and mantissa random, exponent binomial
    std::uint64_t bits = random();
    for (std::size_t k = 0; k < 4; ++k, bits >>= 16) {
      const auto exponent = static_cast<std::uint64_t>(__builtin_popcountll(bits >> 8 & 0x7F));
      m.bf16[i + k] = static_cast<std::uint16_t>((bits & 0x807F) | (118 + exponent) << 7);
    }
  }
  std::memset(m.codes.get(), 0, kRows * kCols);
}

// All e4m3fn codes of 32 columns of packed e2m1fn: 1x32 groups over the code bytes as they lie.
void dequantize_fp4(const CastKernels& k, Matrix& m, const std::vector<float>& scale,
                    const Options& o) {
  DequantizeCounts counts = {};
  for (std::size_t r = 0; r < kRows; ++r) {
    k.block_dequantize({Format::e2m1fn, m.codes.get() + r * kCols / 2, kCols / 2, 1, kCols, 32,
                        scale.data(), Format::bf16, m.bf16.get() + r * kCols, kCols, false, &counts,
                        o.prefetch && r + 1 < kRows ? m.codes.get() + (r + 1) * kCols / 2 : nullptr,
                        o.stream});
  }
}

void cast_floats(const CastKernels& k, Matrix& m) {
  k.cast({Format::f32, m.bf16.get(), Format::e4m3fn, m.codes.get(), kRows * kCols / 2,
          Overflow::saturate});
}

void run(Isa isa, Matrix& m, const Options& o) {
  const CastKernels& k = cast_kernels(isa);
  if (!check(k, m, o)) {
    fmt::print("{}: results differ from the reference\n", isa_name(isa));
    std::exit(1);
  }
  const double elements = double{kRows} * kCols;
  const auto roof_down = [&] {
    stream_lines<2, 1>(m.bf16.get(), m.codes.get(), kRows * kCols / 64);
  };
  const auto roof_up = [&] { stream_lines<1, 2>(m.codes.get(), m.bf16.get(), kRows * kCols / 64); };
  const auto roof_fp4 = [&] {
    stream_lines<1, 4>(m.codes.get(), m.bf16.get(), kRows * kCols / 128);
  };
  const auto roof_f32 = [&] {
    stream_lines<4, 1>(m.bf16.get(), m.codes.get(), kRows * kCols / 128);
  };
  report(isa_name(isa), "block_quantize multiply bf16 128x128", 3 * elements, o.pairs, roof_down,
         [&] { quantize_rows(k, m, kRows, ScaleOp::multiply, o); });
  report(isa_name(isa), "block_quantize divide bf16 128x128", 3 * elements, o.pairs, roof_down,
         [&] { quantize_rows(k, m, kRows, ScaleOp::divide, o); });
  // Writes the weights anew, so that the next level starts from what this one had.
  report(isa_name(isa), "cast f32 -> e4m3fn", 2.5 * elements, o.pairs, roof_f32,
         [&] { cast_floats(k, m); });
  quantize_rows(k, m, kRows, ScaleOp::divide, o);
  report(isa_name(isa), "block_dequantize e4m3fn 128x128", 3 * elements, o.pairs, roof_up,
         [&] { dequantize_rows(k, m, kRows, Format::e4m3fn, o); });
  const std::vector<float> scale(kCols / 32, 0x1p-6f);
  report(isa_name(isa), "block_dequantize e2m1fn 1x32", 2.5 * elements, o.pairs, roof_fp4,
         [&] { dequantize_fp4(k, m, scale, o); });
  fill(m);
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (flag == "--no-stream") {
      o.stream = false;
    } else if (flag == "--no-prefetch") {
      o.prefetch = false;
    } else if (value == nullptr) {
      return false;
    } else if (flag == "--pairs") {
      o.pairs = std::max(1, std::atoi(argv[++i]));
    } else if (flag == "--chunk") {
      o.chunk = static_cast<std::size_t>(std::atoi(argv[++i]));
      if (o.chunk == 0 || o.chunk % kBlock != 0 || kCols % o.chunk != 0) return false;
    } else if (flag == "--isa") {
      const Result<Isa> isa = choose_isa(cpu_features(), argv[++i]);
      if (!isa) return false;
      o.isas = {*isa};
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace octavo::kernels

int main(int argc, char** argv) {
  using namespace octavo;
  using namespace octavo::kernels;
  Options options;
  for (const Isa isa : {Isa::avx512bf16, Isa::avx2}) {
    if (is_built(isa) && supports(cpu_features(), isa)) options.isas.push_back(isa);
  }
  if (!parse(argc, argv, options)) {
    fmt::print(stderr,
               "usage: cast_bench [--isa LEVEL] [--pairs N] [--chunk COLUMNS (a divisor of {} and "
               "a multiple "
               "of {})] [--no-stream] [--no-prefetch]\n",
               kCols, kBlock);
    return 2;
  }
  fmt::print("{}, one thread, {} x {}, chunks of {} columns, median of {} pairs\n",
             cpu_features().model, kRows, kCols, options.chunk, options.pairs);
  fmt::print("{:<11} {:<34} {:>12} {:>12} {:>8} {}\n", "level", "kernel", "read+write", "stream",
             "share", "[least, most]");
  Matrix matrix;
  fill(matrix);
  for (const Isa isa : options.isas) run(isa, matrix, options);
  return 0;
}
