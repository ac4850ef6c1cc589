#include "octavo/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

namespace octavo {
namespace {

using testing::HasSubstr;
using Path = std::vector<std::string>;

TEST(ParseJson, ErrorsNameTheFileAndStayOnOneLine) {
  for (const std::string text :
       {"", "{", "{\"a\":}", "{\"a\":1}\n\n}", "nul", "{\"a\":\"\xFF\"}"}) {
    const Result<Json> json = parse_json(text, "dir/config.json");
    ASSERT_FALSE(json) << text;
    EXPECT_EQ(json.error().code, ErrorCode::bad_file);
    EXPECT_TRUE(json.error().message.starts_with("dir/config.json: ")) << json.error().message;
    EXPECT_EQ(json.error().message.find('\n'), std::string::npos) << json.error().message;
  }
}

TEST(ParseJson, AnObjectWhereOneIsExpected) {
  EXPECT_TRUE(parse_json_object("{}", "f"));
  EXPECT_TRUE(parse_json_object("\xEF\xBB\xBF{\"a\": 1}", "f")) << "a byte order mark is skipped";
  for (const char* text : {"[]", "1", "\"x\"", "null"}) {
    const Result<Json> json = parse_json_object(text, "f");
    ASSERT_FALSE(json) << text;
    EXPECT_EQ(json.error().code, ErrorCode::bad_file);
  }
  const Result<Json> list = parse_json_object("[1]", "f");
  EXPECT_THAT(list.error().message, HasSubstr("array"));
}

// What the edits make of a text, to the byte.
struct Edit {
  const char* text;
  Path path;
  const char* key;
  const char* value;  // null: remove
  const char* expected;
};

const Edit kEdits[] = {
    // replace
    {R"({"a":1,"b":2})", {}, "a", "[3]", R"({"a":[3],"b":2})"},
    {R"({"a" :  1 , "b": 2})", {}, "a", "\"x\"", R"({"a" :  "x" , "b": 2})"},
    {R"({"a":"}, \"a\": {","b":[{"a":1}]})", {}, "a", "0", R"({"a":0,"b":[{"a":1}]})"},
    {R"({"b":[{"a":1},"]"],"a":true})", {}, "a", "false", R"({"b":[{"a":1},"]"],"a":false})"},
    {R"({"a":-1.5e+05})", {}, "a", "1e-05", R"({"a":1e-05})"},
    // the last of duplicates is what readers see
    {R"({"a":1,"a":2})", {}, "a", "3", R"({"a":1,"a":3})"},
    // add, in the manner of the first member
    {R"({"a":1})", {}, "b", "2", R"({"a":1,"b": 2})"},
    {"{\n  \"a\": 1\n}\n", {}, "b", "2", "{\n  \"a\": 1,\n  \"b\": 2\n}\n"},
    {"{\r\n\t\"a\": {\r\n\t\t\"x\": 1\r\n\t}\r\n}",
     {"a"},
     "b",
     "2",
     "{\r\n\t\"a\": {\r\n\t\t\"x\": 1,\r\n\t\t\"b\": 2\r\n\t}\r\n}"},
    {R"({"a":1})", {}, "q\"\\\n", "2", R"({"a":1,"q\"\\\n": 2})"},
    // nested
    {R"({"t":{"a":1,"n":{"a":2}},"a":3})",
     {"t", "n"},
     "a",
     "9",
     R"({"t":{"a":1,"n":{"a":9}},"a":3})"},
    {R"({"t":{"a":1},"a":3})", {"t"}, "a", nullptr, R"({"t":{},"a":3})"},
    // a path that does not lead to an object
    {R"({"t":[{"a":1}],"a":3})", {"t"}, "a", "9", R"({"t":[{"a":1}],"a":3})"},
    {R"({"t":null})", {"t"}, "a", "9", R"({"t":null})"},
    {R"({"t":{}})", {"u"}, "a", nullptr, R"({"t":{}})"},
    {R"([1])", {}, "a", "9", R"([1])"},
    // keys that are spelled with escapes
    {R"({"\u0061":1,"b\/c":2})", {}, "a", "9", R"({"\u0061":9,"b\/c":2})"},
    {R"({"\u0061":1,"b\/c":2})", {}, "b/c", nullptr, R"({"\u0061":1})"},
    {R"({"a\"":1,"a\\":2})", {}, "a\\", "9", R"({"a\"":1,"a\\":9})"},
    {R"({"\ud83d\ude00":1})", {}, "\xF0\x9F\x98\x80", "9", R"({"\ud83d\ude00":9})"},
    // remove: first, middle, last, only, all of duplicates, none
    {R"({"a":1,"b":2,"c":3})", {}, "a", nullptr, R"({"b":2,"c":3})"},
    {R"({"a":1,"b":2,"c":3})", {}, "b", nullptr, R"({"a":1,"c":3})"},
    {R"({"a":1,"b":2,"c":3})", {}, "c", nullptr, R"({"a":1,"b":2})"},
    {R"({"a":1})", {}, "a", nullptr, R"({})"},
    {R"({"a":1,"b":2,"a":3})", {}, "a", nullptr, R"({"b":2})"},
    {R"({"a":1,"a":3})", {}, "a", nullptr, R"({})"},
    {R"({"a":1, "a":2, "b":3, "a":4, "c":5, "a":6, "a":7})", {}, "a", nullptr, R"({"b":3, "c":5})"},
    {R"({ "a":1 , "a":3 })", {}, "a", nullptr, R"({  })"},
    {R"({"a":1, "b" : 2 })", {}, "c", nullptr, R"({"a":1, "b" : 2 })"},
    {"{\n  \"a\": 1,\n  \"b\": {\"a\": 2},\n  \"c\": 3\n}\n",
     {},
     "b",
     nullptr,
     "{\n  \"a\": 1,\n  \"c\": 3\n}\n"},
    {"{\n  \"a\": 1,\n  \"c\": 3\n}\n", {}, "c", nullptr, "{\n  \"a\": 1\n}\n"},
    // the spelling of everything else
    {R"({"x":1e-05,"y":10000000000000000000000,"z":1.0,"a":1,"e":"\u00e9\/","s":1E5})",
     {},
     "a",
     nullptr,
     R"({"x":1e-05,"y":10000000000000000000000,"z":1.0,"e":"\u00e9\/","s":1E5})"},
    {"\xEF\xBB\xBF {\"a\":1,\"b\":2}", {}, "a", "9", "\xEF\xBB\xBF {\"a\":9,\"b\":2}"},
    {"\xEF\xBB\xBF{\"a\":1,\"b\":2}", {}, "b", nullptr, "\xEF\xBB\xBF{\"a\":1}"},
};

