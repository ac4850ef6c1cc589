#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "command.h"

namespace octavo::app {
namespace {

using namespace std::chrono_literals;

constexpr auto kTerminalInterval = 100ms;
constexpr auto kLineInterval = 5s;

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && (term == nullptr || std::strcmp(term, "dumb") != 0);
}

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Progress::Progress(std::string label, bool quiet, std::string items)
    : label_(std::move(label)),
      items_(std::move(items)),
      terminal_(is_terminal()),
      start_(std::chrono::steady_clock::now()) {
  if (!quiet) thread_ = std::thread([this] { run(); });
}

Progress::~Progress() { finish(); }

void Progress::update(std::uint64_t done, std::uint64_t total) {
  total_.store(total);
  std::uint64_t before = done_.load();
  while (before < done && !done_.compare_exchange_weak(before, done)) {
  }
}

void Progress::finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (terminal_ && drawn_) print_err("\r\033[K");
  std::fflush(stderr);
}

void Progress::run() {
  std::unique_lock lock(mutex_);
  const auto interval = terminal_ ? std::chrono::milliseconds(kTerminalInterval)
                                  : std::chrono::milliseconds(kLineInterval);
  while (!wake_.wait_for(lock, interval, [this] { return stop_; })) draw();
}

void Progress::draw() {
  const auto total = static_cast<double>(total_.load());
  const auto done = static_cast<double>(done_.load());
  if (total == 0) return;
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double share = std::min(1.0, done / total);
  const double rate = done / elapsed;
  const std::string left = done > 0 ? human_seconds((total - done) / rate) : "?";
  const std::string tail =
      items_.empty()
          ? fmt::format(" {}/{} [{}<{}, {}/s]", human_bytes(done), human_bytes(total),
                        human_seconds(elapsed), left, human_bytes(rate))
          : fmt::format(" {}/{} {} [{}<{}]", done, total, items_, human_seconds(elapsed), left);
  const std::string head = fmt::format("{}: {:3.0f}%", label_, 100 * share);
  drawn_ = true;
  if (!terminal_) {
    print_err("{}{}\n", head, tail);
    return;
  }
  const std::size_t used = head.size() + tail.size() + 4;
  const std::size_t width =
      terminal_width() > used ? std::min<std::size_t>(40, terminal_width() - used) : 0;
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(width));
  const std::string bar =
      width < 5 ? "" : fmt::format(" |{:#<{}}{: <{}}|", "", filled, "", width - filled);
  print_err("\r{}{}{}\033[K", head, bar, tail);
  std::fflush(stderr);
}

}  // namespace octavo::app
