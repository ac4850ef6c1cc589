#include "octavo/base/machine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

namespace octavo {
namespace {

// Quota / period of one cgroup directory, or infinity. v2: "cpu.max" holds "max 100000" or "150000
// 100000".
double quota_of(const std::string& directory) {
  const double none = HUGE_VAL;
  if (std::ifstream v2(directory + "/cpu.max"); v2) {
    std::string quota;
    double period = 0;
    if (v2 >> quota >> period && quota != "max" && period > 0)
      return std::strtod(quota.c_str(), nullptr) / period;
    return none;
  }
  std::ifstream quota_file(directory + "/cpu.cfs_quota_us");
  std::ifstream period_file(directory + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0)
    return quota / period;
  return none;
}

// visit(directory) from this process's cgroup up to the root, of the hierarchy that has the
// controller. /proc/self/cgroup: "0::/a/b" or "4:cpu,cpuacct:/a/b".
template <class Visit>
void visit_cgroups(std::string_view controller, const Visit& visit) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    const std::string wanted = fmt::format(",{},", controller);
    if (!v2 && ("," + controllers + ",").find(wanted) == std::string::npos) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controllers;
    std::string path = line.substr(second + 1);
    while (true) {
      visit(root + path);
      if (path.empty() || path == "/") break;
      path.erase(path.rfind('/'));
    }
    visit(root);
  }
}

double cgroup_cores() {
  double cores = HUGE_VAL;
  visit_cgroups("cpu", [&](const std::string& path) { cores = std::min(cores, quota_of(path)); });
  return cores;
}

// A number that stands alone in a file; nullopt: no such file, or "max".
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// Room under the memory limit of one cgroup directory, of either version.
std::uint64_t memory_room(const std::string& directory) {
  for (const auto& [limit_file, used_file] :
       {std::pair("/memory.max", "/memory.current"),
        std::pair("/memory.limit_in_bytes", "/memory.usage_in_bytes")}) {
    const auto limit = number_in(directory + limit_file), used = number_in(directory + used_file);
    if (limit && used) return *limit > *used ? *limit - *used : 0;
  }
  return std::numeric_limits<std::uint64_t>::max();
}

// A line of this process's status, which counts in kB; 0 without it.
std::uint64_t status_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name))
      return std::strtoull(line.c_str() + name.size(), nullptr, 10) * 1024;
  }
  return 0;
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> allowed;
  for (int cpus = 1024; cpus <= (1 << 16) && allowed.empty(); cpus *= 2) {  // masks of any size
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < cpus; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, set)) allowed.push_back(cpu);
      }
    }
    CPU_FREE(set);
  }
  return allowed;
}

ThreadLimit allowed_threads() {
  const std::size_t cpus = allowed_cpus().size();
  const int affinity =
      std::max(1, static_cast<int>(cpus ? cpus : std::thread::hardware_concurrency()));
  const double quota = cgroup_cores();
  if (quota < affinity) {
    return {std::max(1, static_cast<int>(std::ceil(quota))),
            fmt::format("quota of {:.2g} cores (cgroup)", quota)};
  }
  return {affinity,
          fmt::format("{} {} allowed by affinity", affinity, affinity == 1 ? "core" : "cores")};
}

Result<int> choose_threads(int asked) {
  if (asked < 0 || asked > 4096) {
    return fail(ErrorCode::bad_value,
                fmt::format("--threads {}: give 1 to 4096, or 0 for all allowed cores", asked));
  }
  const int allowed = allowed_threads().threads;
  return asked == 0 ? allowed : std::min(asked, allowed);
}

std::uint64_t available_memory() {
  std::uint64_t available = 0;
  std::ifstream memory("/proc/meminfo");
  for (std::string line; std::getline(memory, line);) {
    if (line.starts_with("MemAvailable:"))
      available = std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
  }
  visit_cgroups("memory", [&](const std::string& path) {
    available = std::min(available, memory_room(path));
  });
  return available;
}

std::uint64_t resident_bytes() { return status_bytes("VmRSS:"); }

std::uint64_t peak_anonymous_bytes() {
  static std::atomic<std::uint64_t> peak = 0;
  const std::uint64_t now = status_bytes("RssAnon:");
  std::uint64_t before = peak.load();
  while (before < now && !peak.compare_exchange_weak(before, now)) {
  }
  return peak.load();
}

}  // namespace octavo
