#include "octavo/ops/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "octavo/base/ceil_div.h"
#include "octavo/base/error.h"
#include "octavo/base/float_mode.h"
#include "octavo/kernels/gemm/layout.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/gemm_internal.h"

namespace octavo::ops {
namespace {

using kernels::GemmArgs;
using kernels::kStrip;
using kernels::Scales;

// Queries of one kv head that are worked on together: a panel of the tiled products.
constexpr std::size_t kRowsTogether = kernels::kPanelRows;

constexpr float kOne = 1.0f;
constexpr std::size_t kAllBlocks = std::numeric_limits<std::size_t>::max();

// What one thread needs beside its output; grows and stays.
struct Scratch {
  AlignedBytes q, packed_q, scores, packed_p, values, totals, state, gemm, page, packed_row;
};

float* floats(AlignedBytes& bytes, std::size_t count) {
  return reinterpret_cast<float*>(grown(bytes, count * sizeof(float)));
}

// The products and their packing at the selected level.
class Products {
 public:
  Products(Format cache, std::size_t rows) : format_(cache), rows_(rows) {
    const Isa isa = selected_level("attention");
    static constexpr kernels::Arithmetic kFma = kernels::Arithmetic::fma;
    const kernels::GemmProblem problem{rows, kKvPage, kKvPage, cache, Format::f32};
    kernel_ =
        kernels::gemm_kernel(kernels::plan_gemm(problem, kernels::gemm_machine(isa, 1), {}, kFma));
    pack_ = &kernels::pack_kernels(isa);
  }

  // src (rows, k), stride apart.
  const float* pack(const float* src, std::size_t stride, std::size_t k, AlignedBytes& to) const {
    float* packed = floats(
        to, kernels::packed_activation_bytes(kernels::Arithmetic::fma, rows_, k) / sizeof(float));
    pack_->pack_activations({Format::f32, src, stride, false, rows_, k, kernels::Arithmetic::fma,
                             0.0f, 0, ceil_div(k, kernels::kChunk), 0,
                             ceil_div(rows_, kernels::panel_rows(rows_)), packed});
    return packed;
  }

  // Elements of packed rows for 128 k.
  std::size_t packed_page() const {
    const std::size_t panel = kernels::panel_rows(rows_);
    return ceil_div(rows_, panel) * panel * kernels::kChunk;
  }

  void multiply(const float* packed, const void* weights, const Scales& weight_scale, std::size_t n,
                std::size_t k, float* c, std::size_t c_stride, AlignedBytes& scratch) const {
    kernel_({.m = rows_,
             .n = n,
             .k = k,
             .k_block = kernels::kChunk,
             .weight_format = format_,
             .weights = weights,
             .weight_scale = weight_scale,
             .activations = packed,
             .panel_rows = kernels::panel_rows(rows_),
             .activation_scale = {&kOne, 0, 0, kAllBlocks, false},
             .c_format = Format::f32,
             .c = c,
             .c_stride = c_stride,
             .bias = nullptr,
             .strip_begin = 0,
             .strip_end = kernels::strips(n),
             .scratch = floats(scratch, kernels::gemm_scratch_floats(rows_, 1)),
             .group = 1});
  }

 private:
  Format format_;
  std::size_t rows_;
  kernels::GemmFunction kernel_;
  const kernels::PackKernels* pack_;
};

// Queries [first, last) of the new tokens, all those of one kv head: rows token by token.
class Block {
 public:
  Block(const AttentionArgs& args, const KvCache& cache, std::size_t kv_head, const Range& tokens,
        Scratch& scratch)
      : args_(args),
        cache_(cache),
        head_(kv_head),
        tokens_(tokens),
        group_(args.heads / cache.shape().kv_heads),
        rows_((tokens.end - tokens.begin) * group_),
        dim_(cache.shape().head_dim),
        exponent_scale_(static_cast<float>(args.scale * std::numbers::log2e)),
        products_(cache.shape().format, rows_),
        kernels_(kernels::transformer_kernels(selected_level("attention"))),
        scratch_(scratch) {}

