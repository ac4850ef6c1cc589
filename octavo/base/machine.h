// How much of this machine we may use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {

struct ThreadLimit {
  int threads;      // at least 1
  std::string why;  // "2 cores allowed by affinity", "quota of 1.5 cores (cgroup)"
};

// CPUs of the affinity mask of the calling thread, ascending; empty if the system does not tell.
std::vector<int> allowed_cpus();

// min(affinity mask, cgroup v1 or v2 CPU quota rounded up).
ThreadLimit allowed_threads();

// `asked` threads, or all allowed ones for 0. bad_value: negative, or more than 4096. More than are
// allowed is granted down to the allowed number: the work is bound by cores and bytes, never by
// latency.
Result<int> choose_threads(int asked);

// Bytes of memory that this process may still take: what the system has available, within the
// memory limits of its cgroup. 0 where the system does not tell.
std::uint64_t available_memory();

// Resident memory of this process, mapped files included. 0 where the system does not tell.
std::uint64_t resident_bytes();

// Largest resident anonymous memory of this process that any call has seen, in bytes. The kernel
// keeps no such peak, so callers ask where memory is largest.
std::uint64_t peak_anonymous_bytes();

}  // namespace octavo
