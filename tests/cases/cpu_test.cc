// CPU cases: threads, levels of kernels and memory that a run takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <future>

#include "tests/support/tiny_model.h"

namespace octavo::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::string on_core(int core) { return "taskset -c " + std::to_string(core) + " "; }

// In front of a program: it sees a file system of cgroups with these files at its roots.
std::string in_cgroup(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string script = "mount -t tmpfs none /sys/fs/cgroup && ";
  for (const auto& [file, text] : files)
    script += "mkdir -p $(dirname /sys/fs/cgroup/" + file + ") && echo " + text +
              " > /sys/fs/cgroup/" + file + " && ";
  return "unshare -rm sh -c '" + script + "exec \"$0\" \"$@\"' ";
}

// The same quota for either version.
std::string with_quota(int thousandths) {
  const std::string quota = std::to_string(thousandths) + "00";
  return in_cgroup({{"cpu.max", quota + " 100000"},
                    {"cpu/cpu.cfs_quota_us", quota},
                    {"cpu/cpu.cfs_period_us", "100000"},
                    {"cpu,cpuacct/cpu.cfs_quota_us", quota},
                    {"cpu,cpuacct/cpu.cfs_period_us", "100000"}});
}

bool can_make_cgroups() { return run_program("true", {}, with_quota(1000)).status == 0; }

