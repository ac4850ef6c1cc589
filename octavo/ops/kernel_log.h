// Which kernels ran: the answer to "is FP8 really used here?".
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "octavo/formats/format.h"

namespace octavo::ops {

// One product C = A W^T.
struct KernelRun {
  std::string kernel;  // "avx512bf16_tiled_fma"
  Format a, w, c;
  std::size_t m, n, k;
};

// "e5m2 x e4m3fn -> f32, 512 x 1024 x 4096, avx512bf16_tiled_fma"
std::string to_string(const KernelRun& run);

// Collects what this thread calls while it lasts. Of several, the innermost.
class KernelLog {
 public:
  KernelLog();
  ~KernelLog();
  KernelLog(const KernelLog&) = delete;
  KernelLog& operator=(const KernelLog&) = delete;

  // Those that ran, in order, and how many of them had these formats.
  const std::vector<KernelRun>& runs() const { return runs_; }
  std::size_t count(Format a, Format w) const;

  static KernelLog* current();  // of this thread, or null
  // For operations: a product that ran.
  void add(KernelRun run) { runs_.push_back(std::move(run)); }

 private:
  std::vector<KernelRun> runs_;
  KernelLog* outer_;
};

}  // namespace octavo::ops
