#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "octavo/formats/traits.h"
#include "octavo/kernels/gemm/layout.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/gemm.h"
#include "octavo/ops/gemm_internal.h"

namespace octavo::ops {

PackedWeight pack_weight(const Operand& w, const Context& context) {
  check_operand("pack_weight", "w", w);
  check_context("pack_weight", context);
  const ConstMatrix& m = w.matrix;
  PackedWeight packed{m.format, m.rows, m.cols,
                      AlignedBytes(kernels::packed_weight_bytes(m.format, m.rows, m.cols)),
                      pack_scales(w)};
  pack_strips("pack_weight", m, w.transposed, packed.bytes.data(), context);
  return packed;
}

void pack_strips(const char* operation, const ConstMatrix& m, bool transposed, std::uint8_t* packed,
                 const Context& context) {
  const kernels::PackKernels& kernels = kernels::pack_kernels(selected_level(operation));
  const std::size_t all = kernels::strips(m.rows);
  const int parts = static_cast<int>(
      std::min<std::size_t>(static_cast<std::size_t>(context.pool->threads()), all));
  context.pool->run(parts, [&](int part) {
    // 128 rows of a transposed source are read together.
    const Range strips = split(all, 4, parts, part);
    kernels.pack_weights({m.format, m.data, m.stride, transposed, m.rows, m.cols, strips.begin,
                          strips.end, packed, true});
  });
}

PackedWeight unpacked_weight(const Operand& w) {
  check_operand("unpacked_weight", "w", w);
  const ConstMatrix& m = w.matrix;
  if (w.transposed || m.rows == 0 || (m.rows > 1 && m.stride != m.cols)) {
    throw ContractError(fmt::format(
        "unpacked_weight: given ({}, {}){} with stride {}, expected contiguous rows, at "
        "least one",
        m.rows, m.cols, w.transposed ? " transposed" : "", m.stride));
  }
  return {m.format, m.rows, m.cols, {}, pack_scales(w), m.data};
}

std::span<const std::uint8_t> element_bytes(const PackedWeight& w) {
  if (w.rows == nullptr) return {w.bytes.data(), w.bytes.size()};
  return {static_cast<const std::uint8_t*>(w.rows), w.n * w.k * bytes_per_element(w.format)};
}

std::size_t weight_bytes(const PackedWeight& w) {
  return element_bytes(w).size() + w.scale.data.size() * sizeof(float);
}

void unpack_weight(const PackedWeight& w, void* dst, std::size_t dst_stride,
                   const Context& context) {
  check_packed("unpack_weight", w);
  check_context("unpack_weight", context);
  if (w.rows != nullptr) {
    throw ContractError("unpack_weight: given a weight that is not packed, expected a packed one");
  }
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
