// gemv and gemm: C = A W^T. gemv is held against reading the weight, gemm against arithmetic.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "bench_case.h"
#include "bench_product.h"
#include "bench_roof.h"
#include "octavo/base/ceil_div.h"
#include "octavo/formats/convert.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/plan.h"

namespace octavo::app {
namespace {

constexpr std::size_t kBlock = 128;
// From so many rows on a weight is used so often that one copy of it does.
constexpr std::size_t kRowsOfOneCopy = 128;

// Of small weights, which then stay in caches.
constexpr std::size_t kMostCopies = 4096;

enum class Against { read, arithmetic };

float value_of(Format format, std::uint8_t code) {
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

// Random codes of finite values.
void fill(std::vector<std::uint8_t>& codes, std::vector<float>& values, std::size_t count,
          Format format, std::mt19937& random) {
  std::uint8_t finite[256];
  float value[256];
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    finite[i] = std::isfinite(value_of(format, code)) ? code : 0;
    value[i] = value_of(format, finite[i]);
  }
  codes.resize(count);
  values.resize(count);
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < count; ++i, bits >>= 8) {
    if (i % 4 == 0) bits = static_cast<std::uint32_t>(random());
    codes[i] = finite[bits & 0xFF];
    values[i] = value[bits & 0xFF];
  }
}

void fill_scales(std::vector<float>& scales, std::size_t count) {
  scales.resize(count);
  for (std::size_t i = 0; i < count; ++i) scales[i] = 0.01f * (1 + static_cast<float>(i % 13) / 13);
}

std::shared_ptr<const ProductData> make_data(std::size_t m, std::size_t n, std::size_t k,
                                             Format w_format) {
  auto data = std::make_shared<ProductData>();
  data->m = m;
  data->n = n;
  data->k = k;
  data->w_format = w_format;
  std::mt19937 random(1);
  fill(data->a_codes, data->a, m * k, Format::e4m3fn, random);
  fill(data->w_codes, data->w, n * k, w_format, random);
  fill_scales(data->a_scale, m * ceil_div(k, kBlock));
  fill_scales(data->w_scale, ceil_div(n, kBlock) * ceil_div(k, kBlock));
  return data;
}

// The data of the row before, which most often is that of the next.
using LastData = std::shared_ptr<std::shared_ptr<const ProductData>>;

std::shared_ptr<const ProductData> last_or_new(const LastData& last, std::size_t m, std::size_t n,
                                               std::size_t k, Format w_format) {
  const ProductData* data = last->get();
  if (data == nullptr || data->m != m || data->n != n || data->k != k || data->w_format != w_format)
    *last = make_data(m, n, k, w_format);
  return *last;
}

// ---- Ours ----

AlignedBytes in_format(const std::vector<float>& values, const std::vector<std::uint8_t>& codes,
                       Format format) {
  const std::size_t bytes = bytes_per_element(format);
  AlignedBytes result(values.size() * bytes);
  if (bytes == 1) {
    std::memcpy(result.data(), codes.data(), codes.size());
    return result;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &values[i], 4);
    if (format == Format::bf16) bits >>= 16;  // which holds the value
    std::memcpy(result.data() + i * bytes, &bits, bytes);
  }
  return result;
}

bool is_code(Format format) { return bytes_per_element(format) == 1; }

// When a row is there that no option asks for.
enum class Shown { always, at_ends, with_one_row, when_asked };

struct OurFormats {
  Format w, a;
  bool packed;  // or as it lies in a mapped file, row by row
  Shown shown;
};

constexpr OurFormats kOurs[] = {
    {Format::e4m3fn, Format::bf16, true, Shown::always},
    {Format::e4m3fn, Format::e4m3fn, true, Shown::at_ends},
    {Format::e4m3fn, Format::f32, true, Shown::at_ends},
    {Format::bf16, Format::bf16, true, Shown::at_ends},
    {Format::e5m2, Format::bf16, true, Shown::with_one_row},
    {Format::e4m3fnuz, Format::bf16, true, Shown::with_one_row},
    {Format::e5m2fnuz, Format::bf16, true, Shown::with_one_row},
    {Format::e4m3fn, Format::bf16, false, Shown::with_one_row},
    {Format::bf16, Format::bf16, false, Shown::when_asked},
    {Format::f32, Format::f32, true, Shown::when_asked},
};

