#include "octavo/ops/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "octavo/base/ceil_div.h"
#include "octavo/base/float_mode.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/layout.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/gemm_internal.h"
#include "octavo/ops/kernel_log.h"

namespace octavo::ops {
namespace {

using kernels::Arithmetic;
using kernels::GemmArgs;
using kernels::GemmPlan;
using kernels::GemmSplit;
using kernels::kChunk;
using kernels::kStrip;
using kernels::Scales;

// Strips of a weight that is not packed which are packed together before they are used.
constexpr std::size_t kStripsAtOnce = 4;

// Activations of fewer elements are packed by the calling thread alone.
constexpr std::size_t kPackAlone = 1 << 16;

// Bytes of weight for each thread from which products of few rows are handed out in pieces.
constexpr std::size_t kPiecesFrom = 1 << 20;

// What a thread keeps from call to call, so that a decoding loop allocates nothing. It grows and
// stays; octavo/ops/gemm.h says how far.
struct Buffers {
  AlignedBytes activations, weights, scratch;
  std::vector<float> activation_scales;
  PackedScales weight_scales;
};

Buffers& thread_buffers() {
  thread_local Buffers buffers;
  return buffers;
}

// A weight, packed or not.
struct Weight {
  Format format;
  std::size_t n, k;
  const std::uint8_t* packed;  // null: source
  const Operand* source;
  const PackedScales& scale;
};

// Scales of some rows by row and block of the grid's width.
struct RowScales {
  const float* data;
  std::size_t row_stride;
};

// As they lie where kernels can read them so, else expanded to the calling thread's buffer.
RowScales row_scales(const Operand& a, const Range& rows) {
  static constexpr float kOne = 1.0f;
  const ScaleGrid& grid = a.scale;
  if (grid.data == nullptr) return {&kOne, 0};
  const bool shared = grid.block.rows >= a.matrix.rows;
  if (grid.format == Format::f32 && (shared || grid.block.rows == 1)) {
    const std::size_t row_stride = shared ? 0 : grid.stride;
    return {static_cast<const float*>(grid.data) + rows.begin * row_stride, row_stride};
  }
  const std::size_t width = scale_width(a);
  const std::size_t blocks = width == 0 ? 1 : ceil_div(a.matrix.cols, width);
  std::vector<float>& expanded = thread_buffers().activation_scales;
  expanded.clear();
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    for (std::size_t block = 0; block < blocks; ++block) {
      expanded.push_back(scale_at(grid, row, block));
    }
  }
  return {expanded.data(), blocks};
}

// Rows of activations as kernels read them.
struct PackedRows {
  const std::uint8_t* data;
  RowScales scale;
};

// The width of the blocks of order C: the smaller one of both operands' scales, 128 without.
std::size_t order_block(std::size_t a_width, std::size_t w_width) {
  const auto at_most_chunk = [](std::size_t width) {
    return width == 0 ? kChunk : std::min(width, kChunk);
  };
  return std::min(at_most_chunk(a_width), at_most_chunk(w_width));
}

Scales kernel_scales(const PackedScales& s, std::size_t k, std::size_t k_block) {
  const std::size_t lanes = s.lanes ? kStrip : 1;
  const std::size_t blocks = s.width == 0 ? 1 : ceil_div(k, s.width);
  return {s.data.data(), s.per_strip ? blocks * lanes : 0, s.width == 0 ? 0 : lanes,
          s.width == 0 ? 1 : s.width / k_block, s.lanes};
}

float flush_below(Format weight_format) {
  if (weight_format == Format::f32) return 0.0f;
  return weight_format == Format::bf16 ? kernels::kFlushAgainstBf16 : kernels::kFlushAgainstFp8;
}

// What is left of `count` strips, for threads to take as they get ready: half an even share of the
// rest at a time, in multiples of `step`, so that a thread that is slowed down takes less.
class Pieces {
 public:
  Pieces(std::size_t count, std::size_t step, int threads)
      : count_(count), step_(step), parts_(2 * static_cast<std::size_t>(threads)) {}

  Range take() {
    std::size_t begin = next_.load(std::memory_order_relaxed), end = begin;
    do {
      const std::size_t share = ceil_div(count_ - begin, parts_ * step_) * step_;
      end = std::min(count_, begin + share);
    } while (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed));
    return {begin, end};
  }

 private:
  const std::size_t count_, step_, parts_;
  std::atomic<std::size_t> next_ = 0;
};

class Product {
 public:
  Product(const Operand& a, const Weight& w, const Output& c, const GemmOptions& options)
      : a_(a),
        w_(w),
        c_(c),
        bias_(options.bias.empty() ? nullptr : options.bias.data()),
        context_(options.context != nullptr ? *options.context : default_context()),
        a_width_(scale_width(a)),
        k_block_(order_block(a_width_, w.scale.width)) {
    const Isa isa = options.isa ? *options.isa : selected_level("gemm");
    const kernels::GemmMachine machine = kernels::gemm_machine(isa, context_.pool->threads());
    const kernels::GemmProblem problem{a.matrix.rows, w.n, w.k, w.format, a.matrix.format};
    plan_ = kernels::plan_gemm(problem, machine, options.shape, options.arithmetic);
    kernel_ = kernels::gemm_kernel(plan_);
    pack_ = &kernels::pack_kernels(isa);
  }

