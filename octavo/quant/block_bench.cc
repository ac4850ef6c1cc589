// Block quantization and dequantization of a matrix that no cache holds, one thread, as a share of
// a stream that reads and writes the same bytes. Kernel and stream alternate, because memory
// bandwidth of shared machines drifts; the medians are over pairs.
//
//     block_bench [--isa generic|avx2|avx512bf16] [--pairs N]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "octavo/kernels/roof/roof.h"
#include "octavo/quant/block.h"

namespace octavo {
namespace {

using kernels::cast_kernels;
using kernels::CastKernels;

constexpr std::size_t kRows = 65536, kCols = 4096, kBlock = 128;  // bf16: 512 MiB

struct Options {
  std::vector<Isa> isas;
  int pairs = 7;
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

void quantize(const CastKernels& k, Matrix& m, std::size_t rows, ScaleRule rule, bool stream) {
  const ConstMatrix matrix{Format::bf16, m.bf16.get(), rows, kCols, kCols};
  const std::span scales(m.scale.data(), rows / kBlock * (kCols / kBlock));
  quantize_blocks(k, matrix, {.rule = rule}, {m.codes.get(), kCols}, scales, stream);
}

void dequantize(const CastKernels& k, Matrix& m, std::size_t rows, bool stream) {
  const CodeWindow codes{Format::e4m3fn, m.codes.get(), kCols, 0, 0, rows, kCols};
  const std::span scales(m.scale.data(), rows / kBlock * (kCols / kBlock));
  dequantize_blocks(k, codes, {kBlock, kBlock}, scales,
                    {Format::bf16, m.bf16.get(), kCols, false, stream, nullptr});
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
bool check(const CastKernels& k, Matrix& m) {
  const CastKernels& reference = cast_kernels(Isa::generic);
  constexpr std::size_t kRowsChecked = 2 * kBlock;
  constexpr std::size_t kCount = kRowsChecked * kCols;
  const std::vector<std::uint16_t> weights(m.bf16.get(), m.bf16.get() + kCount);
  for (const ScaleRule rule : {ScaleRule::transformers, ScaleRule::deepseek}) {
    quantize(reference, m, kRowsChecked, rule, false);
    const std::vector<std::uint8_t> codes(m.codes.get(), m.codes.get() + kCount);
    const std::vector<float> scale = m.scale;
    quantize(k, m, kRowsChecked, rule, true);
    if (!std::equal(codes.begin(), codes.end(), m.codes.get()) || scale != m.scale) return false;
  }
  dequantize(reference, m, kRowsChecked, false);
  const std::vector<std::uint16_t> values(m.bf16.get(), m.bf16.get() + kCount);
  dequantize(k, m, kRowsChecked, true);
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

// Packed e2m1fn in 1x32 groups: the code bytes as they lie.
void dequantize_fp4(const CastKernels& k, Matrix& m, const std::vector<float>& scale) {
  const CodeWindow codes{Format::e2m1fn, m.codes.get(), kCols / 2, 0, 0, kRows, kCols};
  dequantize_blocks(k, codes, {1, 32}, scale,
                    {Format::bf16, m.bf16.get(), kCols, false, true, nullptr});
}

void cast_floats(const CastKernels& k, Matrix& m) {
  k.cast({Format::f32, m.bf16.get(), Format::e4m3fn, m.codes.get(), kRows * kCols / 2,
          Overflow::saturate});
}

void run(Isa isa, Matrix& m, int pairs) {
  const CastKernels& k = cast_kernels(isa);
  if (!check(k, m)) {
    fmt::print("{}: results differ from the reference\n", isa_name(isa));
    std::exit(1);
  }
  const double elements = double{kRows} * kCols;
  constexpr std::size_t kSteps = kRows * kCols / 64;
  const auto roof = [&](const void* from, std::size_t in, void* to, std::size_t out,
                        std::size_t steps) {
    return [=] { kernels::stream({from, in, to, out, steps}); };
  };
  std::uint16_t* wide = m.bf16.get();
  std::uint8_t* codes = m.codes.get();
  const char* name = isa_name(isa);
  report(name, "quantize bf16 128x128, transformers", 3 * elements, pairs,
         roof(wide, 2, codes, 1, kSteps),
         [&] { quantize(k, m, kRows, ScaleRule::transformers, true); });
  report(name, "quantize bf16 128x128, deepseek", 3 * elements, pairs,
         roof(wide, 2, codes, 1, kSteps),
         [&] { quantize(k, m, kRows, ScaleRule::deepseek, true); });
  report(name, "cast f32 -> e4m3fn", 2.5 * elements, pairs, roof(wide, 4, codes, 1, kSteps / 2),
         [&] { cast_floats(k, m); });
  quantize(k, m, kRows, ScaleRule::transformers, true);
  // Writes the weights anew, so that the next level starts from what this one had.
  report(name, "dequantize e4m3fn 128x128 -> bf16", 3 * elements, pairs,
         roof(codes, 1, wide, 2, kSteps), [&] { dequantize(k, m, kRows, true); });
  const std::vector<float> scale(kRows * kCols / 32, 0x1p-6f);
  report(name, "dequantize e2m1fn 1x32 -> bf16", 2.5 * elements, pairs,
         roof(codes, 1, wide, 4, kSteps / 2), [&] { dequantize_fp4(k, m, scale); });
  fill(m);
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (value == nullptr) {
      return false;
    } else if (flag == "--pairs") {
      o.pairs = std::max(1, std::atoi(argv[++i]));
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
}  // namespace octavo

int main(int argc, char** argv) {
  using namespace octavo;
  Options options;
  for (const Isa isa : {Isa::avx512bf16, Isa::avx2}) {
    if (kernels::is_built(isa) && supports(cpu_features(), isa)) options.isas.push_back(isa);
  }
  if (!parse(argc, argv, options)) {
    fmt::print(stderr, "usage: block_bench [--isa LEVEL] [--pairs N]\n");
    return 2;
  }
  fmt::print("{}, one thread, {} x {}, median of {} pairs\n", cpu_features().model, kRows, kCols,
             options.pairs);
  fmt::print("{:<11} {:<34} {:>12} {:>12} {:>8} {}\n", "level", "kernel", "read+write", "stream",
             "share", "[least, most]");
  Matrix matrix;
  fill(matrix);
  for (const Isa isa : options.isas) run(isa, matrix, options.pairs);
  return 0;
}
