#include "octavo/tensor/dtype.h"

#include <array>
#include <cstddef>

namespace octavo {
namespace {

// In the order of DType.
constexpr std::array<DTypeInfo, 20> kDTypes = {{
    {DType::boolean, "BOOL", 8, {}},
    {DType::u8, "U8", 8, {}},
    {DType::i8, "I8", 8, {}},
    {DType::i16, "I16", 16, {}},
    {DType::u16, "U16", 16, {}},
    {DType::i32, "I32", 32, {}},
    {DType::u32, "U32", 32, {}},
    {DType::i64, "I64", 64, {}},
    {DType::u64, "U64", 64, {}},
    {DType::f16, "F16", 16, Format::f16},
    {DType::bf16, "BF16", 16, Format::bf16},
    {DType::f32, "F32", 32, Format::f32},
    {DType::f64, "F64", 64, {}},
    {DType::c64, "C64", 64, {}},
    {DType::f8_e4m3, "F8_E4M3", 8, Format::e4m3fn},
    {DType::f8_e5m2, "F8_E5M2", 8, Format::e5m2},
    {DType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8, Format::e4m3fnuz},
    {DType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8, Format::e5m2fnuz},
    {DType::f8_e8m0, "F8_E8M0", 8, Format::e8m0fnu},
    {DType::f4, "F4", 4, Format::e2m1fn},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<std::size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

const DTypeInfo& dtype_info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace octavo
