// quantize, dequantize and cast: a matrix (n, k) that no cache holds, through the kernels of the
// selected level, against a stream that reads and writes the same bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "bench_case.h"
#include "bench_roof.h"
#include "octavo/base/ceil_div.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/select.h"
#include "octavo/quant/block.h"

namespace octavo::app {
namespace {

using kernels::CastKernels;

constexpr std::size_t kBand = 128;  // rows of a block
constexpr std::size_t kRows = 65536, kCols = 4096, kQuickRows = 512, kQuickCols = 1024;

// Rows of a band, or several bands: `in`, `out` and `scales` are at its first row.
struct BandArgs {
  const std::uint8_t* in;
  std::uint8_t* out;
  std::span<float> scales;
  std::size_t rows, k;
};

struct StreamOp {
  const char* op;
  std::string formats;
  std::size_t in_bits, out_bits;       // of an element
  std::size_t in_lines, out_lines;     // the roof's mix
  std::size_t scale_rows, scale_cols;  // elements that share one; kBand, 0: no scales
  bool codes_in;                       // in is FP8 codes, not floats
  bool writes_scales;                  // or reads them
  std::function<void(const CastKernels&, const BandArgs&)> run;
};

// `copies` matrices one after another.
struct StreamData {
  std::size_t n, k, copies;
  std::size_t in_row, out_row;  // bytes
  std::size_t scale_rows;       // rows that share scales
  std::size_t row_scales;       // scales of such rows; 0: none
  AlignedBytes in, out;
  std::vector<float> scales;

  std::size_t bands() const { return ceil_div(n, kBand); }                     // of one copy
  std::size_t band_scales() const { return kBand / scale_rows * row_scales; }  // of a whole band
  BandArgs band(std::size_t copy, std::size_t first, std::size_t count) {
    const std::size_t row = copy * n + first * kBand;
    const std::size_t rows = std::min(count * kBand, n - first * kBand);
    return {in.data() + row * in_row, out.data() + row * out_row,
            std::span(scales).subspan((copy * bands() + first) * band_scales(),
                                      ceil_div(rows, scale_rows) * row_scales),
            rows, k};
  }
};

// Floats: sign and mantissa of bf16 random, exponent binomial, Gaussian enough; as f32 they are
// such with further mantissa bits below. Codes: all that are not NaN. A MiB of them, repeated.
void fill(AlignedBytes& bytes, bool codes) {
  constexpr std::size_t kPeriod = 1 << 20;
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i + 8 <= std::min(bytes.size(), kPeriod); i += 8) {
    std::uint64_t bits = random();
    if (codes) {
      const std::uint64_t magnitudes = bits & 0x7F7F7F7F7F7F7F7F;
      bits ^= ((magnitudes + 0x0101010101010101) & 0x8080808080808080) >> 7;  // 0x7F to 0x7E
    } else {
      std::uint64_t word = 0;
      for (int shift = 0; shift < 64; shift += 16) {
        const std::uint64_t x = bits >> shift;
        const auto exponent = static_cast<std::uint64_t>(__builtin_popcountll(x >> 8 & 0x7F));
        word |= ((x & 0x807F) | (118 + exponent) << 7) << shift;
      }
      bits = word;
    }
    std::memcpy(bytes.data() + i, &bits, 8);
  }
  for (std::size_t i = kPeriod; i < bytes.size(); i += kPeriod)
    std::memcpy(bytes.data() + i, bytes.data(), std::min(kPeriod, bytes.size() - i));
}

std::shared_ptr<StreamData> make_data(const StreamOp& op, std::size_t n, std::size_t k,
                                      const BenchContext& context) {
  auto data = std::make_shared<StreamData>();
  data->n = n;
  data->k = k;
  data->in_row = ceil_div(k * op.in_bits, 8);
  data->out_row = ceil_div(k * op.out_bits, 8);
  const std::size_t copy_bytes = n * (data->in_row + data->out_row);
  data->copies = ceil_div(context.memory_bytes, copy_bytes);
  data->in = AlignedBytes(data->copies * n * data->in_row);
  data->out = AlignedBytes(data->copies * n * data->out_row);
  fill(data->in, op.codes_in);
  std::memset(data->out.data(), 0, data->out.size());
  data->scale_rows = op.scale_rows;
  data->row_scales = op.scale_cols == 0 ? 0 : ceil_div(k, op.scale_cols);
  data->scales.resize(data->copies * data->bands() * data->band_scales());
  for (std::size_t i = 0; i < data->scales.size(); ++i)
    data->scales[i] = 0x1p-6f * (1 + static_cast<float>(i % 8) / 8);
  return data;
}

void run_all(const StreamOp& op, const CastKernels& kernels, StreamData& data, ThreadPool& pool) {
  const std::size_t bands = data.bands();
  pool.run(pool.threads(), [&](int part) {
    Range range = split(data.copies * bands, 1, pool.threads(), part);
    while (range.begin < range.end) {
      const std::size_t copy = range.begin / bands, first = range.begin % bands;
      const std::size_t count = std::min(bands - first, range.end - range.begin);
      op.run(kernels, data.band(copy, first, count));
      range.begin += count;
    }
  });
}

// 0xFF bytes are NaN in every format that is written here.
void poison(const StreamOp& op, StreamData& data) {
  std::memset(data.out.data(), 0xFF, data.out.size());
  if (op.writes_scales)
    std::fill(data.scales.begin(), data.scales.end(), std::numeric_limits<float>::quiet_NaN());
}

// The first code of a band that differs; `first` is the band's first row.
std::string code_difference(const StreamOp& op, const StreamData& data, std::size_t first,
                            const std::uint8_t* got, const std::vector<std::uint8_t>& expected) {
  const std::size_t bytes = op.out_bits / 8;
  const auto at = static_cast<std::size_t>(
      std::mismatch(expected.begin(), expected.end(), got).first - expected.begin());
  const std::size_t element = at / bytes * bytes;
  const auto code = [&](const std::uint8_t* from) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, from + element, bytes);
    return bits;
  };
  return fmt::format("({}, {}) is code {:#x}, expected {:#x}", first + at / data.out_row,
                     at % data.out_row / bytes, code(got), code(expected.data()));
}