  void run() {
    const float* packed_q = pack_queries();
    totals_ = floats(scratch_.totals, rows_ * dim_);
    values_ = floats(scratch_.values, rows_ * dim_);
    maxima_ = floats(scratch_.state, 2 * rows_);
    sums_ = maxima_ + rows_;
    std::fill_n(totals_, rows_ * dim_, 0.0f);
    std::fill_n(maxima_, rows_, -std::numeric_limits<float>::infinity());
    std::fill_n(sums_, rows_, 0.0f);
    const std::size_t end = seen(rows_ - 1).end;
    const std::size_t first = seen(0).begin / kAttentionChunk * kAttentionChunk;
    for (std::size_t chunk = first; chunk < end; chunk += kAttentionChunk) {
      add_chunk(packed_q, {chunk, std::min(end, chunk + kAttentionChunk)});
    }
    store();
  }

 private:
  // The tokens that row `row` attends to.
  Range seen(std::size_t row) const {
    const std::size_t end = args_.position + tokens_.begin + row / group_ + 1;
    return {args_.window && *args_.window < end ? end - *args_.window : 0, end};
  }

  const float* pack_queries() {
    float* q = floats(scratch_.q, rows_ * dim_);
    for (std::size_t row = 0; row < rows_; ++row) {
      const std::size_t token = tokens_.begin + row / group_;
      const std::size_t head = head_ * group_ + row % group_;
      std::memcpy(q + row * dim_, args_.q + token * args_.q_stride + head * dim_,
                  dim_ * sizeof(float));
    }
    return products_.pack(q, dim_, dim_, scratch_.packed_q);
  }

  void add_chunk(const float* packed_q, const Range& chunk) {
    const std::size_t count = chunk.end - chunk.begin;
    float* scores = floats(scratch_.scores, rows_ * kAttentionChunk);
    const std::size_t key_strip = kernels::packed_weight_bytes(cache_.shape().format, kStrip, dim_);
    const float* key_scales = cache_.key_scales(args_.layer, head_);
    const Scales scale = key_scales == nullptr
                             ? Scales{&kOne, 0, 0, kAllBlocks, false}
                             : Scales{key_scales + chunk.begin, kStrip, 0, kAllBlocks, true};
    products_.multiply(packed_q, cache_.keys(args_.layer, head_) + chunk.begin / kStrip * key_strip,
                       scale, count, dim_, scores, kAttentionChunk, scratch_.gemm);
    for (std::size_t row = 0; row < rows_; ++row) weigh(scores + row * kAttentionChunk, row, chunk);
    add_values(scores, chunk);
  }

  // Scores of a row to probabilities, up to the factor that its sum is.
  void weigh(float* scores, std::size_t row, const Range& chunk) {
    const Range range = seen(row);
    const std::size_t count = chunk.end - chunk.begin;
    const std::size_t begin = std::clamp(range.begin, chunk.begin, chunk.end) - chunk.begin;
    const std::size_t end = std::clamp(range.end, chunk.begin, chunk.end) - chunk.begin;
    if (begin >= end) {
      std::fill_n(scores, count, 0.0f);
      return;
    }
    const float former = maxima_[row];
    const float largest = kernels_.row_max(scores, begin, end);
    // A NaN stays, whichever side it comes from.
    const float maximum = former > largest ? former : largest;
    float rescale = former;  // of what was summed up to here
    if (sums_[row] == 0.0f) {
      rescale = 0.0f;
    } else {
      kernels_.exp_row(&rescale, 1, 0, 1, exponent_scale_, maximum);
    }
    const float sum = kernels_.exp_row(scores, count, begin, end, exponent_scale_, maximum);
    sums_[row] = std::fma(sums_[row], rescale, sum);
    maxima_[row] = maximum;
    if (rescale != 1.0f) kernels_.scale(totals_ + row * dim_, rescale, dim_);
    if (const float* value_scales = cache_.value_scales(args_.layer, head_)) {
      for (std::size_t i = begin; i < end; ++i) scores[i] *= value_scales[chunk.begin + i];
    }
  }

