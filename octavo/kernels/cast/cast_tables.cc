#include "octavo/formats/convert.h"
#include "octavo/kernels/cast/cast_internal.h"

namespace octavo::kernels {
namespace {

template <Format F>
constexpr DecodeTable decode_table() {
  DecodeTable table{};
  for (std::uint32_t code = 0; code < 128; ++code) {
    table.value[code] = decode<F>(static_cast<Code<F>>(code));
  }
  table.finite_codes = static_cast<int>(traits(F).largest_code) + 1;
  table.nan_code = table.finite_codes + (traits(F).has_infinity() ? 1 : 0);
  return table;
}

}  // namespace

constinit const DecodeTable kDecodeTable_e4m3fn = decode_table<Format::e4m3fn>();
constinit const DecodeTable kDecodeTable_e5m2 = decode_table<Format::e5m2>();
constinit const DecodeTable kDecodeTable_e4m3fnuz = decode_table<Format::e4m3fnuz>();
constinit const DecodeTable kDecodeTable_e5m2fnuz = decode_table<Format::e5m2fnuz>();

constinit const float kE2m1fnValues[16] = {0,     0.5,  1,  1.5,  2,  3,  4,  6,
                                           -0.0f, -0.5, -1, -1.5, -2, -3, -4, -6};

bool keeps_all_codes(Format code_format, float scale, Format dst_format) {
  const FormatTraits &codes = traits(code_format), &dst = traits(dst_format);
  const double magnitude = scale < 0 ? -double{scale} : double{scale};
  return codes.smallest() * magnitude >= dst.smallest() && codes.largest * magnitude <= dst.largest;
}

}  // namespace octavo::kernels
