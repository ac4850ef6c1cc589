#include "octavo/base/cpu_features.h"

#include <fmt/format.h>
#include <cstring>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace octavo {
namespace {

constexpr Isa kIsas[kIsaCount] = {Isa::generic, Isa::avx2, Isa::avx512bf16};

#if defined(__x86_64__)

struct Registers {
  unsigned eax, ebx, ecx, edx;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r{};
  __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
  return r;
}

bool bit(unsigned word, int index) { return (word >> index & 1u) != 0; }

// Which register files the operating system saves on a context switch (extended control register
// 0).
std::uint64_t saved_state() {
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

std::string read_model() {
  if (cpuid(0x8000'0000u).eax < 0x8000'0004u) return {};
  char text[49] = {};
  for (unsigned i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x8000'0002u + i);
    std::memcpy(text + 16 * i, &r, 16);
  }
  std::string_view model = text;
  const auto first = model.find_first_not_of(' ');
  if (first == model.npos) return {};
  return std::string(model.substr(first, model.find_last_not_of(' ') - first + 1));
}

bool is_amd() {
  const Registers r = cpuid(0);
  return r.ebx == signature_AMD_ebx && r.edx == signature_AMD_edx && r.ecx == signature_AMD_ecx;
}

CpuFeatures read_features() {
  CpuFeatures f{};
  f.model = read_model();
  const unsigned last_leaf = cpuid(0).eax;
  const Registers basic = cpuid(1);
  f.fma = bit(basic.ecx, 12);
  f.f16c = bit(basic.ecx, 29);
  if (bit(basic.ecx, 27)) {  // OSXSAVE: xgetbv may be used
    constexpr std::uint64_t kXmmYmm = 0x06, kMaskZmm = 0xE0;
    const std::uint64_t saved = saved_state();
    f.os_saves_ymm = (saved & kXmmYmm) == kXmmYmm;
    f.os_saves_zmm = f.os_saves_ymm && (saved & kMaskZmm) == kMaskZmm;
  }
  if (last_leaf >= 7) {
    const Registers extended = cpuid(7);
    f.avx2 = bit(extended.ebx, 5);
    f.avx512f = bit(extended.ebx, 16);
    f.avx512dq = bit(extended.ebx, 17);
    f.avx512bw = bit(extended.ebx, 30);
    f.avx512vl = bit(extended.ebx, 31);
    f.avx512vbmi = bit(extended.ecx, 1);
    f.avx512bf16 = extended.eax >= 1 && bit(cpuid(7, 1).eax, 5);
  }
  f.fast_bf16_dot = f.avx512bf16 && is_amd();
  return f;
}

#else

CpuFeatures read_features() { return {}; }

#endif

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::generic:
      return "generic";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512bf16:
      return "avx512bf16";
  }
  throw ContractError(
      fmt::format("isa_name: given {}, expected a level of the ladder", static_cast<int>(isa)));
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = read_features();
  return features;
}

bool supports(const CpuFeatures& f, Isa isa) {
  switch (isa) {
    case Isa::generic:
      return true;
    case Isa::avx2:
      return f.avx2 && f.fma && f.f16c && f.os_saves_ymm;
    case Isa::avx512bf16:
      return supports(f, Isa::avx2) && f.avx512f && f.avx512bw && f.avx512vl && f.avx512dq &&
             f.avx512vbmi && f.avx512bf16 && f.os_saves_zmm;
  }
  return false;
}

Isa best_isa(const CpuFeatures& features) {
  Isa best = Isa::generic;
  for (const Isa isa : kIsas) {
    if (supports(features, isa)) best = isa;
  }
  return best;
}

Result<Isa> choose_isa(const CpuFeatures& features, const char* forced) {
  if (forced == nullptr || *forced == '\0') return best_isa(features);
  for (const Isa isa : kIsas) {
    if (std::string_view(forced) != isa_name(isa)) continue;
    if (supports(features, isa)) return isa;
    return fail(ErrorCode::bad_value,
                fmt::format("OCTAVO_CPU={}: this machine ({}) lacks it; the best it has is {}",
                            forced, features.model, isa_name(best_isa(features))));
  }
  return fail(ErrorCode::bad_value,
              fmt::format("OCTAVO_CPU={}: unknown; use generic, avx2 or avx512bf16", forced));
}

}  // namespace octavo