TEST(JsonEdits, ToTheByte) {
  for (const Edit& edit : kEdits) {
    const std::string got = edit.value != nullptr
                                ? set_json_member(edit.text, edit.path, edit.key, edit.value)
                                : remove_json_member(edit.text, edit.path, edit.key);
    EXPECT_EQ(got, edit.expected) << edit.text;
  }
}

TEST(JsonEdits, AKeyRepeatedManyTimes) {
  // A scan for each of them would read 4e12 bytes.
  std::string text = "{\"b\":0";
  for (int i = 0; i < 1'000'000; ++i) text += ",\"a\":1";
  EXPECT_EQ(remove_json_member(text + "}", {}, "a"), "{\"b\":0}");
  EXPECT_EQ(remove_json_member(text + ",\"c\":2}", {}, "a"), "{\"b\":0,\"c\":2}");
}

TEST(JsonEdits, AMemberOfAnEmptyObject) {
  for (const char* text : {"{}", "{ }", "{\n}\n", "\xEF\xBB\xBF{}"}) {
    const std::string got = set_json_member(text, {}, "a", "1");
    EXPECT_EQ(Json::parse(got), Json({{"a", 1}})) << got;
    EXPECT_EQ(got.starts_with("\xEF\xBB\xBF"), std::string_view(text).starts_with("\xEF\xBB\xBF"));
    EXPECT_EQ(got.ends_with("\n"), std::string_view(text).ends_with("\n"));
  }
  EXPECT_EQ(Json::parse(set_json_member(R"({"t":{},"u":{}})", {"t"}, "a", "1")),
            Json::parse(R"({"t":{"a":1},"u":{}})"));
}

// Random JSON texts, with white space where it may stand and with the characters that scanners
// stumble over.
class Writer {
 public:
  std::string document() { return space() + object(3, 1) + space(); }