// What a run of all left, at the ends of each thread's share.
Checked compare(const StreamOp& op, StreamData& data, int threads) {
  for (int part = 0; part < threads; ++part) {
    const Range range = split(data.copies * data.bands(), 1, threads, part);
    if (range.begin == range.end) continue;
    for (const std::size_t i : {range.begin, range.end - 1}) {
      const BandArgs band = data.band(i / data.bands(), i % data.bands(), 1);
      std::vector<std::uint8_t> out(band.rows * data.out_row);
      std::vector<float> scales(band.scales.begin(), band.scales.end());
      op.run(kernels::cast_kernels(Isa::generic), {band.in, out.data(), scales, band.rows, band.k});
      if (!std::equal(out.begin(), out.end(), band.out))
        return std::unexpected(code_difference(op, data, i * kBand, band.out, out));
      for (std::size_t s = 0; s < scales.size(); ++s) {
        if (scales[s] != band.scales[s])
          return std::unexpected(fmt::format("scale {} of rows {} to {} is {}, expected {}", s,
                                             i * kBand, i * kBand + band.rows - 1, band.scales[s],
                                             scales[s]));
      }
    }
  }
  return 0.0;
}

Result<PreparedCase> prepare(const StreamOp& op, std::size_t n, std::size_t k, int threads,
                             BenchContext& context) {
  if (op.in_bits % 8 != 0 && k % 2 != 0)
    return fail(ErrorCode::bad_value, fmt::format("--k {}: {} needs an even one", k, op.formats));
  OCTAVO_CHECK(check_memory(context, ceil_div(n * k * (op.in_bits + op.out_bits), 8)));
  const std::shared_ptr<StreamData> data = make_data(op, n, k, context);
  const CastKernels& kernels = kernels::cast_kernels(context.isa);
  ThreadPool& pool = context.pool(threads);
  const std::size_t steps =
      std::min(data->in.size() / (64 * op.in_lines), data->out.size() / (64 * op.out_lines));
  PreparedCase prepared;
  prepared.check = [=, &kernels, &pool] {
    poison(op, *data);
    run_all(op, kernels, *data, pool);
    return compare(op, *data, pool.threads());
  };
  prepared.kernel = {[=, &kernels, &pool] { run_all(op, kernels, *data, pool); },
                     1e-9 * static_cast<double>(data->in.size() + data->out.size())};
  prepared.roof =
      stream_roof(pool, {data->in.data(), op.in_lines, data->out.data(), op.out_lines, steps});
  return prepared;
}

