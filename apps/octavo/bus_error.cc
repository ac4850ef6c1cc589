#include "bus_error.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "command.h"

namespace octavo::app {
namespace {

// Made before the handler is: it allocates nothing.
struct Range {
  std::uintptr_t begin, end;
  std::string message;
};
std::vector<Range> ranges;

void handle(int signal, siginfo_t* info, void*) {
  struct sigaction usual{};
  usual.sa_handler = SIG_DFL;
  if (info->si_code <= 0) {  // sent by a process: no access comes again, and no address is said
    ::sigaction(signal, &usual, nullptr);
    ::raise(signal);  // held back until this handler returns
    return;
  }
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Range& range : ranges) {
    if (at < range.begin || at >= range.end) continue;
    [[maybe_unused]] const ssize_t put =
        ::write(STDERR_FILENO, range.message.data(), range.message.size());
    ::_exit(kFailed);
  }
  // Not ours: the same access again, as if nobody had looked.
  ::sigaction(signal, &usual, nullptr);
}

}  // namespace

void catch_lost_pages(std::span<const FileMapping> mappings) {
  if (mappings.empty()) return;
  for (const FileMapping& mapping : mappings) {
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping.bytes().data());
    ranges.push_back(
        {begin, begin + mapping.bytes().size(),
         fmt::format("octavo: {}: a page cannot be read: the file was truncated or its device "
                     "failed while its weights were mapped; --weights packed reads them into "
                     "memory\n",
                     printable(mapping.path().string()))});
  }
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace octavo::app
