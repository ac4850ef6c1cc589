#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/layout.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/gemm_internal.h"

namespace octavo::ops {

AlignedBytes::AlignedBytes(std::size_t size) : size_(size) {
  if (size == 0) return;
  constexpr std::size_t kLine = 64;
  if (size > PTRDIFF_MAX) throw std::bad_alloc();  // rounded up it might become 0
  auto* p =
      static_cast<std::uint8_t*>(std::aligned_alloc(kLine, (size + kLine - 1) / kLine * kLine));
  if (p == nullptr) throw std::bad_alloc();
  data_.reset(p);
}

AlignedBytes::AlignedBytes(AlignedBytes&& other) noexcept
    : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}

AlignedBytes& AlignedBytes::operator=(AlignedBytes&& other) noexcept {
  data_ = std::move(other.data_);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void AlignedBytes::Free::operator()(std::uint8_t* p) const { std::free(p); }

PackedWeight pack_weight(const Operand& w, const Context& context) {
  check_operand("pack_weight", "w", w);
  check_context("pack_weight", context);
  const ConstMatrix& m = w.matrix;
  const kernels::PackKernels& kernels = kernels::pack_kernels(selected_level("pack_weight"));
  PackedWeight packed{m.format, m.rows, m.cols,
                      AlignedBytes(kernels::packed_weight_bytes(m.format, m.rows, m.cols)),
                      pack_scales(w)};
  const std::size_t all = kernels::strips(m.rows);
  const int parts = static_cast<int>(
      std::min<std::size_t>(static_cast<std::size_t>(context.pool->threads()), all));
  context.pool->run(parts, [&](int part) {
    // 128 rows of a transposed source are read together.
    const Range strips = split(all, 4, parts, part);
    kernels.pack_weights({m.format, m.data, m.stride, w.transposed, m.rows, m.cols, strips.begin,
                          strips.end, packed.bytes.data(), true});
  });
  return packed;
}

void unpack_weight(const PackedWeight& w, void* dst, std::size_t dst_stride,
                   const Context& context) {
  check_packed("unpack_weight", w);
  check_context("unpack_weight", context);
  if (w.n == 0) return;
  const std::size_t element = bytes_per_element(w.format);
  const bool misaligned = reinterpret_cast<std::uintptr_t>(dst) % element != 0;
  if (dst == nullptr || misaligned || (w.n > 1 && dst_stride < w.k)) {
    throw ContractError(
        fmt::format("unpack_weight: given {} with stride {}, expected a matrix ({}, {}) of {}",
                    dst == nullptr ? "dst null"
                    : misaligned   ? "misaligned dst"
                                   : "dst",
                    dst_stride, w.n, w.k, format_name(w.format)));
  }
  const kernels::PackKernels& kernels = kernels::pack_kernels(selected_level("unpack_weight"));
  const std::size_t all = kernels::strips(w.n);
  const int parts = static_cast<int>(
      std::min<std::size_t>(static_cast<std::size_t>(context.pool->threads()), all));
  context.pool->run(parts, [&](int part) {
    const Range strips = split(all, 1, parts, part);
    kernels.unpack_weights(
        {w.format, w.bytes.data(), w.n, w.k, strips.begin, strips.end, dst, dst_stride});
  });
}

}  // namespace octavo::ops
