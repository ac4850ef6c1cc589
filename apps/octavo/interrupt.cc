#include "interrupt.h"

#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "command.h"

namespace octavo::app {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

std::atomic<bool> stop = false;
std::atomic<int> number = 0;
std::array<bool, kSignals.size()> caught = {};
int descriptor = -1;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void handle(int signal) {
  number.store(signal);
  stop.store(true);
  const int before = errno;
  ::eventfd_write(descriptor, 1);
  errno = before;
  struct sigaction usual{};
  usual.sa_handler = SIG_DFL;
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    if (caught[i]) ::sigaction(kSignals[i], &usual, nullptr);
}

}  // namespace

const std::atomic<bool>& catch_interrupts() {
  if (descriptor < 0) descriptor = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct sigaction action{};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) ::sigaddset(&action.sa_mask, signal);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction before{};
    if (::sigaction(kSignals[i], nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    caught[i] = true;
    ::sigaction(kSignals[i], &action, nullptr);
  }
  return stop;
}

int status_of_error(const Error& error) {
  const int status = report_error(error);
  return error.code == ErrorCode::interrupted && caught_signal() != 0 ? 128 + caught_signal()
                                                                      : status;
}

int caught_signal() { return number.load(); }

int interrupt_descriptor() { return descriptor; }

}  // namespace octavo::app
