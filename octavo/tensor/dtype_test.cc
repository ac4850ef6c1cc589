#include "octavo/tensor/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "octavo/formats/traits.h"

namespace octavo {
namespace {

struct Tag {
  DType dtype;
  const char* name;
  int bits;
};

// The tags of the safetensors format.
constexpr Tag kTags[] = {
    {DType::boolean, "BOOL", 8},
    {DType::u8, "U8", 8},
    {DType::i8, "I8", 8},
    {DType::i16, "I16", 16},
    {DType::u16, "U16", 16},
    {DType::i32, "I32", 32},
    {DType::u32, "U32", 32},
    {DType::i64, "I64", 64},
    {DType::u64, "U64", 64},
    {DType::f16, "F16", 16},
    {DType::bf16, "BF16", 16},
    {DType::f32, "F32", 32},
    {DType::f64, "F64", 64},
    {DType::c64, "C64", 64},
    {DType::f8_e4m3, "F8_E4M3", 8},
    {DType::f8_e5m2, "F8_E5M2", 8},
    {DType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8},
    {DType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8},
    {DType::f8_e8m0, "F8_E8M0", 8},
    {DType::f4, "F4", 4},
};

TEST(DType, TagsAndWidths) {
  for (const Tag& tag : kTags) {
    EXPECT_EQ(dtype_name(tag.dtype), tag.name);
    EXPECT_EQ(dtype_bits(tag.dtype), tag.bits) << tag.name;
    EXPECT_EQ(dtype_from_name(tag.name), tag.dtype) << tag.name;
    if (const auto format = dtype_info(tag.dtype).format) {
      EXPECT_EQ(bits_per_element(*format), tag.bits) << tag.name;
    }
  }
}

TEST(DType, OtherNamesAreUnknown) {
  for (const char* name : {"", "f32", "FLOAT32", "F8", "F8_E4M3FN", "BF16 ", "F6_E2M3"}) {
    EXPECT_EQ(dtype_from_name(name), std::nullopt) << name;
  }
}

TEST(DType, Kinds) {
  const std::set<std::string> fp8 = {"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};
  const std::set<std::string> wide = {"BF16", "F16", "F32"};
  for (const Tag& tag : kTags) {
    EXPECT_EQ(is_fp8(tag.dtype), fp8.contains(tag.name)) << tag.name;
    EXPECT_EQ(is_wide_float(tag.dtype), wide.contains(tag.name)) << tag.name;
  }
}

}  // namespace
}  // namespace octavo