 private:
  static std::string space() {
    return *rc::gen::element<std::string>("", "", "", " ", "\n  ", "\t", "\r\n");
  }
  static std::string string() {
    std::string text = "\"";
    const int length = *rc::gen::inRange(0, 4);
    for (int i = 0; i < length; ++i) {
      text += *rc::gen::element<std::string>("a", "b", "{", "}", "[", "]", ",", ":", " ", "\\\"",
                                             "\\\\", "\\u0061", "\\n", "\xC3\xA9", "/", "\\/");
    }
    return text + "\"";
  }
  std::string value(int depth) {
    switch (*rc::gen::inRange(0, depth > 0 ? 5 : 3)) {
      case 0:
        return string();
      case 1:
        return *rc::gen::element<std::string>("0", "-1", "1e-05", "10000000000000000000000", "1.50",
                                              "2E+3");
      case 2:
        return *rc::gen::element<std::string>("true", "false", "null");
      case 3:
        return list(depth - 1);
      default:
        return object(depth - 1);
    }
  }
  std::string list(int depth) {
    std::string text = "[" + space();
    const int count = *rc::gen::inRange(0, 4);
    for (int i = 0; i < count; ++i) text += (i > 0 ? "," + space() : "") + value(depth) + space();
    return text + "]";
  }
  std::string object(int depth, int least = 0) {
    std::string text = "{" + space();
    const int count = *rc::gen::inRange(least, 4);
    for (int i = 0; i < count; ++i) {
      text += (i > 0 ? "," + space() : "") + string() + space() + ":" + space() + value(depth) +
              space();
    }
    return text + "}";
  }
};

// Paths to all objects below `json`, itself first.
void collect(const Json& json, const Path& path, std::vector<Path>& paths) {
  if (!json.is_object()) return;
  paths.push_back(path);
  for (const auto& [key, value] : json.items()) {
    Path below = path;
    below.push_back(key);
    collect(value, below, paths);
  }
}

Json& at(Json& json, const Path& path) {
  Json* found = &json;
  for (const std::string& step : path) found = &(*found)[step];
  return *found;
}

TEST(JsonEdits, MeanWhatAnEditOfTheParsedDocumentMeans) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = Writer().document();
    Json json = Json::parse(text);
    std::vector<Path> paths;
    collect(json, {}, paths);
    const Path path = *rc::gen::elementOf(paths);
    std::vector<std::string> keys = {"new", "a", "a\"}"};
    for (const auto& [key, value] : at(json, path).items()) keys.push_back(key);
    const std::string key = *rc::gen::elementOf(keys);

    Json expected = json;
    at(expected, path)[key] = Json::parse("[1, {\"x\": \"}\"}]");
    RC_ASSERT(Json::parse(set_json_member(text, path, key, "[1, {\"x\": \"}\"}]")) == expected);
    expected = json;
    at(expected, path).erase(key);
    RC_ASSERT(Json::parse(remove_json_member(text, path, key)) == expected);
  }));
}

TEST(JsonEdits, RemovingWhatWasAddedRestoresTheText) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = Writer().document();
    Json json = Json::parse(text);
    std::vector<Path> paths;
    collect(json, {}, paths);
    std::erase_if(paths, [&](const Path& path) {
      return at(json, path).empty();
    });  // they get lines of their own
    const Path path = *rc::gen::elementOf(paths);
    const std::string key = *rc::gen::element<std::string>("new", "new \"}{,", "n\n");
    RC_ASSERT(remove_json_member(set_json_member(text, path, key, "{\"x\":[1]}"), path, key) ==
              text);
  }));
}

TEST(JsonEdits, SettingAMemberToItsOwnTextChangesNothing) {
  const std::string text = R"({"a": 1e-05, "b": {"c" : "d"}, "e":[ ]})";
  EXPECT_EQ(set_json_member(text, {}, "a", "1e-05"), text);
  EXPECT_EQ(set_json_member(text, {}, "b", R"({"c" : "d"})"), text);
  EXPECT_EQ(set_json_member(text, {"b"}, "c", "\"d\""), text);
  EXPECT_EQ(set_json_member(text, {}, "e", "[ ]"), text);
}

TEST(ParseJson, NumbersOfPythonAloneAreTexts) {
  const Result<Json> got = parse_json(R"({"a": NaN, "b": [Infinity, -Infinity], "c": "NaN"})", "f");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->dump(), R"({"a":"N","b":["Infini","-Infini"],"c":"NaN"})");
}

TEST(ParseJson, NestingIsBounded) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse_json(nested(500), "f"));
  for (const std::size_t depth : {501u, 1'000'000u}) {
    const Result<Json> got = parse_json(nested(depth), "f");
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().message, "f: nested deeper than 500 levels at offset 500");
  }
  EXPECT_TRUE(parse_json("{\"" + std::string(1000, '[') + "\": 1}", "f")) << "in a string";
}

}  // namespace
}  // namespace octavo
