#include "octavo/ops/kernel_log.h"

#include <fmt/format.h>

#include <algorithm>

#include "octavo/formats/traits.h"

namespace octavo::ops {
namespace {

thread_local KernelLog* innermost = nullptr;

}  // namespace

std::string to_string(const KernelRun& run) {
  return fmt::format("{} x {} -> {}, {} x {} x {}, {}", format_name(run.a), format_name(run.w),
                     format_name(run.c), run.m, run.n, run.k, run.kernel);
}

KernelLog::KernelLog() : outer_(innermost) { innermost = this; }
KernelLog::~KernelLog() { innermost = outer_; }
KernelLog* KernelLog::current() { return innermost; }

std::size_t KernelLog::count(Format a, Format w) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(runs_, [&](const KernelRun& run) { return run.a == a && run.w == w; }));
}

}  // namespace octavo::ops
