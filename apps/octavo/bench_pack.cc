// pack: weights (n, k) into the layout of the products (P2), from rows and from a transposed
// source, against a copy of as many bytes past the caches.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "bench_case.h"
#include "bench_roof.h"
#include "octavo/base/ceil_div.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/select.h"

namespace octavo::app {
namespace {

struct PackCase {
  Format format;
  bool transposed;
  std::size_t n, k;
  int threads;
};

// Copies one after another, each rounded up to whole lines.
struct PackData {
  PackCase row;
  std::size_t copies, source_bytes, packed_bytes;  // bytes of one copy
  AlignedBytes source, packed;

  kernels::PackWeightsArgs args(std::size_t copy, Range strips, std::uint8_t* to) const {
    return {row.format,
            source.data() + copy * source_bytes,
            row.transposed ? row.n : row.k,
            row.transposed,
            row.n,
            row.k,
            strips.begin,
            strips.end,
            to,
            true};
  }
  std::size_t strips() const { return ceil_div(row.n, kernels::kStrip); }
};

void pack(PackData& data, Isa isa, ThreadPool& pool, std::size_t copy) {
  pool.run(pool.threads(), [&](int part) {
    const Range strips = split(data.strips(), 4, pool.threads(), part);
    if (strips.begin == strips.end) return;
    kernels::pack_kernels(isa).pack_weights(
        data.args(copy, strips, data.packed.data() + copy * data.packed_bytes));
  });
}

void poison(PackData& data) { std::memset(data.packed.data(), 0xFF, data.packed.size()); }

// A copy that was packed, at the ends of each thread's share.
Checked compare(const PackData& data, std::size_t copy, int threads) {
  const std::uint8_t* got = data.packed.data() + copy * data.packed_bytes;
  AlignedBytes expected(data.packed_bytes);
  const std::size_t strip_bytes = kernels::packed_weight_bytes(data.row.format, 1, data.row.k);
  for (int part = 0; part < threads; ++part) {
    const Range range = split(data.strips(), 4, threads, part);
    if (range.begin == range.end) continue;
    for (const std::size_t strip : {range.begin, range.end - 1}) {
      kernels::pack_kernels(Isa::generic)
          .pack_weights(data.args(copy, {strip, strip + 1}, expected.data()));
      for (std::size_t i = strip * strip_bytes; i < (strip + 1) * strip_bytes; ++i) {
        if (got[i] != expected.data()[i])
          return std::unexpected(
              fmt::format("byte {} of the packed weight is {:#x}, expected {:#x}", i, got[i],
                          expected.data()[i]));
      }
    }
  }
  return 0.0;
}

Result<PreparedCase> prepare(const PackCase& row, BenchContext& context) {
  constexpr std::size_t kLine = 64;
  const auto lines = [](std::size_t bytes) { return ceil_div(bytes, kLine) * kLine; };
  auto data = std::make_shared<PackData>();
  data->row = row;
  data->source_bytes = lines(row.n * row.k * bytes_per_element(row.format));
  data->packed_bytes = kernels::packed_weight_bytes(row.format, row.n, row.k);
  const std::size_t one = data->source_bytes + data->packed_bytes;
  OCTAVO_CHECK(check_memory(context, one + data->packed_bytes));
  data->copies = ceil_div(context.memory_bytes, one);
  data->source = AlignedBytes(data->copies * data->source_bytes);
  data->packed = AlignedBytes(data->copies * data->packed_bytes);
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i < data->source.size(); i += 8) {
    const std::uint64_t bits = random();
    std::memcpy(data->source.data() + i, &bits, 8);
  }
  poison(*data);

  ThreadPool& pool = context.pool(row.threads);
  const Isa isa = context.isa;
  PreparedCase prepared;
  prepared.check = [=, &pool]() -> Checked {
    for (const std::size_t copy : {std::size_t{0}, data->copies - 1}) {
      poison(*data);
      pack(*data, isa, pool, copy);
      if (const Checked checked = compare(*data, copy, pool.threads()); !checked) return checked;
    }
    return 0.0;
  };
  prepared.kernel = {[=, &pool, next = std::size_t{0}]() mutable {
                       pack(*data, isa, pool, next);
                       next = (next + 1) % data->copies;
                     },
                     1e-9 * static_cast<double>(one)};
  const std::size_t steps = std::min(data->source.size(), data->packed.size()) / kLine;
  prepared.roof = stream_roof(pool, {data->source.data(), 1, data->packed.data(), 1, steps});
  return prepared;
}

}  // namespace

std::vector<BenchCase> pack_cases(const BenchContext& context) {
  const BenchRequest& request = context.request;
  const std::size_t size = request.quick ? 512 : 4096;
  const std::size_t n = request.n != 0 ? request.n : size, k = request.k != 0 ? request.k : size;
  std::vector<BenchCase> cases;
  for (const Format format : {Format::e4m3fn, Format::bf16}) {
    for (const bool transposed : {false, true}) {
      for (const int threads : request.threads) {
        const PackCase row{format, transposed, n, k, threads};
        cases.push_back(
            {"pack", 0, n, k,
             fmt::format("{} {}", format_name(format), transposed ? "transposed" : "rows"), threads,
             isa_name(context.isa), "GB/s", "stream 1:1",
             [row](BenchContext& c) { return prepare(row, c); }});
      }
    }
  }
  return cases;
}

}  // namespace octavo::app
