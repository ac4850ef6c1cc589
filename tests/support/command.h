// Directories that go away, and runs of the real program.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::tests {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

struct Outcome {
  int status;       // exit status; 128 + signal where one ended it
  std::string out;  // stdout
  std::string err;  // stderr
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

// The one line that stderr must be, without "octavo: " in front; empty where it is anything else.
std::string only_line(const Outcome& run);

// `before` is shell text in front of the program: "OCTAVO_CPU=generic ", "ulimit -d 1048576; ",
// "taskset -c 0 ".
Outcome run_program(const std::string& program, const std::vector<std::string>& arguments,
                    std::string_view before = "");
Outcome run_octavo(const std::vector<std::string>& arguments, std::string_view before = "");

std::string octavo_program();  // its path, for scripts

struct MeasuredOutcome {
  Outcome run;
  // The most memory that the program held at a time, mapped files included. The kernel counts what
  // the test itself held when it started it as well, so that this is never too little.
  std::uint64_t peak_bytes;
};
MeasuredOutcome run_octavo_measured(const std::vector<std::string>& arguments);

// The program was built with address sanitizer, whose shadow memory hides what the program takes.
bool built_with_sanitizers();

// Why programs cannot run on an emulated processor (qemu-x86_64) here; empty where they can.
std::string why_no_emulation();

bool has_cpu_flag(std::string_view flag);  // of /proc/cpuinfo

// Levels for OCTAVO_CPU that this machine and this build have; the others are printed as left out.
std::vector<std::string> kernel_levels();

}  // namespace octavo::tests
