// Casts, block quantization and dequantization over plain memory: the contract that every
// implementation meets bit for bit.
//
// No inline code here: instruction-set files include this header (scripts/check_isa_symbols).
// Strides of typed arrays are in elements, code strides in bytes. Arrays need no alignment. A block
// row is `rows` consecutive rows whose columns are cut every `block_cols` (the last block ragged);
// the caller walks block rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/formats/format.h"

namespace octavo::kernels {

// amax[b] = max(amax[b], largest |src| in block b), as magnitude bits of src_format (sign cleared,
// widened to 32 bits). Bit order is magnitude order with NaN above infinity above all finite
// values, so amax[b] >= the format's infinity says that block b holds something that is not finite.
// In and out: a block may be given in pieces.
struct BlockAmaxArgs {
  Format src_format;  // f32, bf16, f16
  const void* src;    // (rows, cols)
  std::size_t src_stride;
  std::size_t rows;
  std::size_t cols;
  std::size_t block_cols;
  std::uint32_t* amax;  // (ceil(cols / block_cols))
};

enum class ScaleOp : std::uint8_t {
  multiply,  // w * factor, one f32 rounding
  divide,    // w / factor, one f32 rounding
};

// codes = f32(src) op factor[block], rounded to nearest even in code_format, saturating at its
// largest value. NaN becomes the format's NaN with the sign of src. factor is finite and positive,
// f32 denormals included.
struct BlockQuantizeArgs {
  Format src_format;  // f32, bf16, f16
  const void* src;    // (rows, cols)
  std::size_t src_stride;
  std::size_t rows;
  std::size_t cols;
  std::size_t block_cols;
  const float* factor;  // (ceil(cols / block_cols))
  ScaleOp op;
  Format code_format;   // e4m3fn or e5m2
  std::uint8_t* codes;  // (rows, cols)
  std::size_t codes_stride;
  const void* prefetch;  // same extent and stride as src: read ahead, row by row, while this one is
                         // quantized; or null
  bool stream;           // codes are not read again soon: non-temporal stores are welcome
  std::uint32_t* amax = nullptr;  // as in BlockAmaxArgs, found on the way; or null
};

// What a dequantization met. Added to, never reset.
struct DequantizeCounts {
  std::uint64_t overflow;  // finite code x finite scale that the destination cannot hold: infinite,
                           // or clamped
  std::uint64_t underflow;  // non-zero code whose result is zero
  std::uint64_t nan;        // NaN codes
};

// dst = round(f32(code) * scale[block]): one f32 multiplication, then one rounding (nearest even)
// to dst_format. NaN results are canonical: quiet, payload zero, sign = sign of the code xor sign
// of the scale (fnuz NaN counts as negative). Denormal results are kept. With `saturate`, what
// would become infinite from a finite code and scale is the largest finite value instead.
struct BlockDequantizeArgs {
  Format code_format;  // e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, or e2m1fn packed: two codes a byte, low
                       // nibble first
  const std::uint8_t* codes;
  std::size_t codes_stride;  // bytes
  std::size_t rows;
  std::size_t cols;        // elements; even for e2m1fn
  std::size_t block_cols;  // elements; even for e2m1fn
  const float* scale;      // (ceil(cols / block_cols)); any value
  Format dst_format;       // f32, bf16, f16
  void* dst;               // (rows, cols)
  std::size_t dst_stride;
  bool saturate;
  DequantizeCounts* counts;  // not null
  bool stream;  // codes are in no cache and results not read again soon: reads ahead, writes past
                // the caches
};

// dst[i] = src[i] in another format, rounded once to nearest even; every pair of formats. e2m1fn is
// one code a byte.
struct CastArgs {
  Format src_format;
  const void* src;  // (count)
  Format dst_format;
  void* dst;  // (count)
  std::size_t count;
  Overflow overflow;
};

// One implementation: a line of cast_manifest.inc.
struct CastKernels {
  const char* name;  // "generic", "avx2", "avx512bf16"
  void (*block_amax)(const BlockAmaxArgs&);
  void (*block_quantize)(const BlockQuantizeArgs&);
  void (*block_dequantize)(const BlockDequantizeArgs&);
  void (*cast)(const CastArgs&);
};

}  // namespace octavo::kernels
