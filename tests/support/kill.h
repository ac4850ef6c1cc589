// Runs of the real program that are ended from outside, and what they may leave.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace octavo::tests {

// A run in the background, of a program that is loaded; killed where it still runs in the end.
class LiveRun {
 public:
  // `environment`: "NAME=value".
  explicit LiveRun(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment = {});
  ~LiveRun();
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;

  bool ended();           // does not wait
  void send(int signal);  // SIGSTOP: returns once the run stands still
  Outcome wait();

 private:
  TempDir streams_;
  pid_t process_;
  bool ended_ = false;
  int status_ = 0;
};

// For `environment`: the program ends just before the `call`-th call that changes what a disk holds
// (tests/support/kill_at_call.cc).
std::vector<std::string> kill_at_call(int call);

// Relative name and content of every regular file below a directory.
using Contents = std::map<std::string, std::string>;
Contents contents(const std::filesystem::path& directory);  // hidden ones too
Contents without_partial(Contents files);

// Empty where `directory` shows no half-finished thing: what has a final name is whole, of the old
// or of the new model, and where the program opens it, it is one of the two. Else what is wrong.
std::string half_finished(const std::filesystem::path& directory, const Contents& old_model,
                          const Contents& new_model);

}  // namespace octavo::tests
