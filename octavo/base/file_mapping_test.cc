#include "octavo/base/file_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace octavo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FileMappingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("octavo_mapping_" + std::to_string(::getpid()) + ".bin");
  }
  void TearDown() override { std::filesystem::remove(path_); }
  File written(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return std::move(*File::open(path_));
  }
  std::filesystem::path path_;
};

std::string text_of(const FileMapping& mapping) {
  const auto bytes = mapping.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(FileMappingTest, HasTheBytesOfTheFileAndOutlivesIt) {
  const std::string text(10000, 'x');
  std::optional<FileMapping> mapping;
  {
    const File file = written(text + "end");
    auto mapped = FileMapping::map(file);
    ASSERT_TRUE(mapped) << mapped.error().message;
    mapping = std::move(*mapped);
  }
  std::filesystem::remove(path_);
  EXPECT_EQ(mapping->path(), path_);
  EXPECT_EQ(text_of(*mapping), text + "end");
  const FileMapping moved = std::move(*mapping);
  EXPECT_EQ(text_of(moved), text + "end");
  EXPECT_TRUE(mapping->bytes().empty());
}

TEST_F(FileMappingTest, AnEmptyFileHasNoBytes) {
  const auto mapping = FileMapping::map(written(""));
  ASSERT_TRUE(mapping) << mapping.error().message;
  EXPECT_TRUE(mapping->bytes().empty());
}

TEST_F(FileMappingTest, RefusesAFileThatShrankSinceItWasOpened) {
  const File file = written(std::string(5000, 'x'));
  std::filesystem::resize_file(path_, 4999);
  const auto mapping = FileMapping::map(file);
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code, ErrorCode::bad_file);
  EXPECT_THAT(mapping.error().message,
              AllOf(HasSubstr(path_.string()), HasSubstr("5000 bytes"), HasSubstr("4999 now")));
}

}  // namespace
}  // namespace octavo
