// Inputs and circumstances that mean harm: what stood there before must survive, nothing may look
// like a model that is none, and no size in a file or an option may turn into time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/inputs.h"
#include "tests/support/kill.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr Extent kSquare{128, 128};
const std::string kFirst = "model-00001-of-00002.safetensors";
const std::string kSecond = "model-00002-of-00002.safetensors";

void write_old_model(const fs::path& directory) {
  write_model(
      directory,
      std::map<std::string, Tensors>{{kFirst, {{"old.0.weight", bf16_weight(kSquare, 1)}}},
                                     {kSecond, {{"old.1.weight", bf16_weight(kSquare, 2)}}}},
      kPlainConfig);
  write_string(directory / "tokenizer.json", "the old one's");
}

class FailedRun : public ::testing::Test {
 protected:
  FailedRun() { write_old_model(dir_ / "out"); }

  // The run ends with an error that says `message`, and the old model is there to the last byte.
  void expect_old_model(const char* command, std::vector<std::string> more, const char* message,
                        std::string_view before = "") {
    const auto old = contents(dir_ / "out");
    more.insert(more.begin(), {command, (dir_ / "in").string(), (dir_ / "out").string()});
    more.emplace_back("--overwrite");
    const Outcome run = run_octavo(more, before);
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_THAT(only_line(run), HasSubstr(message));
    EXPECT_EQ(contents(dir_ / "out"), old);
  }

  const TempDir dir_;
};

TEST_F(FailedRun, NanInTheLastShardKeepsTheOldModel) {
  Tensor spoiled = bf16_weight(kSquare, 4);
  spoiled.bytes[spoiled.bytes.size() - 2] = 0xC0;
  spoiled.bytes[spoiled.bytes.size() - 1] = 0x7F;
  // The names of the old files, so that nothing but care keeps them.
  write_model(dir_ / "in",
              std::map<std::string, Tensors>{{kFirst, {{"a.weight", bf16_weight(kSquare, 3)}}},
                                             {kSecond, {{"b.weight", spoiled}}}},
              kPlainConfig);
  expect_old_model("quantize", {}, "b.weight[127, 127] is nan");
}

TEST_F(FailedRun, ADirectoryInTheWayOfASideFileKeepsTheOldModel) {
  write_model(dir_ / "in", {{"a.weight", bf16_weight(kSquare, 3)}}, kPlainConfig);
  write_string(dir_ / "in" / "notes.txt", "new");
  fs::create_directories(dir_ / "out" / "notes.txt");
  expect_old_model("quantize", {}, "a directory stands where a file is to be written");
}

TEST_F(FailedRun, ASourceThatLinksIntoTheDestinationKeepsIt) {
  fs::create_directories(dir_ / "in");
  fs::create_symlink(dir_ / "out" / kFirst, dir_ / "in" / "model.safetensors");
  const auto old = contents(dir_ / "out");
  const Outcome run =
      run_octavo({"quantize", (dir_ / "in").string(), (dir_ / "out").string(), "--overwrite"});
  EXPECT_EQ(run.status, 2) << run.err;
  EXPECT_THAT(only_line(run), HasSubstr("of the input is in it"));
  EXPECT_EQ(contents(dir_ / "out"), old);
}

TEST(Hostile, ALinkThatLeadsNowhereIsNotPassedOver) {
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", bf16_weight(kSquare, 3)}}, kPlainConfig);
  fs::create_symlink("/nowhere/tokenizer.json", dir / "in" / "tokenizer.json");
  const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(only_line(run), HasSubstr("a link to a file that is not there"));
}

TEST(Hostile, PythonsInfinityInAConfigSurvives) {
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", bf16_weight(kSquare, 3)}},
              R"({"time_step_limit": [0.0, Infinity], "x": [NaN, -Infinity], "s": "NaN"})");
  const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(
      read_string(dir / "out" / "config.json"),
      HasSubstr(R"("time_step_limit": [0.0, Infinity], "x": [NaN, -Infinity], "s": "NaN")"));
}

TEST_F(FailedRun, OverflowOfF16KeepsTheOldModel) {
  const Fp8Weight weight = fp8_weight(kSquare, 3, std::vector<float>{4096});
  write_model(dir_ / "in", {{"a.weight", weight.codes}, {"a.weight_scale_inv", weight.scales}},
              kFp8Config);
  expect_old_model("dequantize", {"--dtype", "f16"}, "too large for F16");
}