struct OurProduct {
  std::size_t m, n, k;
  Context context;
  Format a_format;
  AlignedBytes a, c;
  std::vector<float> a_scale, w_scale;
  std::vector<ops::PackedWeight> packed;  // copies
  std::vector<AlignedBytes> row_major;    // copies, where none is packed
  ops::Operand w;                         // without data

  void run(std::size_t copy) {
    ops::Operand operand{{a_format, a.data(), m, k, k}, {}};
    if (is_code(a_format)) operand.scale = {a_scale.data(), ceil_div(k, kBlock), {1, kBlock}};
    const ops::Output out{Format::f32, c.data(), n};
    if (row_major.empty()) {
      ops::gemm(operand, packed[copy], out, {.context = &context});
    } else {
      w.matrix.data = row_major[copy].data();
      ops::gemm(operand, w, out, {.context = &context});
    }
  }
};

Result<Product> make_ours(const OurFormats& formats, const ProductData& data, std::size_t copies,
                          ThreadPool& pool) {
  auto p = std::make_shared<OurProduct>();
  p->m = data.m;
  p->n = data.n;
  p->k = data.k;
  p->context = {&pool};
  p->a_format = formats.a;
  p->a = in_format(data.a, data.a_codes, formats.a);
  p->c = AlignedBytes(data.m * data.n * sizeof(float));
  p->a_scale = data.a_scale;
  p->w_scale = data.w_scale;
  p->w.matrix = {formats.w, nullptr, data.n, data.k, data.k};
  if (is_code(formats.w))
    p->w.scale = {p->w_scale.data(), ceil_div(data.k, kBlock), {kBlock, kBlock}};
  const AlignedBytes w = in_format(data.w, data.w_codes, formats.w);
  for (std::size_t i = 0; i < copies; ++i) {
    if (formats.packed) {
      ops::Operand operand = p->w;
      operand.matrix.data = w.data();
      p->packed.push_back(ops::pack_weight(operand, p->context));
    } else {
      std::memcpy(p->row_major.emplace_back(w.size()).data(), w.data(), w.size());
    }
  }
  return Product{[p](std::size_t copy) { p->run(copy); }, reinterpret_cast<float*>(p->c.data())};
}

ProductKernel ours(const BenchContext& context, int threads, std::size_t m, std::size_t n,
                   std::size_t k, const OurFormats& formats) {
  const kernels::GemmPlan plan =
      plan_gemm({m, n, k, formats.w, formats.a}, kernels::gemm_machine(context.isa, threads));
  return {kernels::kernel_name(plan),
          fmt::format("{}{} x {}", format_name(formats.w), formats.packed ? "" : " rows",
                      format_name(formats.a)),
          static_cast<std::size_t>(traits(formats.w).bits),
          plan.arithmetic == kernels::Arithmetic::dot,
          true,
          is_code(formats.a),
          is_code(formats.w),
          [formats](const ProductData& data, std::size_t copies, ThreadPool& pool) {
            return make_ours(formats, data, copies, pool);
          }};
}

// ---- Cases ----

// A row of the table.
struct ProductCase {
  ProductKernel kernel;
  Format w_format;  // of ProductData
  Against against;
  std::size_t m, n, k;
  int threads;
};

