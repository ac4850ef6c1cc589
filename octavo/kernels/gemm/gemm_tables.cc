#include <bit>

#include "octavo/formats/convert.h"
#include "octavo/kernels/gemm/gemm_internal.h"

namespace octavo::kernels {
namespace {

template <Format F>
constexpr Bf16Table bf16_table() {
  Bf16Table table{};
  for (std::uint32_t code = 0; code < 128; ++code) {
    const auto bits = std::bit_cast<std::uint32_t>(decode<F>(static_cast<Code<F>>(code)));
    table.low[code] = static_cast<std::uint8_t>(bits >> 16);
    table.high[code] = static_cast<std::uint8_t>(bits >> 24);
  }
  return table;
}

}  // namespace

constinit const Bf16Table kBf16Table_e4m3fn = bf16_table<Format::e4m3fn>();
constinit const Bf16Table kBf16Table_e5m2 = bf16_table<Format::e5m2>();
constinit const Bf16Table kBf16Table_e4m3fnuz = bf16_table<Format::e4m3fnuz>();
constinit const Bf16Table kBf16Table_e5m2fnuz = bf16_table<Format::e5m2fnuz>();

}  // namespace octavo::kernels