std::vector<int> tokens(const std::filesystem::path& model, const std::vector<std::string>& options,
                        std::string_view before = "") {
  std::vector<std::string> arguments{"generate", model.string(), "-p",    "Once upon a time",
                                     "-n",       "20",           "--json"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome run = run_octavo(arguments, before);
  EXPECT_EQ(run.status, 0) << run.err;
  return run.status == 0 ? run.json().at("tokens").get<std::vector<int>>() : std::vector<int>{};
}

class CpuCase : public ::testing::Test {
 protected:
  void SetUp() override { tiny_model("llama3").write(model_); }
  const TempDir dir_;
  const std::filesystem::path model_ = dir_ / "model";
};
class Cpu01 : public CpuCase {};
class Cpu02 : public CpuCase {};
class Cpu03 : public CpuCase {};
class Cpu07 : public CpuCase {};
class Cpu09 : public CpuCase {};

TEST_F(Cpu01, ThreadsAreThoseOfTheAffinityMaskAndOneLineSaysSo) {
  const std::string core = on_core(allowed_cores().front());
  const json info = run_octavo({"info", "--json"}, core).json();
  EXPECT_EQ(info.at("threads"), 1);
  EXPECT_EQ(info.at("threads_why"), "1 core allowed by affinity");
  const std::vector<std::string> generate{"generate", model_.string(), "-p", "abc", "-n", "2"};
  EXPECT_THAT(run_octavo(generate, core).err, HasSubstr(", 1 thread (1 core allowed by affinity)"));
  std::vector<std::string> asked = generate;
  asked.insert(asked.end(), {"--threads", "1"});
  EXPECT_THAT(run_octavo(asked).err, HasSubstr(", 1 thread (as asked)"));
}

TEST_F(Cpu01, ThreadsAreThoseOfTheQuota) {
  if (!can_make_cgroups()) GTEST_SKIP() << "no cgroups: a user who may mount is needed (unshare)";
  const json half = run_octavo({"info", "--json"}, with_quota(500)).json();
  EXPECT_EQ(half.at("threads"), 1);
  EXPECT_EQ(half.at("threads_why"), "quota of 0.5 cores (cgroup)");
  if (allowed_cores().size() < 2) GTEST_SKIP() << "a larger quota: this machine has one core";
  const json more = run_octavo({"info", "--json"}, with_quota(1500)).json();
  EXPECT_EQ(more.at("threads"), 2);
  EXPECT_EQ(more.at("threads_why"), "quota of 1.5 cores (cgroup)");
  EXPECT_THAT(
      run_octavo({"generate", model_.string(), "-p", "abc", "-n", "2"}, with_quota(1000)).err,
      HasSubstr(", 1 thread (quota of 1 cores (cgroup))"));
}

TEST_F(Cpu02, MoreThreadsThanCoresAreNotTaken) {
  const std::string cores = std::to_string(allowed_cores().size()) + " thread";
  const Outcome many =
      run_octavo({"generate", model_.string(), "-p", "abc", "-n", "2", "--threads", "64"});
  EXPECT_EQ(many.status, 0);
  EXPECT_THAT(many.err, HasSubstr(", " + cores));
  const std::vector<int> expected = tokens(model_, {"--threads", "1"});
  EXPECT_EQ(tokens(model_, {"--threads", "64"}), expected);
  EXPECT_EQ(tokens(model_, {"--threads", "0"}), expected);
  for (const char* nonsense : {"-1", "100000", "two", "1.5", ""}) {
    const Outcome run =
        run_octavo({"generate", model_.string(), "-p", "abc", "--threads", nonsense});
    EXPECT_EQ(run.status, 2) << nonsense;
    EXPECT_THAT(only_line(run), HasSubstr("--threads")) << run.err;
  }
}

TEST_F(Cpu03, EachLevelIsChosenByName) {
  const std::vector<std::string> levels = kernel_levels();
  const std::vector<int> expected = tokens(model_, {"--quantize", "float"});
  for (const std::string& level : levels) {
    const std::string before = "OCTAVO_CPU=" + level + " ";
    EXPECT_EQ(run_octavo({"info", "--json"}, before).json().at("kernels"), level);
    EXPECT_EQ(tokens(model_, {"--quantize", "float"}, before), expected) << level;
  }
  const Outcome unknown = run_octavo({"generate", model_.string(), "-p", "a"}, "OCTAVO_CPU=mmx ");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(only_line(unknown), AllOf(HasSubstr("OCTAVO_CPU=mmx"), HasSubstr("avx2")));
}

TEST_F(Cpu03, OlderProcessorsGiveTheSameTextAndNoIllegalInstruction) {
  if (const std::string why = why_no_emulation(); !why.empty()) {
    GTEST_SKIP() << "emulated processors: " << why;
  }
  const std::vector<int> expected = tokens(model_, {"--quantize", "float"});
  for (const char* processor : {"Conroe", "Nehalem", "Haswell", "Skylake-Server"}) {
    const std::string before = std::string("qemu-x86_64 -cpu ") + processor + " ";
    EXPECT_EQ(tokens(model_, {"--quantize", "float"}, before), expected) << processor;
    const Outcome forced =
        run_octavo({"generate", model_.string(), "-p", "a"}, "OCTAVO_CPU=avx512bf16 " + before);
    EXPECT_EQ(forced.status, 2) << processor;
    EXPECT_THAT(forced.err, HasSubstr("octavo: OCTAVO_CPU=avx512bf16: "));
  }
}

TEST_F(Cpu07, TheUsualContextIsSmallAndOneThatIsTooLargeSaysWhatItTakes) {
  TinyModel model = tiny_model("llama3");
  model.config["max_position_embeddings"] = 1048576;
  model.write(dir_ / "long");
  const std::string path = (dir_ / "long").string();
  const Outcome usual = run_octavo({"generate", path, "-p", "abc", "-n", "2"});
  EXPECT_EQ(usual.status, 0);
  EXPECT_THAT(usual.err, HasSubstr("context: up to 4096 tokens (the model knows 1048576), "
                                   "KV cache "));
  if (!can_make_cgroups()) GTEST_SKIP() << "no cgroups: a user who may mount is needed (unshare)";
  // 100 MB are left under the limit.
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string root : {"", "memory/"}) {
    files.emplace_back(root + "memory.max", "17179869184");
    files.emplace_back(root + "memory.current", "17079869184");
    files.emplace_back(root + "memory.limit_in_bytes", "17179869184");
    files.emplace_back(root + "memory.usage_in_bytes", "17079869184");
  }
  const std::string before = in_cgroup(files);
  EXPECT_EQ(run_octavo({"generate", path, "-p", "abc", "-n", "2"}, before).status, 0);
  const Outcome large =
      run_octavo({"generate", path, "-q", "-p", "abc", "-n", "1048573", "-c", "1048576"}, before);
  EXPECT_EQ(large.status, 2);
  EXPECT_EQ(large.out, "");
  // 2 layers of keys and values, 2 bytes each.
  const std::size_t heads = model.config.at("num_key_value_heads");
  const std::size_t dimension =
      model.config.contains("head_dim") && !model.config["head_dim"].is_null()
          ? model.config["head_dim"].get<std::size_t>()
          : model.config["hidden_size"].get<std::size_t>() /
                model.config["num_attention_heads"].get<std::size_t>();
  ASSERT_GT(std::size_t{1048576} * 2 * 2 * 2 * heads * dimension, 100'000'000u);
  EXPECT_THAT(only_line(large),
              AllOf(HasSubstr("a context of 1048576 tokens takes "),
                    HasSubstr("100.0 MB of memory are available"), HasSubstr("--ctx-size")));
}

