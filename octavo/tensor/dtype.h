// Element types as files name them (safetensors tags), wider than the formats that we compute with.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "octavo/formats/format.h"

namespace octavo {

// Those of safetensors; f4 is packed, two elements a byte.
enum class DType : std::uint8_t {
  boolean,
  u8,
  i8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  f16,
  bf16,
  f32,
  f64,
  c64,
  f8_e4m3,
  f8_e5m2,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  f8_e8m0,
  f4,
};

// What is known of a type.
struct DTypeInfo {
  DType dtype;
  std::string_view name;         // safetensors tag: "F8_E4M3"
  int bits;                      // per element; shapes count elements, also for f4 (two a byte)
  std::optional<Format> format;  // where we can compute with it
};

// By type, and by safetensors tag: nullopt where there is none of that name.
const DTypeInfo& dtype_info(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

// The safetensors tag, and the bits of an element.
inline std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
inline int dtype_bits(DType dtype) { return dtype_info(dtype).bits; }

// The four types that products are trained in, OCP's and FNUZ.
inline bool is_fp8(DType dtype) {
  return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2 || dtype == DType::f8_e4m3fnuz ||
         dtype == DType::f8_e5m2fnuz;
}

// The type of an operation on both, as JAX promotes floating-point types: bf16 and f16 to f32.
inline DType promoted(DType a, DType b) {
  if (a == b) return a;
  return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

// What a weight can be quantized from, and dequantized to.
inline bool is_wide_float(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

}  // namespace octavo