  void run() {
    const std::size_t rows = a_.matrix.rows;
    if (KernelLog* log = KernelLog::current()) {
      log->add(
          {kernels::kernel_name(plan_), a_.matrix.format, w_.format, c_.format, rows, w_.n, w_.k});
    }
    if (plan_.split == GemmSplit::rows) {
      context_.pool->run(plan_.threads, [&](int part) {
        const Range mine = split(rows, plan_.split_step, plan_.threads, part);
        for (std::size_t row = mine.begin; row < mine.end; row += plan_.row_chunk) {
          const Range chunk{row, std::min(mine.end, row + plan_.row_chunk)};
          multiply(chunk, pack_rows(chunk, 1), {0, kernels::strips(w_.n)});
        }
      });
      return;
    }
    for (std::size_t row = 0; row < rows; row += plan_.row_chunk) {
      const Range chunk{row, std::min(rows, row + plan_.row_chunk)};
      const bool alone = (chunk.end - chunk.begin) * w_.k < kPackAlone;
      const PackedRows packed = pack_rows(chunk, alone ? 1 : plan_.threads);
      if (!in_pieces()) {
        context_.pool->run(plan_.threads, [&](int part) {
          multiply(chunk, packed,
                   split(kernels::strips(w_.n), plan_.split_step, plan_.threads, part));
        });
        continue;
      }
      Pieces pieces(kernels::strips(w_.n), plan_.split_step, plan_.threads);
      context_.pool->run(plan_.threads, [&](int) {
        for (Range piece = pieces.take(); piece.begin != piece.end; piece = pieces.take())
          multiply(chunk, packed, piece);
      });
    }
  }

 private:
  // Few rows, and weights that take a thread so long that the misses at the start of each piece do
  // not count.
  bool in_pieces() const {
    const std::size_t bytes = w_.n * w_.k * bytes_per_element(w_.format);
    return plan_.shape != kernels::GemmShape::tiled && plan_.threads > 1 &&
           bytes >= kPiecesFrom * static_cast<std::size_t>(plan_.threads);
  }

  // The rows packed in the calling thread's buffers, by `threads` threads.
  PackedRows pack_rows(const Range& chunk, int threads) {
    const std::size_t m = chunk.end - chunk.begin;
    const std::size_t bytes = kernels::packed_activation_bytes(plan_.arithmetic, m, w_.k);
    std::uint8_t* packed = grown(thread_buffers().activations, bytes);
    const ConstMatrix& a = a_.matrix;
    const std::size_t element = bytes_per_element(a.format);
    const std::size_t first = chunk.begin * (a_.transposed ? 1 : a.stride) * element;
    const std::size_t panels = ceil_div(m, kernels::panel_rows(m)), chunks = ceil_div(w_.k, kChunk);
    const auto pack = [&](const Range& range) {
      pack_->pack_activations({a.format, static_cast<const std::uint8_t*>(a.data) + first, a.stride,
                               a_.transposed, m, w_.k, plan_.arithmetic, flush_below(w_.format),
                               range.begin, range.end, 0, panels, packed});
    };
    if (threads == 1) {
      pack({0, chunks});
    } else {
      context_.pool->run(threads, [&](int part) { pack(split(chunks, 1, threads, part)); });
    }
    return {packed, row_scales(a_, chunk)};
  }

  void multiply(const Range& rows, const PackedRows& activations, const Range& strips) {
    if (strips.begin == strips.end) return;
    const DefaultFloatMode mode;
    const std::size_t m = rows.end - rows.begin;
    const std::size_t floats = kernels::gemm_scratch_floats(m, plan_.group);
    GemmArgs args{.m = m,
                  .n = w_.n,
                  .k = w_.k,
                  .k_block = k_block_,
                  .weight_format = w_.format,
                  .weights = w_.packed,
                  .weight_scale = kernel_scales(w_.scale, w_.k, k_block_),
                  .activations = activations.data,
                  .panel_rows = kernels::panel_rows(m),
                  .activation_scale = {activations.scale.data, activations.scale.row_stride,
                                       a_width_ == 0 ? 0u : 1u,
                                       a_width_ == 0 ? 1 : a_width_ / k_block_, false},
                  .c_format = c_.format,
                  .c = static_cast<std::uint8_t*>(c_.data) + rows.begin * c_.stride * c_element(),
                  .c_stride = c_.stride,
                  .bias = bias_,
                  .strip_begin = strips.begin,
                  .strip_end = strips.end,
                  .scratch = reinterpret_cast<float*>(
                      grown(thread_buffers().scratch, floats * sizeof(float))),
                  .group = plan_.group};
    if (w_.packed != nullptr) return kernel_(args);
    multiply_unpacked(args, strips);
  }