// A limit on the size of files stands for a full device: both end in a write that fails. 4 or 8
// KiB, as the shell counts; the shard takes 16.
constexpr std::string_view kFullDevice = "trap '' XFSZ; ulimit -f 8; ";

TEST_F(FailedRun, FullDeviceKeepsTheOldModel) {
  write_model(dir_ / "in", {{"a.weight", bf16_weight(kSquare, 3)}}, kPlainConfig);
  expect_old_model("quantize", {}, "File too large", kFullDevice);
}

TEST(Hostile, FullDeviceLeavesNothing) {
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", bf16_weight(kSquare, 1)}}, kPlainConfig);
  const Outcome run =
      run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()}, kFullDevice);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(only_line(run), HasSubstr("File too large"));
  EXPECT_FALSE(fs::exists(dir / "out"));
}

TEST(Hostile, RelativeDestinationInsideTheSourceIsRefused) {
  const TempDir dir;
  write_old_model(dir / "in");
  const auto before = contents(dir / "in");
  const std::string inside = "cd '" + (dir / "in").string() + "'; ";
  for (const auto& [source, destination] : {std::pair{".", "out"},
                                            {".", "a/../out/"},
                                            {"../in", "out"},
                                            {".", "../in/out"},
                                            {"../in", "."}}) {
    const Outcome run = run_octavo({"quantize", source, destination}, inside);
    EXPECT_EQ(run.status, 2) << source << " " << destination;
    EXPECT_THAT(only_line(run), HasSubstr("would lie in the input directory"));
  }
  EXPECT_EQ(contents(dir / "in"), before);
  EXPECT_FALSE(fs::exists(dir / "in" / "out"));
}

TEST(Hostile, OneShardOfManyIsNoModel) {
  const TempDir dir;
  write_old_model(dir / "in");
  fs::remove(dir / "in" / kSecond);
  for (const bool index : {true, false}) {
    if (!index) fs::remove(dir / "in" / "model.safetensors.index.json");
    for (const char* command : {"quantize", "dequantize", "inspect"}) {
      std::vector<std::string> arguments = {command, (dir / "in").string()};
      if (command != std::string_view("inspect")) arguments.push_back((dir / "out").string());
      const Outcome run = run_octavo(arguments);
      EXPECT_EQ(run.status, 1) << command;
      EXPECT_THAT(only_line(run), HasSubstr("incomplete download"));
    }
  }
  EXPECT_FALSE(fs::exists(dir / "out"));
}

TEST(Hostile, IndexLeadsNowhereElse) {
  const TempDir dir;
  write_tensor_file(dir / "a.safetensors", {{"a.weight", bf16_weight(kSquare, 1)}});
  for (const std::string& file : {std::string("../a.safetensors"), (dir / "a.safetensors").string(),
                                  std::string("x/../../a.safetensors")}) {
    const nlohmann::json index = {{"weight_map", {{"a.weight", file}}}};
    write_string(dir / "in" / "model.safetensors.index.json", index.dump());
    const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()});
    EXPECT_EQ(run.status, 1) << file;
    EXPECT_THAT(only_line(run), HasSubstr("leads out of the directory"));
  }
  EXPECT_FALSE(fs::exists(dir / "out"));
}

// The eight bytes in front of a safetensors header.
std::string length_prefix(std::string_view header) {
  std::string text(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i));
  return text;
}

TEST(Hostile, BrokenJsonIsOneLine) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  const std::vector<std::string> headers = {
      R"({"a\ud800.weight":{"dtype":"BF16","shape":[1,1],"data_offsets":[0,2]}})",
      R"({"a\udc00.weight":{"dtype":"BF16","shape":[1,1],"data_offsets":[0,2]}})",
      "{\"a\xFF.weight\":{\"dtype\":\"BF16\",\"shape\":[1,1],\"data_offsets\":[0,2]}}",
      R"({"a":{"dtype":"BF16","shape":[1,1],"data_offsets":[0,2],"x":)" + deep + "}}",
      R"({"a":{"dtype":"BF16","shape":[4294967296,4294967296],"data_offsets":[0,2]}})"};
  for (const std::string& header : headers) {
    const TempDir dir;
    write_string(dir / "in" / "model.safetensors", length_prefix(header) + header + "\1\1");
    const Outcome run = run_octavo({"inspect", (dir / "in").string()});
    EXPECT_EQ(run.status, 1) << header.substr(0, 80);
    EXPECT_THAT(only_line(run), HasSubstr("model.safetensors: ")) << header.substr(0, 80);
  }
}

