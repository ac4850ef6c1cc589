// The specification of the cast kernels, in plain scalar code.
#include <cassert>
#include <cmath>
#include <type_traits>

#include "octavo/formats/convert.h"
#include "octavo/kernels/cast/cast_internal.h"

namespace octavo::kernels::generic {
namespace {

template <Format F>
using Tag = std::integral_constant<Format, F>;

// f(Tag<F>{}) for one of the floating-point formats that are computed in.
template <class Function>
void with_float(Format format, Function&& f) {
  switch (format) {
    case Format::f32:
      return f(Tag<Format::f32>{});
    case Format::bf16:
      return f(Tag<Format::bf16>{});
    case Format::f16:
      return f(Tag<Format::f16>{});
    default:
      assert(false && "expected f32, bf16 or f16");
  }
}

template <class Function>
void with_code(Format format, Function&& f) {
  switch (format) {
    case Format::e4m3fn:
      return f(Tag<Format::e4m3fn>{});
    case Format::e5m2:
      return f(Tag<Format::e5m2>{});
    case Format::e4m3fnuz:
      return f(Tag<Format::e4m3fnuz>{});
    case Format::e5m2fnuz:
      return f(Tag<Format::e5m2fnuz>{});
    case Format::e2m1fn:
      return f(Tag<Format::e2m1fn>{});
    default:
      assert(false && "expected an 8-bit floating-point format or e2m1fn");
  }
}

template <class Function>
void with_any(Format format, Function&& f) {
  if (format == Format::f32 || format == Format::bf16 || format == Format::f16)
    return with_float(format, f);
  if (format == Format::e8m0fnu) return f(Tag<Format::e8m0fnu>{});
  return with_code(format, f);
}

// f(row, column, block), in order.
template <class Function>
void for_each_element(std::size_t rows, std::size_t cols, std::size_t block_cols, Function&& f) {
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t first = 0, b = 0; first < cols; first += block_cols, ++b) {
      const std::size_t last = cols - first < block_cols ? cols : first + block_cols;
      for (std::size_t c = first; c < last; ++c) f(r, c, b);
    }
  }
}

template <Format F>
void amax_of(const BlockAmaxArgs& a) {
  const auto* src = static_cast<const Code<F>*>(a.src);
  for_each_element(a.rows, a.cols, a.block_cols, [&](std::size_t r, std::size_t c, std::size_t b) {
    const std::uint32_t magnitude = src[r * a.src_stride + c] & traits(F).magnitude_bits();
    if (magnitude > a.amax[b]) a.amax[b] = magnitude;
  });
}

template <Format F, Format To>
void quantize_to(const BlockQuantizeArgs& a) {
  const auto* src = static_cast<const Code<F>*>(a.src);
  for_each_element(a.rows, a.cols, a.block_cols, [&](std::size_t r, std::size_t c, std::size_t b) {
    const float w = decode<F>(src[r * a.src_stride + c]);
    const float scaled = a.op == ScaleOp::multiply ? w * a.factor[b] : w / a.factor[b];
    const float value =
        std::isnan(w) ? w : scaled;  // the sign of an arithmetic NaN is not specified
    a.codes[r * a.codes_stride + c] = encode<To>(value, Rounding::nearest_even, Overflow::saturate);
  });
}

template <Format From>
Code<From> load_code(const std::uint8_t* row, std::size_t c) {
  if constexpr (From == Format::e2m1fn) {
    return c % 2 == 0 ? row[c / 2] & 0xF : row[c / 2] >> 4;
  } else {
    return row[c];
  }
}

template <Format From, Format To>
Code<To> dequantize_one(Code<From> code, float scale, bool saturate, DequantizeCounts& counts) {
  const float value = decode<From>(code);
  const float product = value * scale;
  if (std::isnan(value)) ++counts.nan;
  if (std::isnan(product)) {
    const bool negative = std::signbit(value) != std::signbit(scale);
    return static_cast<Code<To>>(traits(To).nan_code | (negative ? traits(To).sign_bit() : 0));
  }
  const Code<To> result = encode<To>(product, Rounding::nearest_even, Overflow::special);
  if (value != 0 && (result & traits(To).magnitude_bits()) == 0) ++counts.underflow;
  if (traits(To).is_infinite(result) && std::isfinite(value) && std::isfinite(scale)) {
    ++counts.overflow;
    if (saturate) return encode<To>(product, Rounding::nearest_even, Overflow::saturate);
  }
  return result;
}

template <Format From, Format To>
void dequantize_to(const BlockDequantizeArgs& a) {
  auto* dst = static_cast<Code<To>*>(a.dst);
  for_each_element(a.rows, a.cols, a.block_cols, [&](std::size_t r, std::size_t c, std::size_t b) {
    const Code<From> code = load_code<From>(a.codes + r * a.codes_stride, c);
    dst[r * a.dst_stride + c] = dequantize_one<From, To>(code, a.scale[b], a.saturate, *a.counts);
  });
}

}  // namespace

void block_amax(const BlockAmaxArgs& a) {
  with_float(a.src_format, [&](auto from) { amax_of<from()>(a); });
}

void block_quantize(const BlockQuantizeArgs& a) {
  assert(a.code_format == Format::e4m3fn || a.code_format == Format::e5m2);
  with_float(a.src_format, [&](auto from) {
    if (a.code_format == Format::e5m2) return quantize_to<from(), Format::e5m2>(a);
    quantize_to<from(), Format::e4m3fn>(a);
  });
  if (a.amax == nullptr) return;
  block_amax({a.src_format, a.src, a.src_stride, a.rows, a.cols, a.block_cols, a.amax});
}

void block_dequantize(const BlockDequantizeArgs& a) {
  with_code(a.code_format, [&](auto from) {
    with_float(a.dst_format, [&](auto to) { dequantize_to<from(), to()>(a); });
  });
}

void cast(const CastArgs& a) {
  with_any(a.src_format, [&](auto from) {
    with_any(a.dst_format, [&](auto to) {
      const auto* src = static_cast<const Code<from()>*>(a.src);
      auto* dst = static_cast<Code<to()>*>(a.dst);
      for (std::size_t i = 0; i < a.count; ++i) {
        dst[i] = encode<to()>(decode<from()>(src[i]), Rounding::nearest_even, a.overflow);
      }
    });
  });
}

}  // namespace octavo::kernels::generic