// What each source is compiled with, by its file name.
std::vector<std::pair<std::string, std::string>> commands(const std::filesystem::path& build) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const json& entry : json::parse(std::ifstream(build / "compile_commands.json")))
    all.emplace_back(entry.at("file"), entry.at("command").get<std::string>() + " ");
  return all;
}

TEST(Cpu08, OnlySourcesOfAnInstructionSetGetItsFlags) {
  std::size_t sources = 0;
  for (const auto& [file, command] : commands(OCTAVO_BUILD_DIR)) {
    SCOPED_TRACE(file);
    EXPECT_THAT(command, Not(HasSubstr("-march=")));
    std::vector<std::string> flags;
    if (file.ends_with("_avx2.cc")) flags = {"avx2", "fma", "f16c"};
    if (file.ends_with("_avx512bf16.cc"))
      flags = {"avx512f",    "avx512bw",   "avx512vl", "avx512dq",
               "avx512vbmi", "avx512bf16", "fma",      "f16c"};
    for (const std::string& flag : flags) EXPECT_THAT(command, HasSubstr(" -m" + flag + " "));
    if (flags.empty()) {
      EXPECT_THAT(command, AllOf(Not(HasSubstr(" -mavx")), Not(HasSubstr(" -mfma"))));
    }
    ++sources;
  }
  EXPECT_GT(sources, 100u);
}

// A compiler that does not know a flag: the build is configured without the sources that need it.
TEST(Cpu08Slow, ACompilerThatLacksAnInstructionSetLeavesItOut) {
#ifndef __x86_64__
  GTEST_SKIP() << "instruction sets: this is no x86-64 build";
#endif
  const TempDir dir;
  const std::filesystem::path compiler = dir / "g++";
  std::ofstream(compiler) << "#!/bin/sh\nfor word; do\n  test \"$word\" = -mavx512bf16 && exit 1\n"
                             "done\nexec " OCTAVO_COMPILER " \"$@\"\n";
  std::filesystem::permissions(compiler, std::filesystem::perms::owner_all);
  const Outcome run =
      run_program("cmake", {"-S", OCTAVO_SOURCE_DIR, "-B", (dir / "build").string(), "-G", "Ninja",
                            "-DOCTAVO_TESTS=OFF", "-DCMAKE_CXX_COMPILER=" + compiler.string()});
  ASSERT_EQ(run.status, 0) << run.err;
  std::size_t avx2 = 0;
  for (const auto& [file, command] : commands(dir / "build")) {
    avx2 += file.ends_with("_avx2.cc") ? 1 : 0;
    EXPECT_THAT(file, Not(HasSubstr("_avx512bf16.cc")));
    EXPECT_THAT(command, Not(HasSubstr("OCTAVO_HAS_AVX512BF16")));
  }
  EXPECT_GT(avx2, 3u);
}

TEST_F(Cpu09, TwoRunsOnCoresOfTheirOwnGiveTheTextOfOne) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) GTEST_SKIP() << "two cores are needed";
  const std::vector<int> expected = tokens(model_, {});
  std::vector<std::future<Outcome>> runs;
  for (const int core : {cores[0], cores[1]}) {
    runs.push_back(std::async(std::launch::async, [&, core] {
      return run_octavo(
          {"generate", model_.string(), "-p", "Once upon a time", "-n", "20", "--json"},
          on_core(core));
    }));
  }
  for (std::future<Outcome>& run : runs) {
    const Outcome outcome = run.get();
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.json().at("tokens").get<std::vector<int>>(), expected);
    EXPECT_THAT(outcome.err, HasSubstr(", 1 thread (1 core allowed by affinity)"));
  }
  for (const char* threads : {"1", "3", "17", "33"})
    EXPECT_EQ(tokens(model_, {"--threads", threads}), expected) << threads;
}

}  // namespace
}  // namespace octavo::tests
