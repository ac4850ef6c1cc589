#include "octavo/base/json_reader.h"

#include <gtest/gtest.h>

namespace octavo {
namespace {

TEST(JsonReader, ReadsWhatIsThere) {
  const Json json = Json::parse(R"({"n": 7, "list": [1, 2], "x": 0.5, "whole": 2, "flag": true,
                                    "text": "a", "texts": ["a", "b"], "null": null})");
  JsonReader reader(json, "file");
  EXPECT_EQ(reader.count("n", 0, 7), 7u);
  EXPECT_EQ(reader.count("missing", 3, 0, 7), 3u);
  EXPECT_EQ(reader.counts("n", 0, 7), std::vector<std::size_t>{7});
  EXPECT_EQ(reader.counts("list", 1, 2), (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(reader.number_above("x", 0), 0.5);
  EXPECT_EQ(reader.number_from("whole", 2), 2.0);
  EXPECT_EQ(reader.flag("flag"), true);
  EXPECT_EQ(reader.text("text"), "a");
  EXPECT_EQ(reader.texts("texts"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(reader.contains("null"));
  EXPECT_FALSE(reader.has("null"));
  EXPECT_EQ(reader.count("null", 1, 2), std::nullopt);
  EXPECT_TRUE(reader.status());
  // A program's own number is signed.
  const Json own = {{"n", 5}, {"negative", -5}};
  JsonReader own_reader(own, "file");
  EXPECT_EQ(own_reader.count("n", 0, 9), 5u);
  EXPECT_TRUE(own_reader.status());
  EXPECT_EQ(own_reader.count("negative", 0, 9), std::nullopt);
  EXPECT_FALSE(own_reader.status());
}

TEST(JsonReader, TheFirstProblemIsKept) {
  const Json json = Json::parse(R"({"a": "x", "b": -1})");
  JsonReader reader(json, "dir/config.json");
  EXPECT_EQ(reader.count("a", 1, 9), std::nullopt);
  EXPECT_EQ(reader.number_above("b", 0), std::nullopt);
  ASSERT_FALSE(reader.status());
  EXPECT_EQ(reader.status().error().message,
            "dir/config.json: a is \"x\", but a whole number from 1 to 9 is expected");
}

TEST(JsonReader, RefusesOtherTypes) {
  const auto refused = [](const char* value, auto read) {
    const Json json = {{"k", Json::parse(value)}};
    JsonReader reader(json, "file");
    read(reader);
    return !reader.status();
  };
  const auto count = [](JsonReader& r) { r.count("k", 1, 9); };
  for (const char* value : {"0", "10", "1.0", "true", "\"1\"", "[1]", "{}", "18446744073709551615"})
    EXPECT_TRUE(refused(value, count)) << value;
  const auto counts = [](JsonReader& r) { r.counts("k", 1, 9); };
  for (const char* value : {"0", "[1, 10]", "[[1]]", "\"1\""})
    EXPECT_TRUE(refused(value, counts)) << value;
  const auto above = [](JsonReader& r) { r.number_above("k", 0); };
  for (const char* value : {"0", "-1", "\"1\"", "true", "[]"})
    EXPECT_TRUE(refused(value, above)) << value;
  const auto from = [](JsonReader& r) { r.number_from("k", 0); };
  EXPECT_TRUE(refused("-0.5", from));
  EXPECT_FALSE(refused("0", from));
  EXPECT_TRUE(refused("1", [](JsonReader& r) { r.flag("k"); }));
  EXPECT_TRUE(refused("1", [](JsonReader& r) { r.text("k"); }));
  EXPECT_TRUE(refused("[1]", [](JsonReader& r) { r.texts("k"); }));
  EXPECT_TRUE(refused("\"a\"", [](JsonReader& r) { r.texts("k"); }));
}

// A value that is long, or no UTF-8, is still one short line.
TEST(JsonReader, LongValuesAreCut) {
  const Json json = {{"k", std::string(1000, 'x') + "\n"}};
  JsonReader reader(json, "file");
  reader.count("k", 1, 9);
  EXPECT_LT(reader.status().error().message.size(), 150u);
  const Json bytes = {{"k", "\xFF\n"}};
  JsonReader byte_reader(bytes, "file");
  byte_reader.count("k", 1, 9);
  EXPECT_EQ(byte_reader.status().error().message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace octavo
