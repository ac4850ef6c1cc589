#include "octavo/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "octavo/checkpoint/checkpoint_testing.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using testing::is_one_line;
using testing::safetensors_bytes;

class SafetensorsTest : public testing::DirectoryTest {
 protected:
  Result<SafetensorsHeader> read(const std::string& bytes) const {
    const Result<File> file = File::open(write("model.safetensors", bytes));
    if (!file) return std::unexpected(file.error());
    return read_safetensors_header(*file);
  }
  void expect_refused(const std::string& bytes, const std::string& kind, const std::string& what,
                      ErrorCode code = ErrorCode::bad_file) const {
    SCOPED_TRACE(what);
    const Result<SafetensorsHeader> header = read(bytes);
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error().code, code);
    EXPECT_THAT(header.error().message, HasSubstr((directory_ / "model.safetensors").string()));
    EXPECT_THAT(header.error().message, HasSubstr(kind));
    EXPECT_TRUE(is_one_line(header.error().message)) << header.error().message;
  }
};

std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

TEST_F(SafetensorsTest, ReadsWhatOthersWrite) {
  const std::string header = R"({"__metadata__":{"format":"pt","k":"v"},)" +
                             tensor("b", "BF16", "[2,3]", "[4,16]") + "," +
                             tensor("a", "F32", "[]", "[0,4]") + "   }  ";
  const Result<SafetensorsHeader> got = read(safetensors_bytes(header, std::string(16, 'x')));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"k", "v"}}));
  EXPECT_EQ(got->data_offset, 8 + header.size());
  ASSERT_EQ(got->tensors.size(), 2u);
  EXPECT_EQ(got->tensors[0].name, "a") << "in the order of the bytes, not of the header";
  EXPECT_EQ(got->tensors[0].shape, Shape{});
  EXPECT_EQ(got->tensors[0].offset, 8 + header.size());
  EXPECT_EQ(got->tensors[1].dtype, DType::bf16);
  EXPECT_EQ(got->tensors[1].shape, (Shape{2, 3}));
  EXPECT_EQ(got->tensors[1].offset, 8 + header.size() + 4);
  EXPECT_EQ(got->tensors[1].bytes, 12u);
}

TEST_F(SafetensorsTest, FilesWithoutTensorsOrWithEmptyOnes) {
  const Result<SafetensorsHeader> none = read(safetensors_bytes("{}", ""));
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_TRUE(none->tensors.empty());

  const std::string header = "{" + tensor("e", "F32", "[0,18446744073709551615]", "[4,4]") + "," +
                             tensor("f", "F32", "[1]", "[0,4]") + "," +
                             tensor("g", "I64", "[3,0]", "[0,0]") + "}";
  const Result<SafetensorsHeader> empty = read(safetensors_bytes(header, "1234"));
  ASSERT_TRUE(empty) << empty.error().message;
  EXPECT_EQ(empty->tensors.size(), 3u);
}

TEST_F(SafetensorsTest, FourBitElements) {
  const auto with = [](const std::string& shape) {
    return "{" + tensor("a", "F4", shape, "[0,6]") + "}";
  };
  const Result<SafetensorsHeader> got = read(safetensors_bytes(with("[3,4]"), "123456"));
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->tensors[0].shape, (Shape{3, 4}));
  expect_refused(safetensors_bytes(with("[4,3]"), "123456"), "a", "rows that share a byte");
}

TEST_F(SafetensorsTest, NamesWithAnyCharacter) {
  for (const std::string& name : {std::string("a\0b", 3), std::string("q\"\\/"),
                                  std::string("\xC3\xA9\xF0\x9F\x98\x80"), std::string()}) {
    const std::string bytes = safetensors_bytes({{name, "U8", {1}, "x"}});
    const Result<SafetensorsHeader> got = read(bytes);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->tensors.at(0).name, name);
  }
}

