// Signals that end a run in good order.
#pragma once

#include <atomic>

#include "octavo/base/error.h"

namespace octavo::app {

// From now on the first SIGINT, SIGTERM or SIGHUP only sets the flag that comes back; the next one
// ends the process as usual. A signal that was ignored stays ignored.
const std::atomic<bool>& catch_interrupts();

// Of a command that returned an error: 128 + signal where a signal interrupted it, else what
// report_error() says of it.
int status_of_error(const Error& error);

// The signal that came, or 0.
int caught_signal();

// For poll(): readable once a signal came. -1 before catch_interrupts().
int interrupt_descriptor();

}  // namespace octavo::app
