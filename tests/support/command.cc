#include "tests/support/command.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/support/tensor_file.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

int exit_status(int ended) { return WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended); }

}  // namespace

TempDir::TempDir() {
  std::string name = (fs::temp_directory_path() / "octavo_test_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw std::runtime_error("cannot make a temporary directory");
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string only_line(const Outcome& run) {
  constexpr std::string_view kHead = "octavo: ";
  const std::string& err = run.err;
  const bool one = err.starts_with(kHead) && err.find('\n') == err.size() - 1;
  return one ? err.substr(kHead.size(), err.size() - kHead.size() - 1) : "";
}

Outcome run_program(const std::string& program, const std::vector<std::string>& arguments,
                    std::string_view before) {
  const TempDir streams;
  std::string line(before);
  line += shell_quoted(program);
  for (const std::string& argument : arguments) line += " " + shell_quoted(argument);
  line += " > " + shell_quoted((streams / "out").string()) + " 2> " +
          shell_quoted((streams / "err").string());
  const int ended = std::system(line.c_str());
  return {exit_status(ended), read_string(streams / "out"), read_string(streams / "err")};
}

Outcome run_octavo(const std::vector<std::string>& arguments, std::string_view before) {
  return run_program(octavo_program(), arguments, before);
}

std::string octavo_program() {
  const char* other = std::getenv("OCTAVO_TEST_APP");
  return other ? other : OCTAVO_APP;
}

MeasuredOutcome run_octavo_measured(const std::vector<std::string>& arguments) {
  const TempDir streams;
  const std::string out = (streams / "out").string();
  const std::string err = (streams / "err").string();
  std::vector<std::string> words = {octavo_program()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const ::pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    constexpr int kFlags = O_CREAT | O_TRUNC | O_WRONLY;
    const int files[] = {::open(out.c_str(), kFlags, 0644), ::open(err.c_str(), kFlags, 0644)};
    if (::dup2(files[0], STDOUT_FILENO) >= 0 && ::dup2(files[1], STDERR_FILENO) >= 0)
      ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int ended = 0;
  struct ::rusage usage{};
  if (::wait4(child, &ended, 0, &usage) != child) throw std::runtime_error("cannot wait");
  return {{exit_status(ended), read_string(out), read_string(err)},
          static_cast<std::uint64_t>(usage.ru_maxrss) * 1024};
}

bool built_with_sanitizers() {
  static const bool with =
      run_octavo({"info", "--json"}).json().at("build").get<std::string>().contains("sanitizers");
  return with;
}

std::string why_no_emulation() {
#ifndef __x86_64__
  return "this is no x86-64 build";
#endif
  if (built_with_sanitizers()) return "not with sanitizers, which qemu-user does not run";
  if (run_program("qemu-x86_64", {"--version"}).status != 0) {
    return "qemu-x86_64 is missing (scripts/setup installs it)";
  }
  return "";
}

bool has_cpu_flag(std::string_view flag) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word == flag) return true;
    }
    return false;
  }
  return false;
}

std::vector<std::string> kernel_levels() {
  const std::string built =
      " " + run_octavo({"info", "--json"}).json().at("kernels_built").get<std::string>() + " ";
  std::vector<std::string> levels = {"generic"};
  const auto add = [&](const std::string& level, std::initializer_list<std::string_view> flags) {
    std::string why;
    if (built.find(" " + level + " ") == built.npos) why = "not built";
    for (const std::string_view flag : flags) {
      if (!has_cpu_flag(flag)) why = "this machine lacks " + std::string(flag);
    }
    if (why.empty())
      levels.push_back(level);
    else
      std::printf("left out: OCTAVO_CPU=%s: %s\n", level.c_str(), why.c_str());
  };
  add("avx2", {"avx2", "fma", "f16c"});
  add("avx512bf16", {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vbmi", "avx512_bf16"});
  return levels;
}

}  // namespace octavo::tests