TEST_F(SafetensorsTest, MalformedLengths) {
  expect_refused("", "HeaderTooSmall", "an empty file");
  expect_refused("1234567", "HeaderTooSmall", "7 bytes");
  expect_refused(length_bytes(0), "InvalidHeaderStart", "length 0");
  expect_refused(length_bytes(1) + "{", "InvalidHeaderDeserialization", "length 1");
  expect_refused(length_bytes(~std::uint64_t{0}) + "{}", "HeaderTooLarge", "2^64 - 1");
  expect_refused(length_bytes(std::uint64_t{1} << 63) + "{}", "HeaderTooLarge", "2^63");
  expect_refused(length_bytes(100'000'001) + "{}", "HeaderTooLarge", "one above the cap");
  expect_refused(length_bytes(100'000'000) + "{}", "InvalidHeaderLength",
                 "the cap, which is not there");
  expect_refused(length_bytes(10) + "{}", "InvalidHeaderLength", "the file's size");
  expect_refused(length_bytes(3) + "{}", "InvalidHeaderLength", "one more than there is");
  expect_refused(length_bytes(2), "InvalidHeaderLength", "nothing after the length");
}

TEST_F(SafetensorsTest, AGitLfsPointer) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid "
      "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
      "size 4976698672\n";
  expect_refused(pointer, "Git LFS pointer", "pointer");
  EXPECT_THAT(read(pointer).error().message, HasSubstr("4976698672"));
  expect_refused(pointer.substr(0, 60), "Git LFS pointer", "a pointer that is cut");
}

struct BadHeader {
  const char* what;
  std::string header;
  const char* kind;
};

TEST_F(SafetensorsTest, MalformedHeaders) {
  const std::string good = tensor("a", "F32", "[1]", "[0,4]");
  const BadHeader cases[] = {
      {"not an object", "[]", "InvalidHeaderStart"},
      {"white space first", " {}", "InvalidHeaderStart"},
      {"a byte order mark", "\xEF\xBB\xBF{}", "InvalidHeaderStart"},
      {"cut JSON", "{" + good, "InvalidHeaderDeserialization"},
      {"text after it", "{" + good + "} x", "InvalidHeaderDeserialization"},
      {"two objects", "{" + good + "}{}", "InvalidHeaderDeserialization"},
      {"not UTF-8", "{" + tensor("\xFF", "F32", "[1]", "[0,4]") + "}", "InvalidHeader: "},
      {"deep nesting", "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
       "InvalidHeaderDeserialization"},
      {"a key twice", "{" + good + "," + tensor("a", "F32", "[0]", "[4,4]") + "}", "twice"},
      {"a key twice, spelled differently",
       "{" + good + "," + tensor("\\u0061", "F32", "[0]", "[4,4]") + "}", "twice"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{},)" + good + "}", "twice"},
      {"a metadata key twice", R"({"__metadata__":{"k":"1","k":"2"},)" + good + "}", "twice"},
      {"a field twice", R"({"a":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}})",
       "a"},
      {"metadata that is no object", R"({"__metadata__":[],)" + good + "}", "__metadata__"},
      {"metadata that is no text", R"({"__metadata__":{"n":1},)" + good + "}", "__metadata__"},
      {"a tensor that is no object", R"({"a":1})", "TensorInvalidInfo"},
      {"no dtype", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "TensorInvalidInfo"},
      {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "TensorInvalidInfo"},
      {"no offsets", R"({"a":{"dtype":"F32","shape":[1]}})", "TensorInvalidInfo"},
      {"dtype of another type", R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,4]}})",
       "TensorInvalidInfo"},
      {"shape of another type", "{" + tensor("a", "F32", "1", "[0,4]") + "}", "TensorInvalidInfo"},
      {"negative extent", "{" + tensor("a", "F32", "[-1]", "[0,4]") + "}", "TensorInvalidInfo"},
      {"fractional extent", "{" + tensor("a", "F32", "[1.0]", "[0,4]") + "}", "TensorInvalidInfo"},
      {"extent 2^64", "{" + tensor("a", "F32", "[18446744073709551616]", "[0,4]") + "}", "Invalid"},
      {"product overflows to 4 bytes",
       "{" + tensor("a", "U8", "[9223372036854775810,2]", "[0,4]") + "}", "ValidationOverflow"},
      {"bytes overflow to 4", "{" + tensor("a", "F32", "[4611686018427387905]", "[0,4]") + "}",
       "ValidationOverflow"},
      {"one offset", "{" + tensor("a", "F32", "[1]", "[4]") + "}", "InvalidOffset"},
      {"three offsets", "{" + tensor("a", "F32", "[1]", "[0,4,4]") + "}", "InvalidOffset"},
      {"negative offset", "{" + tensor("a", "F32", "[1]", "[-4,0]") + "}", "InvalidOffset"},
      {"offsets reversed", "{" + tensor("a", "F32", "[1]", "[4,0]") + "}", "InvalidOffset"},
      {"offsets as text", "{" + tensor("a", "F32", "[1]", R"(["0","4"])") + "}", "InvalidOffset"},
      {"fewer bytes than the shape", "{" + tensor("a", "F32", "[2]", "[0,4]") + "}",
       "TensorInvalidInfo"},
      {"more bytes than the shape", "{" + tensor("a", "U8", "[3]", "[0,4]") + "}",
       "TensorInvalidInfo"},
      {"beyond the file", "{" + tensor("a", "F32", "[2]", "[0,8]") + "}", "truncated"},
      {"far beyond the file",
       "{" + tensor("a", "F32", "[1]", "[18446744073709551608,18446744073709551612]") + "}",
       "truncated"},
      {"overlap",
       "{" + tensor("a", "U8", "[3]", "[0,3]") + "," + tensor("b", "U8", "[2]", "[2,4]") + "}",
       "overlaps"},
      {"the same bytes",
       "{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("b", "U8", "[4]", "[0,4]") + "}",
       "overlaps"},
      {"one inside the other",
       "{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("b", "U8", "[1]", "[1,2]") + "}",
       "overlaps"},
      {"a hole",
       "{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("b", "U8", "[2]", "[2,4]") + "}",
       "belong to no tensor"},
      {"a hole at the start", "{" + tensor("a", "U8", "[3]", "[1,4]") + "}", "belong to no tensor"},
      {"a hole at the end", "{" + tensor("a", "U8", "[3]", "[0,3]") + "}", "belong to no tensor"},
      {"an empty tensor in nowhere", "{" + good + "," + tensor("b", "U8", "[0]", "[9,9]") + "}",
       "truncated"},
  };
  for (const BadHeader& c : cases)
    expect_refused(safetensors_bytes(c.header, "1234"), c.kind, c.what);
}

