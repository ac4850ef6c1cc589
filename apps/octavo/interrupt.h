// Signals that end a run in good order.
#pragma once

#include <atomic>

namespace octavo::app {

// From now on the first SIGINT, SIGTERM or SIGHUP only sets the flag that comes back; the next one
// ends the process as usual. A signal that was ignored stays ignored.
const std::atomic<bool>& catch_interrupts();

// The signal that came, or 0.
int caught_signal();

}  // namespace octavo::app
