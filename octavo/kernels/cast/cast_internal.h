// The implementations behind cast_manifest.inc, and the data that they share. Declarations only:
// instruction-set files include this.
#pragma once

#include <cstdint>

#include "octavo/kernels/cast/cast.h"

namespace octavo::kernels {

#define OCTAVO_CAST_KERNELS(isa)                     \
  namespace isa {                                    \
  void block_amax(const BlockAmaxArgs&);             \
  void block_quantize(const BlockQuantizeArgs&);     \
  void block_dequantize(const BlockDequantizeArgs&); \
  void cast(const CastArgs&);                        \
  }
#include "octavo/kernels/cast/cast_manifest.inc"
#undef OCTAVO_CAST_KERNELS

// The non-negative half of a format's values: value[code] for the codes with the sign bit clear.
struct DecodeTable {
  float value[128];
  int finite_codes;  // value[finite_codes ..] are infinity or NaN
  int nan_code;      // value[nan_code ..] are NaN; 128 where the only NaN is 0x80
};
extern const DecodeTable kDecodeTable_e4m3fn, kDecodeTable_e5m2, kDecodeTable_e4m3fnuz,
    kDecodeTable_e5m2fnuz;

extern const float kE2m1fnValues[16];

// Whether every finite code but zero, times scale, is finite and not zero in dst_format: then a
// product needs no look at its range, and the only special results are those of special codes.
bool keeps_all_codes(Format code_format, float scale, Format dst_format);

}  // namespace octavo::kernels