Result<PreparedCase> prepare(const ProductCase& row, const LastData& last, BenchContext& context) {
  const auto& [kernel, w_format, against, m, n, k, threads] = row;
  const std::size_t weight_bytes = n * k * kernel.weight_bits / 8;
  const std::size_t copies =
      against == Against::arithmetic && m >= kRowsOfOneCopy
          ? 1
          : std::min(ceil_div(context.memory_bytes, weight_bytes), kMostCopies);
  // Packed weights have multiples of 32 rows; values as f32 and as codes, and once in the operand's
  // format.
  const std::size_t packed_bytes =
      ceil_div(n, kernels::kStrip) * kernels::kStrip * ceil_div(k, 2) * 2 * kernel.weight_bits / 8;
  OCTAVO_CHECK(check_memory(context, 9 * (m * k + n * k) + 4 * m * n + copies * packed_bytes));
  const std::shared_ptr<const ProductData> data = last_or_new(last, m, n, k, w_format);
  ThreadPool& pool = context.pool(threads);
  OCTAVO_TRY(const Product product, kernel.make(*data, copies, pool));
  const auto reference = std::make_shared<ProductReference>(product_reference(kernel, *data));

  PreparedCase prepared;
  prepared.check = [=] { return check_product(*reference, *data, product, copies); };
  prepared.poison = [=] { poison(*data, product); };
  prepared.recheck = [=] { return compare(*reference, product.c); };
  prepared.kernel.run = [product, copies, next = std::size_t{0}]() mutable {
    product.run(next);
    next = (next + 1) % copies;
  };
  // Threads of other libraries spin for a while after a call, and would slow the roof down.
  if (!kernel.order_c && threads > 1)
    prepared.settle = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  if (against == Against::read) {
    prepared.kernel.work = 1e-9 * static_cast<double>(weight_bytes);
    prepared.roof = read_roof(context, threads);
  } else {
    prepared.kernel.work = 2e-9 * static_cast<double>(m) * static_cast<double>(n * k);
    const kernels::RoofKernels& roofs =
        kernel.order_c ? kernels::roof_kernels(context.isa) : kernels::widest_roof_kernels();
    prepared.roof = peak_roof(pool, kernel.uses_dot ? roofs.dot : roofs.fma);
  }
  return prepared;
}

BenchCase bench_case(const char* op, ProductCase row, const LastData& last) {
  row.kernel.uses_dot = row.kernel.uses_dot && kernels::widest_roof_kernels().dot.run != nullptr;
  const bool reads = row.against == Against::read;
  return {op,
          row.m,
          row.n,
          row.k,
          row.kernel.formats,
          row.threads,
          row.kernel.kernel,
          reads ? "GB/s" : "GFLOP/s",
          reads                 ? "read"
          : row.kernel.uses_dot ? "dot bf16"
                                : "fma f32",
          [row, last](BenchContext& context) { return prepare(row, last, context); }};
}

// Every format is a row where options ask for it; by default some are with few m only.
bool is_shown(Shown shown, const BenchRequest& request, std::size_t m, bool is_end) {
  if (!request.m.empty() || !request.formats.empty()) return true;
  switch (shown) {
    case Shown::always:
      return true;
    case Shown::at_ends:
      return m == 1 || is_end;
    case Shown::with_one_row:
      return m == 1;
    case Shown::when_asked:
      return false;
  }
  return false;
}

std::vector<BenchCase> cases_of(const BenchContext& context, const char* op, Against against,
                                std::vector<std::size_t> rows) {
  const BenchRequest& request = context.request;
  if (!request.m.empty()) rows = request.m;
  // The scalar reference takes long.
  const bool is_small = request.quick || context.isa == Isa::generic;
  const std::size_t n = request.n != 0 ? request.n : is_small ? 512 : 4096;
  const std::size_t k = request.k != 0 ? request.k : is_small ? 512 : 4096;
  const auto last = std::make_shared<std::shared_ptr<const ProductData>>();
  std::vector<BenchCase> cases;
  for (const std::size_t m : rows) {
    const bool is_end = against == Against::arithmetic && m == rows.back();
    for (const int threads : request.threads) {
      const auto add = [&](ProductKernel kernel, Format w_format) {
        cases.push_back(
            bench_case(op, {std::move(kernel), w_format, against, m, n, k, threads}, last));
      };
      for (const OurFormats& formats : kOurs) {
        if (is_shown(formats.shown, request, m, is_end))
          add(ours(context, threads, m, n, k, formats),
              is_code(formats.w) ? formats.w : Format::e4m3fn);
      }
      if (!is_shown(Shown::at_ends, request, m, is_end)) continue;
      for (const auto& peers : {onednn_kernels(), openblas_kernels()}) {
        for (const ProductKernel& kernel : peers) add(kernel, Format::e4m3fn);
      }
    }
  }
  return cases;
}

}  // namespace

std::vector<BenchCase> gemv_cases(const BenchContext& context) {
  return cases_of(context, "gemv", Against::read, {1, 2, 4});
}

std::vector<BenchCase> gemm_cases(const BenchContext& context) {
  const bool is_small = context.request.quick || context.isa == Isa::generic;
  return cases_of(
      context, "gemm", Against::arithmetic,
      is_small ? std::vector<std::size_t>{8} : std::vector<std::size_t>{8, 12, 64, 128, 512});
}

}  // namespace octavo::app