TEST_F(SafetensorsTest, UnknownTypes) {
  const std::string header = "{" + tensor("a.weight", "F6_E2M3", "[4]", "[0,3]") + "}";
  expect_refused(safetensors_bytes(header, "123"), "F6_E2M3", "unknown dtype",
                 ErrorCode::unsupported);
  EXPECT_THAT(read(safetensors_bytes(header, "123")).error().message, HasSubstr("a.weight"));
}

TEST_F(SafetensorsTest, MessagesStayOnOneLineWhateverTheNames) {
  const std::string header = "{" + tensor("a\\nb\\u0000\\rc", "F32", "[2]", "[0,4]") + "}";
  expect_refused(safetensors_bytes(header, "1234"), "TensorInvalidInfo",
                 "control characters in a name");
}

TEST_F(SafetensorsTest, TruncatedAnywhere) {
  const std::string whole = safetensors_bytes(
      {{"a", "F32", {2}, "12345678"}, {"b", "U8", {3}, "abc"}, {"c", "BF16", {}, "zz"}});
  ASSERT_TRUE(read(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Result<SafetensorsHeader> header = read(whole.substr(0, size));
    ASSERT_FALSE(header) << size << " of " << whole.size() << " bytes";
    EXPECT_EQ(header.error().code, ErrorCode::bad_file);
    EXPECT_TRUE(is_one_line(header.error().message)) << header.error().message;
  }
  EXPECT_FALSE(read(whole + "x"));
}

TEST_F(SafetensorsTest, AnyChangedByteIsReadOrRefused) {
  // No crash, and what is accepted keeps the promise: all bytes of the data, once, each tensor with
  // its own.
  const std::string whole =
      safetensors_bytes({{"a", "F32", {2}, "12345678"}, {"b", "U8", {3, 1}, "abc"}});
  EXPECT_TRUE(rc::check([&] {
    std::string bytes = whole;
    const int changes = *rc::gen::inRange(1, 4);
    for (int i = 0; i < changes; ++i) {
      const auto at = *rc::gen::inRange<std::size_t>(8, bytes.size());
      bytes[at] = *rc::gen::element('0', '1', '9', '"', ',', ':', '[', ']', '{', '}', '-', '.', 'e',
                                    ' ', '\\', '\0', '\xFF', 'F');
    }
    const std::uint64_t data = bytes.size() - 11;
    const Result<SafetensorsHeader> header =
        parse_safetensors_header(bytes.substr(8, data - 8), bytes.size(), "f");
    if (!header) return;
    std::uint64_t at = header->data_offset;
    for (const TensorInfo& t : header->tensors) {
      RC_ASSERT(t.offset == at);
      RC_ASSERT(t.bytes == byte_count(t.dtype, t.shape));
      at += t.bytes;
    }
    RC_ASSERT(at == bytes.size());
  }));
}

// Writing.

TEST(SafetensorsLayoutTest, RoundTrip) {
  EXPECT_TRUE(rc::check([] {
    constexpr DType kTypes[] = {DType::u8,      DType::bf16,    DType::f32, DType::i64,
                                DType::f8_e4m3, DType::f8_e8m0, DType::f4,  DType::c64,
                                DType::boolean, DType::f16};
    const int count = *rc::gen::inRange(0, 8);
    std::vector<TensorInfo> tensors;
    for (int i = 0; i < count; ++i) {
      const DType dtype = kTypes[*rc::gen::inRange<std::size_t>(0, std::size(kTypes))];
      Shape shape;
      const int rank = *rc::gen::inRange(0, 4);
      for (int d = 0; d < rank; ++d) shape.push_back(*rc::gen::inRange<std::uint64_t>(0, 5));
      if (dtype == DType::f4) shape.push_back(2 * *rc::gen::inRange<std::uint64_t>(0, 4));
      const std::string name =
          *rc::gen::element<std::string>("w", "q\"\\", "\xC3\xA9", std::string("\0", 1)) +
          std::to_string(i);
      tensors.push_back({name, dtype, shape, 0, 0});
    }
    std::map<std::string, std::string> metadata;
    if (*rc::gen::arbitrary<bool>()) metadata = {{"format", "pt"}, {"q\"", "\n"}};
    const SafetensorsLayout layout = layout_safetensors(tensors, metadata);

    RC_ASSERT(layout.head.size() % 8 == 0u);
    std::uint64_t length = 0;
    for (int i = 7; i >= 0; --i)
      length = length << 8 | static_cast<unsigned char>(layout.head[static_cast<std::size_t>(i)]);
    RC_ASSERT(length == layout.head.size() - 8);
    const Result<SafetensorsHeader> header =
        parse_safetensors_header(std::string_view(layout.head).substr(8), layout.file_bytes, "f");
    RC_ASSERT(header.has_value());
    RC_ASSERT(header->metadata == metadata);
    RC_ASSERT(header->tensors.size() == tensors.size());
    RC_ASSERT(layout.tensors.size() == tensors.size());
    for (const TensorInfo& written : layout.tensors) {
      const auto read = std::ranges::find(header->tensors, written.name, &TensorInfo::name);
      const auto given = std::ranges::find(tensors, written.name, &TensorInfo::name);
      RC_ASSERT(read != header->tensors.end() && given != tensors.end());
      RC_ASSERT(read->dtype == given->dtype && read->shape == given->shape);
      RC_ASSERT(read->offset == written.offset && read->bytes == written.bytes);
      RC_ASSERT(read->offset % std::max(1u, static_cast<unsigned>(dtype_bits(read->dtype)) / 8) ==
                0u);
    }
  }));
}

TEST(SafetensorsLayoutTest, BytesOfASmallFile) {
  const SafetensorsLayout layout =
      layout_safetensors({{"abc", DType::u8, {3}, 0, 0}, {"b", DType::f32, {}, 0, 0}});
  EXPECT_EQ(
      layout.head.substr(8),
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("abc":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}}      )");
  EXPECT_EQ(layout.file_bytes, layout.head.size() + 7);
}

TEST(SafetensorsLayoutTest, TheGivenOrderAmongEquals) {
  const SafetensorsLayout layout = layout_safetensors({{"z", DType::bf16, {1}, 0, 0},
                                                       {"a", DType::f8_e4m3, {1}, 0, 0},
                                                       {"m", DType::f16, {1}, 0, 0}});
  ASSERT_EQ(layout.tensors.size(), 3u);
  EXPECT_EQ(layout.tensors[0].name, "z");
  EXPECT_EQ(layout.tensors[1].name, "m");
  EXPECT_EQ(layout.tensors[2].name, "a");
}

}  // namespace
}  // namespace octavo
