#include "tests/support/kill.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>

#include "tests/support/tensor_file.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

// Only what may be called between fork and exec.
[[noreturn]] void become(char* const* arguments, char* const* environment, const char* out,
                         const char* err) {
  const int streams[] = {::open(out, O_WRONLY | O_CREAT | O_TRUNC, 0644),
                         ::open(err, O_WRONLY | O_CREAT | O_TRUNC, 0644)};
  ::dup2(streams[0], STDOUT_FILENO);
  ::dup2(streams[1], STDERR_FILENO);
  ::execve(arguments[0], arguments, environment);
  ::_exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

bool is_model_file(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".index.json") || name == "config.json";
}

bool holds_model(const Contents& files, const Contents& model) {
  return !model.empty() && std::ranges::all_of(model, [&](const auto& entry) {
    const auto found = files.find(entry.first);
    return !is_model_file(entry.first) || (found != files.end() && found->second == entry.second);
  });
}

}  // namespace

LiveRun::LiveRun(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& environment) {
  std::vector<std::string> line = {octavo_program()};
  line.insert(line.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  const std::string out = (streams_ / "out").string();
  const std::string err = (streams_ / "err").string();
  const std::vector<char*> words = pointers(line);
  const std::vector<char*> names = pointers(variables);
  int started[2];  // closed by exec: a signal from here on meets the program
  if (::pipe2(started, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  process_ = ::fork();
  if (process_ < 0) throw std::runtime_error("fork");
  if (process_ == 0) become(words.data(), names.data(), out.c_str(), err.c_str());
  ::close(started[1]);
  char byte;
  while (::read(started[0], &byte, 1) < 0 && errno == EINTR) continue;
  ::close(started[0]);
}

LiveRun::~LiveRun() {
  if (ended_) return;
  send(SIGKILL);
  ::waitpid(process_, &status_, 0);
}

bool LiveRun::ended() {
  if (!ended_) ended_ = ::waitpid(process_, &status_, WNOHANG) == process_;
  return ended_;
}

void LiveRun::send(int signal) {
  if (ended_) return;
  ::kill(process_, signal);
  if (signal != SIGSTOP) return;
  ::waitpid(process_, &status_, WUNTRACED);
  ended_ = !WIFSTOPPED(status_);
}

Outcome LiveRun::wait() {
  if (!ended_) ::waitpid(process_, &status_, 0);
  ended_ = true;
  const int status = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  const auto text = [&](const char* name) {
    return fs::exists(streams_ / name) ? read_string(streams_ / name) : "";
  };
  return {status, text("out"), text("err")};
}

std::vector<std::string> kill_at_call(int call) {
  return {"LD_PRELOAD=" OCTAVO_KILL_AT_CALL, "OCTAVO_KILL_AT=" + std::to_string(call)};
}

Contents contents(const fs::path& directory) {
  Contents files;
  if (!fs::exists(directory)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    files[entry.path().lexically_relative(directory).string()] = read_string(entry.path());
  }
  return files;
}

Contents without_partial(Contents files) {
  std::erase_if(files, [](const auto& entry) { return entry.first.ends_with(".partial"); });
  return files;
}

std::string half_finished(const fs::path& directory, const Contents& old_model,
                          const Contents& new_model) {
  const Contents files = without_partial(contents(directory));
  for (const auto& [name, bytes] : files) {
    const auto is_of = [&](const Contents& model) {
      const auto found = model.find(name);
      return found != model.end() && found->second == bytes;
    };
    if (!is_of(old_model) && !is_of(new_model))
      return name + " is neither the old nor the new model's";
  }
  if (run_octavo({"inspect", directory.string()}).status != 0) return "";  // opens as nothing
  if (holds_model(files, old_model) || holds_model(files, new_model)) return "";
  std::string names;
  for (const auto& [name, bytes] : files) names += " " + name;
  return "opens as a model, but is neither the old nor the new one:" + names;
}

}  // namespace octavo::tests
