// The choice of kernels and their bits on processors that lack what this one has, by qemu-user.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace octavo::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Processor {
  const char* name;   // as qemu calls it
  const char* level;  // the best that it has
  std::vector<std::string> lacks;
};

void PrintTo(const Processor& processor, std::ostream* out) { *out << processor.name; }

class EmulatedCpu : public ::testing::TestWithParam<Processor> {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_emulation(); !why.empty()) {
      GTEST_SKIP() << "emulated processors: " << why;
    }
    const auto built = run_octavo({"info", "--json"}).json().at("kernels_built");
    if (built.get<std::string>().find("avx2") == std::string::npos)
      GTEST_SKIP() << "emulated processors: this build has the generic level only";
  }

  static std::string before(const std::string& forced = "") {
    return "OCTAVO_CPU=" + forced + " qemu-x86_64 -cpu " + GetParam().name + " ";
  }
};

INSTANTIATE_TEST_SUITE_P(Processors, EmulatedCpu,
                         ::testing::Values(Processor{"Nehalem", "generic", {"avx2", "avx512bf16"}},
                                           Processor{"Haswell", "avx2", {"avx512bf16"}}),
                         [](const auto& processor) { return processor.param.name; });

TEST_P(EmulatedCpu, GetsTheBestLevelThatItHas) {
  const nlohmann::json info = run_octavo({"info", "--json"}, before()).json();
  EXPECT_THAT(info.at("processor").get<std::string>(), HasSubstr(GetParam().name));
  EXPECT_EQ(info.at("kernels"), GetParam().level);
  for (const std::string& level : GetParam().lacks) {
    EXPECT_THAT(info.at("features").get<std::string>(), ::testing::Not(HasSubstr(level)));
  }
  const Outcome plan = run_octavo({"info", "--op", "gemm", "--json"}, before());
  EXPECT_THAT(plan.json().at("kernel").get<std::string>(),
              StartsWith(std::string(GetParam().level) + "_"));
}

TEST_P(EmulatedCpu, RefusesLevelsThatItLacks) {
  for (const std::string& level : GetParam().lacks) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"info"}, {"info", "--op", "gemm"}}) {
      const Outcome run = run_octavo(command, before(level));
      EXPECT_EQ(run.status, 2);
      // qemu warns on stderr of features that it leaves out itself.
      EXPECT_THAT(run.err, AllOf(HasSubstr("octavo: OCTAVO_CPU=" + level + ": this machine"),
                                 HasSubstr(std::string("lacks it; the best it has is ") +
                                           GetParam().level + "\n")));
    }
  }
}

TEST_P(EmulatedCpu, TakesALevelThatItHas) {
  const Outcome run = run_octavo({"info", "--json"}, before("generic"));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.json().at("kernels"), "generic");
}

// The line that octavo/ops/machine_bits_test.cc prints: "machine bits <hash> by <level>".
std::string machine_bits(const std::string& before) {
  const Outcome run = run_program(OCTAVO_OPS_TEST, {"--gtest_filter=MachineBits.*"}, before);
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  const auto begin = run.out.find("machine bits ");
  EXPECT_NE(begin, std::string::npos) << run.out;
  return begin == std::string::npos ? "" : run.out.substr(begin, run.out.find('\n', begin) - begin);
}

TEST_P(EmulatedCpu, GivesTheBitsOfThisOne) {
  const std::string emulated = machine_bits(before());
  EXPECT_THAT(emulated, ::testing::EndsWith(std::string(" by ") + GetParam().level));
  const auto hash = [](const std::string& line) { return line.substr(0, line.find(" by ")); };
  for (const std::string& level : kernel_levels()) {
    const std::string here = machine_bits("OCTAVO_CPU=" + level + " ");
    EXPECT_THAT(here, ::testing::EndsWith(" by " + level));
    EXPECT_EQ(hash(emulated), hash(here)) << level;
  }
}

// The tests of selection and of products in every way that is left, run there.
TEST_P(EmulatedCpu, PassesTheTestsOfDispatch) {
  for (const auto& [program, filter] : {std::pair{OCTAVO_BASE_TEST, "CpuFeatures*"},
                                        {OCTAVO_KERNELS_TEST, "Select.*:GemmPlan.*"},
                                        {OCTAVO_OPS_TEST, "GemmRefusals.*"}}) {
    const Outcome run = run_program(program, {std::string("--gtest_filter=") + filter}, before());
    EXPECT_EQ(run.status, 0) << program << "\n" << run.out << run.err;
    EXPECT_THAT(run.out, ::testing::Not(HasSubstr("Running 0 tests"))) << program;
  }
}

}  // namespace
}  // namespace octavo::tests
