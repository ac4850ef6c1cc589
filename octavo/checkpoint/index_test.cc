#include "octavo/checkpoint/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/checkpoint/checkpoint_testing.h"

namespace octavo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

TEST(Index, FilesInOneSpelling) {
  const auto index = parse_index(
      R"({"metadata": {"total_size": 9}, "weight_map": {"b": "./x", "a": "sub//y", "c": "x"}})",
      "i");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_THAT(index->weight_map, ElementsAre(Pair("a", "sub/y"), Pair("b", "x"), Pair("c", "x")));
  EXPECT_EQ(index->total_size, 9u);
}

TEST(Index, SizesThatAreNone) {
  for (const char* metadata : {"{}", "null", "3", R"({"total_size": -1})", R"({"total_size": 1.5})",
                               R"({"total_size": "9"})"}) {
    const auto index = parse_index(
        R"({"metadata": )" + std::string(metadata) + R"(, "weight_map": {"a": "x"}})", "i");
    ASSERT_TRUE(index) << index.error().message;
    EXPECT_FALSE(index->total_size) << metadata;
  }
  EXPECT_TRUE(parse_index(R"({"weight_map": {"a": "x"}})", "i"));
}

TEST(Index, Defects) {
  struct Case {
    std::string text;
    DefectCode code;
    std::string tensor;
  };
  using enum DefectCode;
  for (const Case& c :
       {Case{"[", index_syntax, ""}, Case{"7", index_syntax, ""}, Case{"{}", index_syntax, ""},
        Case{R"({"weight_map": {"a": []}})", index_syntax, "a"},
        Case{R"({"weight_map": {"a": "x", "a": "y"}})", index_syntax, "a"},
        Case{R"({"weight_map": {"a": "/x"}})", index_path, "a"},
        Case{R"({"weight_map": {"a": "b/../../x"}})", index_path, "a"},
        Case{R"({"weight_map": {"a": ""}})", index_path, "a"}}) {
    Defects defects;
    EXPECT_FALSE(survey_index(c.text, "dir/index", defects)) << c.text;
    ASSERT_EQ(defects.size(), 1u) << c.text;
    EXPECT_EQ(defects[0].code, c.code) << c.text;
    EXPECT_EQ(defects[0].tensor, c.tensor) << c.text;
    EXPECT_EQ(defects[0].file, "dir/index");
    EXPECT_THAT(defects[0].message, StartsWith("dir/index: "));
    EXPECT_EQ(parse_index(c.text, "dir/index").error().message, defects[0].message);
  }
}

TEST(Index, WhatIsWrittenIsRead) {
  const WeightMap map = {{"q\"\n", "a b.safetensors"}, {"\xE2\x82\xAC", "\"x\""}};
  const auto index = parse_index(index_text(map, 12), "i");
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->weight_map, map);
  EXPECT_EQ(index->total_size, 12u);
  EXPECT_EQ(index_text({}, 0),
            "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n  \"weight_map\": {}\n}\n");
}

class IndexFile : public testing::DirectoryTest {};

TEST_F(IndexFile, ThatIsNone) {
  Defects defects;
  EXPECT_FALSE(survey_index_file(directory_ / "none", defects));
  EXPECT_FALSE(survey_index_file(directory_, defects));
  ASSERT_EQ(defects.size(), 2u);
  EXPECT_EQ(defects[0].code, DefectCode::unreadable);
  EXPECT_THAT(defects[0].message, HasSubstr((directory_ / "none").string()));
}

}  // namespace
}  // namespace octavo