  void add_values(float* scores, const Range& chunk) {
    const std::size_t count = chunk.end - chunk.begin;
    const float* packed_p = products_.pack(scores, kAttentionChunk, count, scratch_.packed_p);
    for (std::size_t at = 0; at < count; at += kKvPage) {
      const std::size_t page = (chunk.begin + at) / kKvPage;
      if (cache_.has_non_finite_values(args_.layer, head_, page)) {
        weigh_page_by_row(scores + at, page, std::min(kKvPage, count - at));
        kernels_.add(totals_, values_, rows_ * dim_);
        continue;
      }
      products_.multiply(packed_p + at / kKvPage * products_.packed_page(),
                         cache_.values(args_.layer, head_, page), {&kOne, 0, 0, kAllBlocks, false},
                         dim_, kKvPage, values_, dim_, scratch_.gemm);
      kernels_.add(totals_, values_, rows_ * dim_);
    }
  }

  // values_ of a page with NaN or infinities, of which each row may see others: p is 0 where it
  // sees none, and 0 times such a value is none. `scores`: of the page's first `count` tokens.
  void weigh_page_by_row(const float* scores, std::size_t page, std::size_t count) {
    const Products one(cache_.shape().format, 1);
    const std::size_t first = page * kKvPage;
    for (std::size_t row = 0; row < rows_; ++row) {
      const Range range = seen(row);
      const Range tokens{std::clamp(range.begin, first, first + count) - first,
                         std::clamp(range.end, first, first + count) - first};
      const std::uint8_t* values = cache_.values(args_.layer, head_, page);
      if (tokens.begin != 0 || tokens.end != kKvPage) {
        std::uint8_t* copy = grown(scratch_.page, cache_.value_page_bytes());
        cache_.copy_values(args_.layer, head_, page, tokens, copy);
        values = copy;
      }
      const float* p =
          one.pack(scores + row * kAttentionChunk, kAttentionChunk, count, scratch_.packed_row);
      one.multiply(p, values, {&kOne, 0, 0, kAllBlocks, false}, dim_, kKvPage, values_ + row * dim_,
                   dim_, scratch_.gemm);
    }
  }

  void store() {
    for (std::size_t row = 0; row < rows_; ++row) {
      const std::size_t token = tokens_.begin + row / group_;
      const std::size_t head = head_ * group_ + row % group_;
      float* out = args_.out + token * args_.out_stride + head * dim_;
      const float inverse = 1.0f / sums_[row];
      for (std::size_t c = 0; c < dim_; ++c) out[c] = totals_[row * dim_ + c] * inverse;
    }
  }

  const AttentionArgs& args_;
  const KvCache& cache_;
  const std::size_t head_;
  const Range tokens_;
  const std::size_t group_, rows_, dim_;
  const float exponent_scale_;
  const Products products_;
  const kernels::TransformerKernels& kernels_;
  Scratch& scratch_;
  float* totals_ = nullptr;  // (rows, head_dim)
  float* values_ = nullptr;  // the same of one page
  float* maxima_ = nullptr;  // (rows)
  float* sums_ = nullptr;    // (rows)
};

}  // namespace

void attention(const AttentionArgs& args, const KvCache& cache, const Context& context) {
  const KvCacheShape& shape = cache.shape();
  check_context("attention", context);
  if (args.heads == 0 || args.heads % shape.kv_heads != 0 || args.layer >= shape.layers ||
      args.position > shape.capacity || args.count > shape.capacity - args.position ||
      (args.window && *args.window == 0)) {
    throw ContractError(fmt::format(
        "attention: given {} heads, layer {}, tokens {} to {}, expected a multiple of {} heads, a "
        "layer below {}, tokens up to {}, a window of at least 1",
        args.heads, args.layer, args.position, args.position + args.count, shape.kv_heads,
        shape.layers, shape.capacity));
  }
  if (args.count == 0) return;
  const std::size_t group = args.heads / shape.kv_heads;
  const std::size_t together = std::max<std::size_t>(1, kRowsTogether / group);
  const std::size_t blocks = ceil_div(args.count, together);
  context.pool->run(static_cast<int>(shape.kv_heads * blocks), [&](int item) {
    const DefaultFloatMode mode;
    thread_local Scratch scratch;
    // The last tokens, which see most, come first: shares of threads end closer together.
    const std::size_t block = blocks - 1 - static_cast<std::size_t>(item) / shape.kv_heads;
    const std::size_t kv_head = static_cast<std::size_t>(item) % shape.kv_heads;
    const Range tokens{block * together, std::min(args.count, (block + 1) * together)};
    Block(args, cache, kv_head, tokens, scratch).run();
  });
}

}  // namespace octavo::ops
