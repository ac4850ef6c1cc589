// From and to the packed layouts of gemm.h. Sources are row-major or transposed; strides are in
// elements. A call does a range of strips or panels, so that several threads share the work.
//
// No inline code here: instruction-set files include this header (scripts/check_isa_symbols).
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/formats/format.h"
#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels {

// Weights, element by element: 8-bit codes as they are, f32 as it is, bf16 with kFlushAgainstBf16.
struct PackWeightsArgs {
  Format format;    // of source and result
  const void* src;  // (n, k), or (k, n) where transposed
  std::size_t src_stride;
  bool transposed;
  std::size_t n, k;
  std::size_t strip_begin, strip_end;  // strips of 32 n to write
  void* packed;                        // of the whole weight, aligned to 64 bytes
  bool stream;  // the result is not read again soon: non-temporal stores are welcome
  // Where this is a part of a weight with more k: that weight's k, which says how far strips lie
  // apart. `packed` is then where the part's first k goes, an even one. 0: all of it.
  std::size_t whole_k = 0;
};

struct UnpackWeightsArgs {
  Format format;
  const void* packed;
  std::size_t n, k;
  std::size_t strip_begin, strip_end;
  void* dst;  // (n, k)
  std::size_t dst_stride;
};

// Activations: decoded exactly to f32 or to bf16. bf16 sources: magnitudes below flush_below (0, or
// a constant of gemm.h) become +0.
struct PackActivationsArgs {
  Format src_format;  // f32 (for fma only), bf16, or an 8-bit format
  const void* src;    // (m, k), or (k, m) where transposed
  std::size_t src_stride;
  bool transposed;
  std::size_t m, k;
  Arithmetic arithmetic;
  float flush_below;
  std::size_t chunk_begin, chunk_end;  // chunks of 128 k to write
  std::size_t panel_begin, panel_end;  // panels of panel_rows(m) rows to write
  void* packed;                        // of the whole operand, aligned to 64 bytes
  std::size_t src_row = 0;             // the row that src begins with, of the m
};

// One implementation: a line of gemm_manifest.inc.
struct PackKernels {
  void (*pack_weights)(const PackWeightsArgs&);
  void (*unpack_weights)(const UnpackWeightsArgs&);
  void (*pack_activations)(const PackActivationsArgs&);
};

}  // namespace octavo::kernels
