// The largest model that people have: everything that reads headers only must do so in little
// memory.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/giant.h"

namespace octavo::tests {
namespace {

// From coreutils, so that the sums are those that anybody gets of the published files.
std::string sha256_of(const std::filesystem::path& path) {
  const std::string line = "sha256sum " + path.string();
  std::FILE* pipe = ::popen(line.c_str(), "r");
  std::string sum(64, '\0');
  const std::size_t read = pipe == nullptr ? 0 : std::fread(sum.data(), 1, sum.size(), pipe);
  if (pipe != nullptr) ::pclose(pipe);
  return read == sum.size() ? sum : "sha256sum failed";
}

// Published: huggingface.co/deepseek-ai/DeepSeek-V3, revision
// e815299b0bcbac849fa540c768ef21845365c9eb.
TEST(Giant, IsThePublishedModel) {
  const TempDir dir;
  const std::vector<GiantFile> files = deepseek_v3_files();
  write_string(dir / "index", giant_index(files));
  EXPECT_EQ(sha256_of(dir / "index"),
            "a2c5d238ab1e8301a117336e9797e0d3551cb8f6dc9dc787318b23d8f54c9248");
  write_string(dir / "config", kDeepseekV3Config);
  EXPECT_EQ(sha256_of(dir / "config"),
            "cbf0b95dc614de208a109bb5fd4e7eed11385e9c68411d2c17db5319443035d9");
  // Of the first file, and of all 163 one after the other. The headers' lengths are no multiples of
  // 8, so that no tensor is aligned to anything.
  std::string headers;
  std::uint64_t data = 0;
  for (const GiantFile& file : files) {
    headers += giant_header(file);
    data += giant_data_bytes(file);
  }
  write_string(dir / "header", giant_header(files.at(0)));
  EXPECT_EQ(sha256_of(dir / "header"),
            "40284bbc8522e428206bd91f2052fc6531fe18c6e00aebfbee994233aacb587f");
  write_string(dir / "headers", headers);
  EXPECT_EQ(sha256_of(dir / "headers"),
            "dfe1c48786738c41022fd7ede15e8153e39f7d2464a55c479f1d0c3cecdd719d");
  EXPECT_EQ(headers.size(), 11'888'393);
  EXPECT_EQ(headers.size() + data, 688'586'727'753);
}

class GiantCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    if (built_with_sanitizers()) GTEST_SKIP() << "the sanitizers take memory of their own";
    if (!has_sparse_files(dir_ / "")) GTEST_SKIP() << "no sparse files in the temporary directory";
    write_deepseek_v3(model_);
  }

  Outcome run_in_little_memory(const std::vector<std::string>& arguments) const {
    const auto [run, peak] = run_octavo_measured(arguments);
    std::printf("%s %s: %.0f MB\n", arguments[0].c_str(), arguments[1].c_str(),
                static_cast<double>(peak) / 1e6);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_LT(peak, 500'000'000);
    return run;
  }

  const TempDir dir_;
  const std::filesystem::path model_ = dir_ / "DeepSeek-V3";
};

TEST_F(GiantCommands, TakeLittleMemory) {
  const std::string model = model_.string();
  run_in_little_memory({"inspect", model});
  run_in_little_memory({"dequantize", "--plan", model});
  run_in_little_memory({"quantize", "--plan", "--requantize", model});

  // Headers, index and scales: 187 MB of the 689 GB.
  const nlohmann::json verified = run_in_little_memory({"verify", "--json", model}).json();
  EXPECT_EQ(verified.at("ok"), true);
  EXPECT_EQ(verified.at("unpaired"), 0);
  EXPECT_LT(verified.at("bytes_read"), 188'000'000);

  const nlohmann::json inspected = run_in_little_memory({"inspect", "--json", model}).json();
  const nlohmann::json& summary = inspected.at("summary");
  EXPECT_EQ(summary.at("tensors"), 91'991);
  EXPECT_EQ(summary.at("files"), 163);
  EXPECT_EQ(summary.at("bytes"), 688'574'839'360);
  EXPECT_EQ(summary.at("fp8_weights"), 45'808);
  EXPECT_EQ(summary.at("scales"), 45'808);
  EXPECT_EQ(summary.at("unpaired"), 0);
}

}  // namespace
}  // namespace octavo::tests