  // A few strips at a time, packed to L2 and used at once.
  void multiply_unpacked(GemmArgs args, const Range& strips) {
    const ConstMatrix& w = w_.source->matrix;
    const std::size_t element = bytes_per_element(w.format);
    const std::size_t row_step = (w_.source->transposed ? 1 : w.stride) * element;
    std::uint8_t* packed =
        grown(thread_buffers().weights,
              kernels::packed_weight_bytes(w.format, kStripsAtOnce * kStrip, w_.k));
    const Scales scale = args.weight_scale;
    auto* c = static_cast<std::uint8_t*>(args.c);
    for (std::size_t strip = strips.begin; strip < strips.end; strip += kStripsAtOnce) {
      const std::size_t end = std::min(strips.end, strip + kStripsAtOnce);
      const std::size_t n = strip * kStrip;
      const auto* source = static_cast<const std::uint8_t*>(w.data) + n * row_step;
      args.n = std::min(end * kStrip, w_.n) - n;
      pack_->pack_weights({w.format, source, w.stride, w_.source->transposed, args.n, w_.k, 0,
                           end - strip, packed, false});
      args.weights = packed;
      args.weight_scale.data = scale.data + strip * scale.index_stride;
      args.c = c + n * c_element();
      args.bias = bias_ == nullptr ? nullptr : bias_ + n;
      args.strip_begin = 0;
      args.strip_end = end - strip;
      kernel_(args);
    }
  }

  std::size_t c_element() const { return bytes_per_element(c_.format); }

  const Operand& a_;
  const Weight& w_;
  const Output& c_;
  const float* bias_;
  const Context& context_;
  std::size_t a_width_;  // k that share one scale of a row; 0: all
  std::size_t k_block_;
  GemmPlan plan_;
  kernels::GemmFunction kernel_;
  const kernels::PackKernels* pack_;
};

void check_output(const Output& c, std::size_t m, std::size_t n) {
  if (c.data == nullptr) {
    throw ContractError(fmt::format("gemm: given c null, expected ({}, {})", m, n));
  }
  if (m > 1 && c.stride < n) {
    throw ContractError(
        fmt::format("gemm: given c with stride {}, expected at least {}, one row", c.stride, n));
  }
  if (!is_addressable(m, n, c.stride, c.format)) {
    throw ContractError(
        fmt::format("gemm: given c ({}, {}) with stride {}, expected one that memory can hold", m,
                    n, c.stride));
  }
  const std::size_t element = bytes_per_element(c.format);
  if (reinterpret_cast<std::uintptr_t>(c.data) % element != 0) {
    throw ContractError(
        fmt::format("gemm: given c with misaligned {} elements, expected aligned to {} bytes",
                    format_name(c.format), element));
  }
}

void check_and_run(const Operand& a, const Weight& w, const Output& c, const GemmOptions& options) {
  check_operand("gemm", "a", a);
  if (options.context != nullptr) check_context("gemm", *options.context);
  if (a.matrix.cols != w.k) {
    throw ContractError(fmt::format("gemm: given a ({}, {}) and w ({}, {}), expected one K",
                                    a.matrix.rows, a.matrix.cols, w.n, w.k));
  }
  if (c.format != Format::f32 && c.format != Format::bf16) {
    throw ContractError(
        fmt::format("gemm: given c in {}, expected f32 or bf16", format_name(c.format)));
  }
  if (a.matrix.rows == 0 || w.n == 0) return;
  check_output(c, a.matrix.rows, w.n);
  if (!options.bias.empty() && options.bias.size() != w.n) {
    throw ContractError(fmt::format("gemm: given a bias of {} values, expected {}, the rows of w",
                                    options.bias.size(), w.n));
  }
  if (reinterpret_cast<std::uintptr_t>(options.bias.data()) % alignof(float) != 0) {
    throw ContractError("gemm: given a misaligned bias, expected f32 aligned to 4 bytes");
  }
  Product(a, w, c, options).run();
}

}  // namespace

void gemm(const Operand& a, const PackedWeight& w, const Output& c, const GemmOptions& options) {
  check_packed("gemm", w);
  const Operand rows{{w.format, w.rows, w.n, w.k, w.k}, {}, false};
  const Operand* source = w.rows != nullptr ? &rows : nullptr;
  check_and_run(a, {w.format, w.n, w.k, w.bytes.data(), source, w.scale}, c, options);
}

void gemm(const Operand& a, const Operand& w, const Output& c, const GemmOptions& options) {
  check_operand("gemm", "w", w);
  PackedScales& scale = thread_buffers().weight_scales;
  pack_scales(w, scale);
  check_and_run(a, {w.matrix.format, w.matrix.rows, w.matrix.cols, nullptr, &w, scale}, c, options);
}

}  // namespace octavo::ops