std::vector<BenchCase> cases_of(const BenchContext& context, const std::vector<StreamOp>& ops) {
  const BenchRequest& request = context.request;
  const std::size_t k = request.k != 0 ? request.k : request.quick ? kQuickCols : kCols;
  std::vector<BenchCase> cases;
  for (const StreamOp& op : ops) {
    std::size_t n = request.n != 0 ? request.n : request.quick ? kQuickRows : kRows;
    const auto bytes = [&] { return n * k * (op.in_bits + op.out_bits) / 8; };
    // Far from any roof, the scalar reference takes long.
    if (request.n == 0 && context.isa == Isa::generic) n /= 8;
    while (request.n == 0 && n > kBand && bytes() > context.most_bytes) n /= 2;
    for (const int threads : request.threads) {
      cases.push_back({op.op, 0, n, k, op.formats, threads, isa_name(context.isa), "GB/s",
                       fmt::format("stream {}:{}", op.in_lines, op.out_lines),
                       [=](BenchContext& c) { return prepare(op, n, k, threads, c); }});
    }
  }
  return cases;
}

StreamOp quantize_op(ScaleRule rule) {
  const auto run = [rule](const CastKernels& kernels, const BandArgs& band) {
    quantize_blocks(kernels, {Format::bf16, band.in, band.rows, band.k, band.k},
                    {.block = {}, .rule = rule}, {band.out, band.k}, band.scales, true);
  };
  return {"quantize", fmt::format("bf16 -> e4m3fn {}", rule_name(rule)),
          16,         8,
          2,          1,
          128,        128,
          false,      true,
          run};
}

StreamOp dequantize_op(Format format, std::size_t bits, BlockSize block, std::size_t out_lines) {
  const auto run = [=](const CastKernels& kernels, const BandArgs& band) {
    dequantize_blocks(kernels, {format, band.in, band.k * bits / 8, 0, 0, band.rows, band.k}, block,
                      band.scales, {Format::bf16, band.out, band.k, false, true, nullptr});
  };
  return {"dequantize",
          fmt::format("{} {}x{} -> bf16", format_name(format), block.rows, block.cols),
          bits,
          16,
          1,
          out_lines,
          block.rows,
          block.cols,
          true,
          false,
          run};
}

StreamOp cast_op(Format from, std::size_t bits) {
  const auto run = [=](const CastKernels& kernels, const BandArgs& band) {
    kernels.cast({from, band.in, Format::e4m3fn, band.out, band.rows * band.k, Overflow::saturate});
  };
  return {"cast",   fmt::format("{} -> e4m3fn", format_name(from)),
          bits,     8,
          bits / 8, 1,
          kBand,    0,
          false,    false,
          run};
}

}  // namespace

std::vector<BenchCase> quantize_cases(const BenchContext& context) {
  return cases_of(context,
                  {quantize_op(ScaleRule::transformers), quantize_op(ScaleRule::deepseek)});
}

std::vector<BenchCase> dequantize_cases(const BenchContext& context) {
  return cases_of(context, {dequantize_op(Format::e4m3fn, 8, {128, 128}, 2),
                            dequantize_op(Format::e2m1fn, 4, {1, 32}, 4)});
}

std::vector<BenchCase> cast_cases(const BenchContext& context) {
  return cases_of(context, {cast_op(Format::f32, 32), cast_op(Format::bf16, 16)});
}

}  // namespace octavo::app
