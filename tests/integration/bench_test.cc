// `octavo bench` as a whole: what it prints and refuses. No figure is judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/support/command.h"

namespace octavo::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Names = std::set<std::string>;

const std::vector<std::string> kOps = {"roof",     "gemv",       "gemm", "training",
                                       "quantize", "dequantize", "cast", "pack"};

Names keys_of(const nlohmann::json& object) {
  Names keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

std::vector<std::string> quick(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench", "--quick", "--quiet", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Bench, TableEndsWithTheShareAndItsRowsAreAligned) {
  const Outcome run = run_octavo(quick({}));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  const std::vector<std::string> lines = lines_of(run.out);
  ASSERT_GE(lines.size(), 4u) << run.out;  // machine, method, blank; head; groups and their rows
  EXPECT_THAT(lines[0], AllOf(HasSubstr("allowed"), HasSubstr("kernels ")));
  std::size_t at = 0;
  for (const char* column :
       {"m", "formats", "thr", "kernel", "value", "roof", "quartiles", "share"}) {
    at = lines[3].find(column, at);
    ASSERT_NE(at, std::string::npos) << column << " in " << lines[3];
  }
  EXPECT_TRUE(lines[3].ends_with("share"));
  // Columns grow with what is measured: on a busy machine a roof may be a hundredth of the value.
  constexpr std::size_t kMostGrowth = 2 * 2 + 2 + 2;  // of quartiles, share, value and roof
  EXPECT_LE(lines[3].size(), 100u + kMostGrowth) << lines[3];
  std::string op;
  for (std::size_t i = 4; i < lines.size(); ++i) {
    if (!lines[i].starts_with(" ")) {
      op = lines[i].substr(0, lines[i].find(' '));
      continue;
    }
    EXPECT_EQ(lines[i].size(), lines[3].size()) << lines[i];
    EXPECT_EQ(lines[i].ends_with(" %"), op != "roof") << lines[i];
  }
}

// Every format of weights, and weights in rows and packed, has a row without being asked for.
TEST(Bench, DefaultRows) {
  const Outcome run = run_octavo(quick({"--json", "--op", "gemv,pack"}));
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json json = run.json();
  Names rows;
  for (const nlohmann::json& row : json["results"]) {
    rows.insert((row["m"].is_null() ? "" : row["m"].dump() + " ") +
                row["formats"].get<std::string>());
  }
  for (const char* row : {"1 e4m3fn x bf16", "2 e4m3fn x bf16", "4 e4m3fn x bf16",
                          "1 e4m3fn x e4m3fn", "1 e4m3fn x f32", "1 bf16 x bf16", "1 e5m2 x bf16",
                          "1 e4m3fnuz x bf16", "1 e5m2fnuz x bf16", "1 e4m3fn rows x bf16",
                          "e4m3fn rows", "e4m3fn transposed", "bf16 rows", "bf16 transposed"})
    EXPECT_TRUE(rows.contains(row)) << row;
}

// However busy the machine is, a row of two threads has figures or says that it has none.
TEST(Bench, RowsOfTwoThreadsHaveFiguresOrNone) {
  const Outcome run =
      run_octavo({"bench", "--quick", "--quiet", "--op", "roof,gemv", "--threads", "2", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json rows = run.json()["results"];
  ASSERT_FALSE(rows.empty());
  for (const nlohmann::json& row : rows) {
    EXPECT_EQ(row["value"].is_null(), row["pairs"] == 0) << row;
    EXPECT_LE(row["pairs"], 5) << row;
    EXPECT_GE(row["pairs"].get<int>() + row["dropped"].get<int>(), 5) << row;
  }
}

// Also where other libraries are measured beside ours.
TEST(Bench, EndsUnderALimitOfAddressSpace) {
  if (built_with_sanitizers()) GTEST_SKIP() << "sanitizers reserve more address space";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--version"}, quick({"--op", "roof,gemv"})}) {
    const Outcome run = run_octavo(arguments, "ulimit -v 400000; timeout 60 ");
    EXPECT_EQ(run.status, 0) << ::testing::PrintToString(arguments) << run.err;
  }
}

TEST(Bench, JsonHasExactlyItsKeys) {
  const Outcome run = run_octavo(quick({"--json", "--pairs", "5"}));
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json json = run.json();
  EXPECT_EQ(keys_of(json), (Names{"machine", "results"}));
  Names ops;
  for (const nlohmann::json& row : json["results"]) {
    EXPECT_EQ(keys_of(row),
              (Names{"op", "m", "n", "k", "formats", "threads", "kernel", "value", "unit", "roof",
                     "roof_value", "share", "spread", "pairs", "dropped", "error", "wrong"}));
    EXPECT_EQ(row["pairs"], 5);
    EXPECT_EQ(row["dropped"], 0);
    EXPECT_TRUE(row["wrong"].is_null()) << row;
    const std::string op = row["op"];
    ops.insert(op);
    EXPECT_EQ(row["threads"], 1);
    EXPECT_GT(row["value"].get<double>(), 0);
    if (op == "roof") {
      for (const char* key : {"m", "n", "k", "roof", "share", "spread", "error"})
        EXPECT_TRUE(row[key].is_null()) << row;
      continue;
    }
    EXPECT_GT(row["share"].get<double>(), 0);
    ASSERT_EQ(row["spread"].size(), 2u);
    EXPECT_LE(row["spread"][0], row["share"]);
    EXPECT_LE(row["share"], row["spread"][1]);
    EXPECT_EQ(row["m"].is_null(), op != "gemv" && op != "gemm" && op != "training") << row;
    // Our kernels give the bits of the reference; other libraries sum in another order.
    const std::string kernel = row["kernel"];
    if (!kernel.starts_with("onednn") && !kernel.starts_with("openblas")) {
      EXPECT_EQ(row["error"], 0.0) << row;
    }
  }
  EXPECT_EQ(ops, Names(kOps.begin(), kOps.end()));
}

// Sizes that no vector and no block divides, and fewer rows than threads.
TEST(Bench, ResultsOfRaggedShapesAreRight) {
  for (const std::string& level : kernel_levels()) {
    const Outcome run = run_octavo(
        {"bench", "--quick", "--quiet", "--op", "gemv,gemm,training,quantize,dequantize,cast,pack",
         "--m", "3", "--n", "131", "--k", "202", "--threads", "1", "--json"},
        "OCTAVO_CPU=" + level + " ");
    ASSERT_EQ(run.status, 0) << level << run.err;
    const nlohmann::json json = run.json();
    EXPECT_EQ(json["machine"]["kernels"], level);
    for (const nlohmann::json& row : json["results"]) EXPECT_EQ(row["n"], 131);
  }
}

TEST(Bench, FormatsChoosesRows) {
  const Outcome run = run_octavo(quick({"--op", "dequantize", "--formats", "e2m1fn", "--json"}));
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json rows = run.json()["results"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_THAT(rows[0]["formats"].get<std::string>(), HasSubstr("e2m1fn"));
}

TEST(Bench, BadUsageIsStatusTwo) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--op", "divide"},
           {"--pairs", "4"},
           {"--m", "0"},
           {"--n", "many"},
           {"--threads", "-1"},
           {"--op", "cast", "--formats", "e3m4"},
           {"--op", "dequantize", "--formats", "e2m1fn", "--k", "33"}}) {
    const Outcome run = run_octavo(quick(arguments));
    EXPECT_EQ(run.status, 2) << ::testing::PrintToString(arguments) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(only_line(run), Not(IsEmpty())) << run.err;
  }
  EXPECT_THAT(only_line(run_octavo({"bench", "--op", "divide"})), HasSubstr("divide"));
}

TEST(Bench, AForcedLevelThatIsUnknownOrMissingIsRefused) {
  std::vector<std::string> refused = {"avx1024"};
  if (!has_cpu_flag("avx512_bf16")) refused.push_back("avx512bf16");
  if (!has_cpu_flag("avx2")) refused.push_back("avx2");
  for (const std::string& level : refused) {
    const Outcome run = run_octavo(quick({"--op", "roof"}), "OCTAVO_CPU=" + level + " ");
    EXPECT_EQ(run.status, 2) << level;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(only_line(run), HasSubstr("OCTAVO_CPU=" + level));
  }
}

}  // namespace
}  // namespace octavo::tests
