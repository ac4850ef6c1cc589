#include <cassert>
#include <cstdint>

#include "octavo/base/ceil_div.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/gemm_internal.h"
#include "octavo/kernels/gemm/layout.h"

namespace octavo::kernels {
namespace {

[[maybe_unused]] bool is_code(Format format) {
  return format == Format::e4m3fn || format == Format::e5m2 || format == Format::e4m3fnuz ||
         format == Format::e5m2fnuz;
}

[[maybe_unused]] bool is_operand(Format format) {
  return is_code(format) || format == Format::bf16 || format == Format::f32;
}

[[maybe_unused]] bool is_aligned(const void* p, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

}  // namespace

void check([[maybe_unused]] const GemmArgs& g, [[maybe_unused]] Arithmetic arithmetic) {
  assert(g.k_block == 32 || g.k_block == 64 || g.k_block == 128);
  assert(is_operand(g.weight_format));
  assert(arithmetic == Arithmetic::fma || g.weight_format != Format::f32);
  assert(g.c_format == Format::f32 || g.c_format == Format::bf16);
  assert(is_aligned(g.weights, 64));
  assert(is_aligned(g.activations, 4));
  assert(is_aligned(g.scratch, 64));
  assert(is_aligned(g.c, bytes_per_element(g.c_format)));
  assert(g.panel_rows == panel_rows(g.m));
  assert(g.weight_scale.blocks >= 1 && g.activation_scale.blocks >= 1);
  assert(!g.activation_scale.lanes);
  assert(g.strip_begin <= g.strip_end && g.strip_end <= strips(g.n));
  assert(g.group >= 1);
}

void check([[maybe_unused]] const PackWeightsArgs& a) {
  assert(is_operand(a.format));
  assert(is_aligned(a.src, bytes_per_element(a.format)));
  assert(is_aligned(a.packed, 64));
  assert(a.strip_begin <= a.strip_end && a.strip_end <= strips(a.n));
  assert(a.whole_k == 0 || a.whole_k >= a.k);
}

void check([[maybe_unused]] const UnpackWeightsArgs& a) {
  assert(is_operand(a.format));
  assert(is_aligned(a.packed, 64));
  assert(is_aligned(a.dst, bytes_per_element(a.format)));
  assert(a.strip_begin <= a.strip_end && a.strip_end <= strips(a.n));
}

void check([[maybe_unused]] const PackActivationsArgs& a) {
  assert(is_operand(a.src_format));
  assert(a.arithmetic == Arithmetic::fma || a.src_format != Format::f32);
  assert(is_aligned(a.src, bytes_per_element(a.src_format)));
  assert(is_aligned(a.packed, 64));
  assert(a.chunk_begin <= a.chunk_end && a.chunk_end <= ceil_div(a.k, kChunk));
  assert(a.panel_begin <= a.panel_end);
  assert(a.panel_begin == a.panel_end || a.panel_end <= ceil_div(a.m, panel_rows(a.m)));
  assert(a.src_row <= a.m);
}

}  // namespace octavo::kernels
