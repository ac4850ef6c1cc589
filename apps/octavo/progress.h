// Progress of a long command on stderr: a bar on a terminal, a line every few seconds elsewhere,
// nothing when quiet.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace octavo::app {

class Progress {
 public:
  // Totals are bytes, or numbers of `items`. Shows itself only once the work has taken a moment.
  Progress(std::string label, bool quiet, std::string items = "");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::uint64_t done,
              std::uint64_t total);  // from any thread; only raises what is shown
  void finish();                     // removes the bar

 private:
  void run();
  void draw();

  std::string label_;
  std::string items_;
  bool terminal_;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<std::uint64_t> total_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  bool drawn_ = false;
  std::thread thread_;
};

}  // namespace octavo::app
