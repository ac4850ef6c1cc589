// QNT-10: 8 GiB in 16 shards under a memory limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

constexpr int kShards = 16;
constexpr int kExpertsPerShard = 4;
constexpr std::uint64_t kRows = 4096;
constexpr std::uint64_t kCols = 16384;  // a matrix of BF16: 128 MiB, a shard 512 MiB

std::string shard_name(int shard) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard + 1, kShards);
  return name;
}

std::string expert_name(int shard, int expert) {
  return "model.layers.0.mlp.experts." + std::to_string(shard * kExpertsPerShard + expert) +
         ".up_proj.weight";
}

TEST(Qnt10Slow, EightGibibytesUnderOneGibibyteOfMemory) {
  if (built_with_sanitizers()) GTEST_SKIP() << "the sanitizers' own memory is above the limit";
  const TempDir dir;
  const fs::space_info space = fs::space(dir / "");
  constexpr std::uint64_t kNeeded = std::uint64_t{5} << 30;
  if (space.available < kNeeded)
    GTEST_SKIP() << "5 GiB of free disk are needed, " << (space.available >> 30) << " are there";

  // Zeros that take no disk, and eight values at the start of each matrix.
  const std::vector<float> start = {3.5f, -1.25f, 0.5f, 448.0f, 0.0f, -0.001f, 7.0f, 100.0f};
  const Tensor start_tensor = make_tensor("BF16", {1, 8}, start);
  nlohmann::json map;
  for (int shard = 0; shard < kShards; ++shard) {
    std::vector<SparseTensor> tensors;
    for (int expert = 0; expert < kExpertsPerShard; ++expert) {
      tensors.push_back({expert_name(shard, expert), "BF16", {kRows, kCols}, start_tensor.bytes});
      map[tensors.back().name] = shard_name(shard);
    }
    write_sparse_file(dir / "in" / shard_name(shard), tensors);
  }
  write_string(
      dir / "in" / "model.safetensors.index.json",
      nlohmann::json{{"metadata", {{"total_size", std::uint64_t{8} << 30}}}, {"weight_map", map}}
          .dump());
  write_string(dir / "in" / "config.json", kPlainConfig);

  // -d limits what is private and writable: heap, anonymous maps, stacks.
  const Outcome run = run_octavo(
      {"quantize", (dir / "in").string(), (dir / "out").string(), "--json", "--threads", "4"},
      "ulimit -d 1048576; ");
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json report = run.json();
  EXPECT_EQ(report.at("quantized"), kShards * kExpertsPerShard);
  EXPECT_EQ(report.at("bytes_in"), std::uint64_t{8} << 30);
  EXPECT_LT(report.at("peak_bytes"), std::uint64_t{1} << 30);
  std::printf("8 GiB: %.1f s, peak %.0f MB\n", report.at("seconds").get<double>(),
              report.at("peak_bytes").get<double>() / 1e6);

  // A block of the source: the start, and zeros.
  std::vector<float> block(128 * 128, 0.0f);
  std::ranges::copy(values_of(start_tensor), block.begin());
  const Quantized expected = quantize(block, {128, 128}, {});
  const Extent grid = grid_of({kRows, kCols}, 128, 128);
  for (const int shard : {0, kShards - 1}) {
    std::ifstream file(dir / "out" / shard_name(shard), std::ios::binary);
    std::string head(8, '\0');
    file.read(head.data(), 8);
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i)
      length = length << 8 | static_cast<unsigned char>(head[static_cast<std::size_t>(i)]);
    std::string text(length, '\0');
    file.read(text.data(), static_cast<std::streamsize>(length));
    const auto header = nlohmann::json::parse(text);
    const std::string name = expert_name(shard, kExpertsPerShard - 1);
    EXPECT_EQ(header.at(name).at("dtype"), "F8_E4M3");
    EXPECT_EQ(header.at(name + "_scale_inv").at("shape"), (Dims{grid.rows, grid.cols}));
    Bytes codes(start.size());
    file.seekg(static_cast<std::streamoff>(
        8 + length + header.at(name).at("data_offsets").at(0).get<std::uint64_t>()));
    file.read(reinterpret_cast<char*>(codes.data()), static_cast<std::streamsize>(codes.size()));
    EXPECT_TRUE(std::equal(codes.begin(), codes.end(), expected.codes.begin()));
    Tensor scales{"F32", {grid.rows, grid.cols}, Bytes(4 * grid.count())};
    file.seekg(static_cast<std::streamoff>(
        8 + length + header.at(name + "_scale_inv").at("data_offsets").at(0).get<std::uint64_t>()));
    file.read(reinterpret_cast<char*>(scales.bytes.data()),
              static_cast<std::streamsize>(scales.bytes.size()));
    ASSERT_TRUE(file.good());
    std::vector<float> expected_scales(grid.count(), 1.0f);
    expected_scales[0] = expected.scales[0];
    EXPECT_EQ(values_of(scales), expected_scales);
  }
}

}  // namespace
}  // namespace octavo::tests