TEST(Hostile, PackedIntegersAreRefused) {
  for (const char* name : {"a.qweight", "a.weight_packed", "a.qzeros"}) {
    const TempDir dir;
    write_model(dir / "in",
                {{name, {"I32", {16, 16}, Bytes(1024, 0x11)}},
                 {"a.scales", make_tensor("F16", {1, 16}, std::vector<float>(16, 0.5f))},
                 {"b.weight", bf16_weight(kSquare, 1)}},
                kPlainConfig);
    for (const char* command : {"quantize", "dequantize"}) {
      const Outcome run = run_octavo({command, (dir / "in").string(), (dir / "out").string()});
      EXPECT_EQ(run.status, 1) << name;
      EXPECT_THAT(only_line(run), HasSubstr(std::string(name) + " holds packed integers"));
    }
    EXPECT_FALSE(fs::exists(dir / "out"));
  }
}

// No clock: work that grows with the size of a block runs into the time limit of every test.
TEST(Hostile, ExtremeBlockSizesTakeNoTime) {
  const TempDir dir;
  const Extent wide{3, 5000};
  const std::vector<float> values(wide.count(), 0.5f);
  const Tensor weight = make_tensor("BF16", {wide.rows, wide.cols}, values);
  write_model(dir / "in", {{"a.weight", weight}}, kPlainConfig);
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  for (const auto& [rows, cols] : {std::pair<std::uint64_t, std::uint64_t>{1, 1},
                                   {1, 1'000'000'000'000},
                                   {1'000'000'000'000, 1},
                                   {std::uint64_t{1} << 63, std::uint64_t{1} << 63},
                                   {kMost, kMost}}) {
    SCOPED_TRACE(std::to_string(rows) + "," + std::to_string(cols));
    const Outcome run =
        run_octavo({"quantize", (dir / "in").string(), (dir / "fp8").string(), "--overwrite",
                    "--weight-block-size", std::to_string(rows) + "," + std::to_string(cols)});
    ASSERT_EQ(run.status, 0) << run.err;
    const Outcome back =
        run_octavo({"dequantize", (dir / "fp8").string(), (dir / "back").string(), "--overwrite"});
    ASSERT_EQ(back.status, 0) << back.err;
    EXPECT_EQ(read_model(dir / "back").tensors.at("a.weight"), weight) << "0.5 is exact";
  }
}

TEST(Hostile, FiftyThousandTensors) {
  const TempDir dir;
  constexpr std::size_t kCount = 50'000;
  std::string header;  // by hand: a JSON library takes longer than the program
  for (std::size_t i = 0; i < kCount; ++i) {
    header += (i == 0 ? "{\"layers." : ",\"layers.") + std::to_string(i) +
              ".down_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[" +
              std::to_string(4 * i) + "," + std::to_string(4 * i + 4) + "]}";
  }
  write_string(dir / "in" / "model.safetensors",
               length_prefix(header + "}") + header + "}" + std::string(4 * kCount, '?'));
  const Outcome run =
      run_octavo({"quantize", (dir / "in").string(), (dir / "out").string(), "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.json().at("quantized"), kCount);
}

// No clock: work that is exponential in the length of a name runs into the time limit of every
// test.
TEST(Hostile, RegexThatBacktracksForEverEnds) {
  const TempDir dir;
  const std::string name(60, 'a');
  write_model(dir / "in", {{name + ".weight", bf16_weight(kSquare, 1)}}, kPlainConfig);
  for (const char* pattern : {"re:(a+)+b", "re:(a|aa)+c", "re:(a*)*d", "*a*a*a*a*a*a*a*a*a*b"}) {
    const Outcome run = run_octavo(
        {"quantize", (dir / "in").string(), "--plan", "--modules-to-not-convert", pattern});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.err, HasSubstr("matches no tensor"));
  }
}

}  // namespace
}  // namespace octavo::tests
