#include "octavo/checkpoint/rebuild_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/checkpoint/checkpoint_testing.h"
#include "octavo/checkpoint/shard_name.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::safetensors_bytes;

using Names = std::vector<std::string>;

TEST(ShardNames, NumbersAndStems) {
  struct Case {
    std::string name;
    std::string stem;
    std::uint64_t number;
    std::uint64_t count;
  };
  for (const Case& c : {Case{"model-00002-of-00004.safetensors", "model", 2, 4},
                        Case{"model-00163-of-000163.safetensors", "model", 163, 163},
                        Case{"a-b-1-of-1.safetensors", "a-b", 1, 1},
                        Case{"x-of-3-1-of-3.safetensors", "x-of-3", 1, 3}}) {
    const auto shard = parse_shard_name(c.name);
    ASSERT_TRUE(shard) << c.name;
    EXPECT_EQ(shard->stem, c.stem);
    EXPECT_EQ(shard->number, c.number);
    EXPECT_EQ(shard->count, c.count);
  }
  for (const char* name :
       {"model.safetensors", "model-00000-of-00002.safetensors", "model-00003-of-00002.safetensors",
        "model-1-of-.safetensors", "model--of-2.safetensors", "model-1-of-2.bin",
        "1-of-2.safetensors", "model-+1-of-2.safetensors",
        "model-1-of-99999999999999999999.safetensors", "", "-of-"})
    EXPECT_FALSE(parse_shard_name(name)) << name;
}

TEST(CompleteSet, InOrderOfNumbers) {
  const Names names = {"m-10-of-2.safetensors", "b-2-of-2.safetensors", "notes.txt",
                       "b-1-of-2.safetensors", "c-1-of-3.safetensors"};
  const auto set = complete_set(names);
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_THAT(*set, ElementsAre("b-1-of-2.safetensors", "b-2-of-2.safetensors"));
}

TEST(CompleteSet, ModelGoesFirst) {
  const Names names = {"a-1-of-1.safetensors", "model-1-of-1.safetensors"};
  EXPECT_THAT(complete_set(names).value(), ElementsAre("model-1-of-1.safetensors"));
  const Names single = {"model.safetensors", "consolidated-1-of-1.safetensors"};
  EXPECT_THAT(complete_set(single).value(), ElementsAre("model.safetensors"));
}

TEST(CompleteSet, NoneOrNotClearWhich) {
  struct Case {
    Names names;
    std::string words;
  };
  for (const Case& c : {
           Case{{}, "there are none; fetch what is missing"},
           Case{{"a.safetensors"}, "there are none"},
           Case{{"a-1-of-2.safetensors"}, "1 of 2 shards a-*; fetch what is missing"},
           Case{{"a-1-of-1.safetensors", "b-1-of-1.safetensors"}, "move away"},
           Case{{"model-1-of-1.safetensors", "model.safetensors"}, "move away"},
           Case{{"model-1-of-2.safetensors", "model-2-of-2.safetensors",
                 "model-00001-of-00002.safetensors"},
                "3 of 2 shards model-*; move away"},
       }) {
    const auto set = complete_set(c.names);
    ASSERT_FALSE(set) << c.words;
    EXPECT_EQ(set.error().code, ErrorCode::bad_model);
    EXPECT_THAT(set.error().message, HasSubstr(c.words));
  }
}

class RebuildIndexTest : public testing::DirectoryTest {
 protected:
  void write_shards() const {
    write("m-1-of-2.safetensors",
          safetensors_bytes({{"b", "U8", {2}, "bb"}, {"a", "F32", {1}, "aaaa"}}));
    write("m-2-of-2.safetensors", safetensors_bytes({{"c \"\xC3\xA9", "U8", {3}, "ccc"}}));
  }
  Names files() const {
    Names names;
    for (const auto& entry : fs::directory_iterator(directory_))
      names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
};

TEST_F(RebuildIndexTest, TheTextOfAnIndex) {
  write_shards();
  write(std::string(kIndexName), "stale");
  const auto index = rebuild_index(directory_);
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->path, directory_ / kIndexName);
  EXPECT_EQ(index->files, 2u);
  EXPECT_EQ(index->tensors, 3u);
  EXPECT_EQ(index->total_size, 9u);
  EXPECT_EQ(read_text(index->path).value(),
            "{\n  \"metadata\": {\n    \"total_size\": 9\n  },\n  \"weight_map\": {\n"
            "    \"a\": \"m-1-of-2.safetensors\",\n    \"b\": \"m-1-of-2.safetensors\",\n"
            "    \"c \\\"\xC3\xA9\": \"m-2-of-2.safetensors\"\n  }\n}\n");
  EXPECT_THAT(files(), ElementsAre("m-1-of-2.safetensors", "m-2-of-2.safetensors", kIndexName));
  EXPECT_TRUE(open_checkpoint(directory_));
}

TEST_F(RebuildIndexTest, NothingIsWrittenWhereSomethingIsWrong) {
  const auto refused = [&](ErrorCode code, const std::string& words) {
    write(std::string(kIndexName), "old");
    const Names before = files();
    const auto index = rebuild_index(directory_);
    ASSERT_FALSE(index) << words;
    EXPECT_EQ(index.error().code, code);
    EXPECT_THAT(index.error().message, HasSubstr(words));
    EXPECT_EQ(files(), before);
    EXPECT_EQ(read_text(directory_ / kIndexName).value(), "old");
  };
  refused(ErrorCode::bad_model, "no index was written");
  write_shards();
  write("m-2-of-2.safetensors", safetensors_bytes({{"a", "U8", {3}, "ccc"}}));
  refused(ErrorCode::bad_model, "a is in m-1-of-2.safetensors and in m-2-of-2.safetensors");
  write("m-2-of-2.safetensors", "\1");
  refused(ErrorCode::bad_file, "HeaderTooSmall");
  fs::remove(directory_ / "m-2-of-2.safetensors");
  fs::create_directory(directory_ / "m-2-of-2.safetensors");
  refused(ErrorCode::bad_file, "not a regular file");
}

TEST_F(RebuildIndexTest, NoDirectory) {
  EXPECT_EQ(rebuild_index(directory_ / "none").error().code, ErrorCode::io);
}

}  // namespace
}  // namespace octavo
