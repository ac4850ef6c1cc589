#include "octavo/checkpoint/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "octavo/checkpoint/checkpoint_testing.h"
#include "octavo/checkpoint/verify_internal.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using testing::floats;
using ::testing::HasSubstr;
using testing::safetensors_bytes;

class VerifyTest : public testing::DirectoryTest {};

TEST_F(VerifyTest, ReadsAndProgressOfItsOwnWork) {
  const std::string file = safetensors_bytes({{"a.weight", "F8_E4M3", {2, 4}, "12345678"},
                                              {"a.weight_scale", "F32", {}, floats({2})},
                                              {"b", "BF16", {3}, "123456"}});
  write("model.safetensors", file);
  const std::uint64_t header = file.size() - 8 - 18;
  VerifyOptions options;
  const std::uint64_t start = std::min<std::uint64_t>(512, file.size());
  for (int again = 0; again < 2; ++again) {
    const auto report = verify_checkpoint(directory_, options);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->defects.empty());
    EXPECT_EQ(report->read.calls, 3u) << "the beginning, the header, the scale";
    EXPECT_EQ(report->read.bytes, start + header + 4);
    EXPECT_EQ(report->least_scale, 2);
    EXPECT_EQ(report->largest_scale, 2);
    EXPECT_TRUE(report->health.empty());
  }
  options.full = true;
  options.threads = 3;
  std::mutex mutex;
  std::vector<std::uint64_t> seen;
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(total, 14u) << "scales are not read a second time";
    seen.push_back(done);
  };
  const auto report = verify_checkpoint(directory_, options);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->read.bytes, start + header + 4 + 14);
  ASSERT_EQ(report->health.size(), 1u);
  EXPECT_EQ(report->health[0].name, "a.weight");
  EXPECT_EQ(*std::ranges::max_element(seen), 14u);
}

TEST_F(VerifyTest, ScalesBeyondTheEndOfTheFile) {
  const std::string file = safetensors_bytes({{"a.weight", "F8_E4M3", {2, 4}, "12345678"},
                                              {"a.weight_scale", "F32", {2}, floats({1, -1})}});
  write("model.safetensors", file.substr(0, file.size() - 3));
  const auto report = verify_checkpoint(directory_, {});
  ASSERT_TRUE(report);
  ASSERT_EQ(report->defects.size(), 1u) << "what is left of the second scale is no scale";
  EXPECT_EQ(report->defects[0].code, DefectCode::truncated);
  EXPECT_EQ(report->largest_scale, 1);
}

TEST_F(VerifyTest, ScalesUnderTwoNamesOfWhichOneIsCut) {
  const std::string file = safetensors_bytes({{"a.weight", "F8_E4M3", {2, 4}, "12345678"},
                                              {"a.weight_scale", "F32", {1}, floats({1})},
                                              {"a.weight_scale_inv", "F32", {1}, floats({1})}});
  write("model.safetensors", file.substr(0, file.size() - 1));
  const auto report = verify_checkpoint(directory_, {});
  ASSERT_TRUE(report);
  ASSERT_EQ(report->defects.size(), 1u);
  EXPECT_EQ(report->defects[0].file, (directory_ / "model.safetensors").string());
}

TEST_F(VerifyTest, NothingToLookAt) {
  EXPECT_EQ(verify_checkpoint(directory_ / "none", {}).error().code, ErrorCode::io);
  const auto report = verify_checkpoint(directory_, {});
  ASSERT_TRUE(report) << "an empty directory is a defect of it";
  EXPECT_EQ(report->defects.at(0).code, DefectCode::no_weights);
}

}  // namespace
}  // namespace octavo
