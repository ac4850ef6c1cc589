// What `octavo bench` measures: one BenchCase is one row of its table. To add an operation, write a
// function that lists its cases, declare it below and give it a line of kBenchGroups (bench.cc).
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench_measure.h"
#include "octavo/base/cpu_features.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/ops/gemm.h"

namespace octavo::app {

// Options as they were given; empty or 0: the operation's own.
struct BenchRequest {
  std::vector<std::string> ops;
  std::vector<std::size_t> m;
  std::size_t n = 0, k = 0;
  std::vector<std::string> formats;  // rows whose formats contain one of these words
  std::vector<int> threads;
  int pairs = 5;
  bool quick = false;
};

// What the cases share.
struct BenchContext {
  BenchRequest request;
  Isa isa;                          // whose kernels are measured
  std::size_t memory_bytes;         // what streaming operations go through at least
  std::size_t most_bytes;           // what one case may take
  std::map<int, ThreadPool> pools;  // by threads
  AlignedBytes read_memory;         // of memory_bytes once something reads it

  ThreadPool& pool(int threads) { return pools.try_emplace(threads, threads).first->second; }
};

// An error unless one case may take so much.
Result<void> check_memory(const BenchContext& context, std::size_t bytes);

// The largest difference from the reference, relative to its largest magnitude, 0 for the same
// bits; or, where it is more than the kernel may have, what is wrong: "(3, 7) is nan,
// expected 1.5".
using Checked = std::expected<double, std::string>;

struct PreparedCase {
  // Runs the kernel on a poisoned result and holds that against the reference. Empty: nothing to
  // check.
  std::function<Checked()> check;
  Timed kernel;
  Timed roof;                         // run empty: none
  std::function<void()> settle = {};  // see PairRules
  // Overwrites the result with NaN before the kernel is timed; what the timed calls left there is
  // held against the reference. Both or neither, as where the roof writes to the same memory.
  std::function<void()> poison = {};
  std::function<Checked()> recheck = {};
};

struct BenchCase {
  std::string op;
  std::uint64_t m, n, k;  // 0: the operation has no such size
  std::string formats;
  int threads;
  std::string kernel;
  std::string unit;  // "GB/s" or "GFLOP/s", of value and roof_value; work is in GB or GFLOP
  std::string roof;  // its name; empty: none
  // Allocates, fills, packs; the closures own what they need. ErrorCode::unsupported: this machine
  // cannot, and the row is left out with a warning.
  std::function<Result<PreparedCase>(BenchContext&)> prepare;
};

std::vector<BenchCase> roof_cases(const BenchContext& context);
std::vector<BenchCase> gemv_cases(const BenchContext& context);
std::vector<BenchCase> gemm_cases(const BenchContext& context);
std::vector<BenchCase> training_cases(const BenchContext& context);
std::vector<BenchCase> quantize_cases(const BenchContext& context);
std::vector<BenchCase> dequantize_cases(const BenchContext& context);
std::vector<BenchCase> cast_cases(const BenchContext& context);
std::vector<BenchCase> pack_cases(const BenchContext& context);

}  // namespace octavo::app
