// STF cases about headers that lie, break off, or say one thing twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/broken.h"
#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kFirst = "model-00001-of-00002.safetensors";
const std::string kSecond = "model-00002-of-00002.safetensors";

// What a program takes whose memory does not follow declared sizes. Sanitizers reserve terabytes.
std::string_view small_memory() { return built_with_sanitizers() ? "" : "ulimit -v 262144; "; }

std::string message_of(const Json& report) {
  return report.at("defects").at(0).at("message").get<std::string>();
}

TEST(Stf01, DeclaredHeaderLengths) {
  const std::string good = tensor_file_text("{" + header_entry("a", "U8", "[200]", "[0,200]") + "}",
                                            std::string(200, 'x'));
  const std::uint64_t size = good.size();
  struct Case {
    std::uint64_t declared;
    std::string code;
    std::string words;
  };
  const std::vector<Case> cases = {
      {~std::uint64_t{0}, "header-too-large", "a header of 18446744073709551615 bytes is declared"},
      {std::uint64_t{1} << 63, "header-too-large",
       "a header of 9223372036854775808 bytes is declared"},
      {99'000'000, "truncated", "truncated: expected 99000008 bytes, have"},
      {size, "truncated", "expected " + std::to_string(size + 8) + " bytes, have"},
      {size - 7, "truncated", "expected " + std::to_string(size + 1) + " bytes, have"},
      {0, "header-syntax", "header of 0 bytes"},
      {1, "header-syntax", "header of 1 bytes"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.declared);
    const TempDir dir;
    write_string(dir / "in" / "model.safetensors", length_bytes(c.declared) + good.substr(8));
    const Json report = expect_refused(dir / "in", c.code, {}, small_memory());
    EXPECT_THAT(message_of(report), AllOf(HasSubstr(c.words), HasSubstr(std::to_string(size))));
    EXPECT_LE(report.at("bytes_read"), size + 512);
    EXPECT_THAT(report.at("fetch_again"), ElementsAre((dir / "in" / "model.safetensors").string()));
  }
}

TEST(Stf01, FilesTooShortForAHeader) {
  for (const std::size_t size : {0, 1, 7}) {
    const TempDir dir;
    write_string(dir / "in" / "model.safetensors", std::string(size, '\1'));
    const Json report = expect_refused(dir / "in", "header-too-small", {}, small_memory());
    EXPECT_THAT(message_of(report), HasSubstr(std::to_string(size) + " bytes"));
  }
}

TEST(Stf02, GitLfsPointer) {
  const TempDir dir;
  write_model(dir / "in",
              std::map<std::string, Tensors>{{kFirst, {{"a.weight", bf16_weight({128, 128}, 1)}}},
                                             {kSecond, {{"b.weight", bf16_weight({128, 128}, 2)}}}},
              kPlainConfig);
  const fs::path pointer = dir / "in" / kFirst;
  write_string(pointer,
               "version https://git-lfs.github.com/spec/v1\n"
               "oid sha256:4b3c4ccb5a2d1b2d6b9cd0d4a1d0c1bdc2a9c1d1e2f3a4b5c6d7e8f901234567\n"
               "size 4976698672\n");
  const Json report = expect_refused(dir / "in", "lfs-pointer");
  EXPECT_EQ(codes_of(report.at("defects")), std::vector<std::string>{"lfs-pointer"});
  EXPECT_THAT(message_of(report), AllOf(HasSubstr("LFS pointer"), HasSubstr("4976698672 bytes"),
                                        HasSubstr("git lfs pull"), HasSubstr("a.weight")));
  EXPECT_EQ(report.at("defects").at(0).at("file"), pointer.string());
  EXPECT_THAT(report.at("fetch_again"), ElementsAre(pointer.string()));

  const std::string text = run_octavo({"verify", (dir / "in").string()}).out;
  EXPECT_THAT(text, HasSubstr("fetch again: " + pointer.string() + "\n"));
}

TEST(Stf03, PartlyDownloadedShard) {
  const Tensors first = {{"a.weight", bf16_weight({128, 128}, 1)},
                         {"b.weight", bf16_weight({128, 128}, 2)},
                         {"c.weight", bf16_weight({128, 128}, 3)}};
  const TempDir whole;
  write_tensor_file(whole / "x", first);
  const std::string text = read_string(whole / "x");
  const std::uint64_t size = text.size();
  const std::uint64_t header = size - 3 * 2 * 128 * 128;  // with the length
  struct Cut {
    std::uint64_t have;
    std::uint64_t expected;
    std::string tensors;
  };
  for (const Cut& cut :
       {Cut{size / 2, size, "b.weight, c.weight"},
        Cut{header, size, "a.weight, b.weight, c.weight"},
        Cut{header - 9, header, "a.weight, b.weight, c.weight"},
        Cut{9, header, "a.weight, b.weight, c.weight"}, Cut{size - 1, size, "c.weight"}}) {
    SCOPED_TRACE(cut.have);
    const TempDir dir;
    write_model(dir / "in",
                std::map<std::string, Tensors>{
                    {kFirst, first}, {kSecond, {{"d.weight", bf16_weight({128, 128}, 4)}}}},
                kPlainConfig);
    fs::resize_file(dir / "in" / kFirst, cut.have);
    const Json report = expect_refused(dir / "in", "truncated");
    // One defect: the tensors of the lost half are no defects of the index.
    EXPECT_EQ(report.at("defects").size(), 1u) << report;
    EXPECT_THAT(message_of(report),
                AllOf(StartsWith((dir / "in" / kFirst).string()),
                      HasSubstr("truncated: expected " + std::to_string(cut.expected) +
                                " bytes, have " + std::to_string(cut.have)),
                      HasSubstr(": " + cut.tensors), HasSubstr("fetch this file again")));
    EXPECT_EQ(report.at("defects").at(0).at("offset"), cut.have);
    EXPECT_THAT(report.at("fetch_again"), ElementsAre((dir / "in" / kFirst).string()));
    // --full looks at what is there and finds nothing else.
    EXPECT_EQ(codes_of(verify_report(dir / "in", 3, {"--full"}).at("defects")),
              std::vector<std::string>{"truncated"});
  }
}

TEST(Stf04, OneKeyTwice) {
  const std::string a = header_entry("a", "U8", "[4]", "[0,4]");
  const std::string b = header_entry("a", "U8", "[4]", "[4,8]");
  const std::string escaped = header_entry("\\u0061", "U8", "[4]", "[4,8]");
  const std::string metadata = R"("__metadata__":{"format":"pt"})";
  struct Case {
    std::string header;
    std::string name;
  };
  for (const Case& c :
       {Case{"{" + a + "," + b + "}", "\"a\""}, Case{"{" + a + "," + escaped + "}", "\"a\""},
        Case{"{" + metadata + "," + metadata + "," + a + "}", "\"__metadata__\""},
        Case{R"({"__metadata__":{"k":"1","k":"2"},)" + a + "}", "\"k\""},
        Case{R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "dtype"}}) {
    const TempDir dir;
    write_string(dir / "in" / "model.safetensors", tensor_file_text(c.header, "12345678"));
    const Json report = expect_refused(dir / "in", "duplicate-key");
    EXPECT_THAT(message_of(report), AllOf(HasSubstr(c.name), HasSubstr("twice"))) << c.header;
  }
}

TEST(Stf05, TwoTensorsOnTheSameBytes) {
  const TempDir dir;
  const std::string header = "{" + header_entry("k_proj.weight", "BF16", "[2,2]", "[0,8]") + "," +
                             header_entry("v_proj.weight", "BF16", "[2,2]", "[0,8]") + "}";
  write_string(dir / "in" / "model.safetensors", tensor_file_text(header, "12345678"));
  const Json report = expect_refused(dir / "in", "overlap");
  EXPECT_THAT(message_of(report),
              AllOf(HasSubstr("k_proj.weight"), HasSubstr("v_proj.weight"), HasSubstr("overlaps")));
  EXPECT_EQ(report.at("defects").at(0).at("offset"), 8 + header.size());
}

TEST(Stf06, ShapeAndBytesDisagree) {
  struct Case {
    std::string dtype;
    std::string shape;
    std::string offsets;
    std::string code;
    std::string words;
  };
  const std::vector<Case> cases = {
      {"F32", "[1000,1000]", "[0,4]", "size-mismatch", "takes 4000000 bytes, data_offsets say 4"},
      {"F32", "[32,8]", "[0,65536]", "size-mismatch", "takes 1024 bytes, data_offsets say 65536"},
      {"F32", "[1]", "[8,4]", "offsets", "data_offsets [8,4] are not"},
      {"F32", "[16385]", "[0,65540]", "truncated", "have"},
      {"F32", "[1]", "[0,4,8]", "offsets", "data_offsets [0,4,8] are not"},
      {"F32", "[1]", "[-4,0]", "offsets", "data_offsets [-4,0] are not"},
      {"F32", "[1]", "[0.0,4.0]", "offsets", "takes 4 bytes"},
      {"F32", "[1]", "[18446744073709551608,18446744073709551612]", "truncated", "truncated"},
      {"F32", "[4294967296,4294967296]", "[0,4]", "size-overflow", "[4294967296, 4294967296]"},
      {"F32", "[18446744073709551615]", "[0,4]", "size-overflow", "fits 64 bits"},
      {"F32", "[-1]", "[0,4]", "tensor-info", "whole number >= 0"},
      {"F32", "[1.5]", "[0,4]", "tensor-info", "whole number >= 0"},
      {"F32", "4", "[0,4]", "tensor-info", "shape is not a list"},
      {"F32", "[1]", "\"0,4\"", "tensor-info", "data_offsets has the wrong type"},
      {"F32", "[16383]", "[4,65536]", "hole", "4 bytes before it"},
      {"F32", "[16383]", "[0,65532]", "trailing-bytes", "4 bytes at the end"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.shape + c.offsets);
    const TempDir dir;
    const std::string header = "{" + header_entry("the.weight", c.dtype, c.shape, c.offsets) + "}";
    write_string(dir / "in" / "model.safetensors",
                 tensor_file_text(header, std::string(65536, 'x')));
    const Json report = expect_refused(dir / "in", c.code, {}, small_memory());
    EXPECT_THAT(message_of(report), HasSubstr(c.words));
    if (c.code != "trailing-bytes") {
      EXPECT_THAT(message_of(report), HasSubstr("the.weight"));
      EXPECT_EQ(report.at("defects").at(0).at("tensor"), "the.weight");
    }
  }
}

TEST(Stf11, DtypesThatAreNotKnown) {
  const TempDir dir;
  write_string(
      dir / "in" / "model.safetensors",
      tensor_file_text("{" + header_entry("some.weight", "F9", "[4]", "[0,4]") + "}", "1234"));
  const Json report = expect_refused(dir / "in", "unknown-dtype");
  EXPECT_THAT(message_of(report), AllOf(HasSubstr("some.weight"), HasSubstr("F9")));
  EXPECT_THAT(report.at("fetch_again"), ElementsAre()) << "a newer reader is needed, no new file";
}

// `count` BF16 tensors of one element.
std::string many_tensors(std::size_t count) {
  std::string header;  // by hand: a JSON library takes longer than the program
  for (std::size_t i = 0; i < count; ++i) {
    header += (i == 0 ? "{\"model.layers.0.mlp.experts." : ",\"model.layers.0.mlp.experts.") +
              std::to_string(i) +
              ".norm.weight\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[" +
              std::to_string(2 * i) + "," + std::to_string(2 * i + 2) + "]}";
  }
  return header + "}";
}

TEST(Stf12, ReadsDoNotGrowWithTheNumberOfTensors) {
  for (const std::size_t count : {1000, 200'000}) {
    const TempDir dir;
    const std::string header = many_tensors(count);
    write_string(dir / "in" / "model.safetensors",
                 tensor_file_text(header, std::string(2 * count, '?')));
    const Json report = verify_report(dir / "in", 0);
    EXPECT_EQ(report.at("tensors"), count);
    EXPECT_EQ(report.at("reads"), 2) << "the beginning, and the header";
    EXPECT_EQ(report.at("bytes_read"), 512 + header.size());
    const Outcome inspected = run_octavo({"inspect", (dir / "in").string()});
    EXPECT_EQ(inspected.status, 0) << inspected.err;
    EXPECT_THAT(inspected.out, HasSubstr("\n" + std::to_string(count) + " tensors"));
  }
}

TEST(Stf12, HeaderAboveTheCap) {
  constexpr std::size_t kCap = 100'000'000;
  const std::string entry = "{" + header_entry("a.weight", "BF16", "[1,1]", "[0,2]") + "}";
  const TempDir dir;
  const fs::path file = dir / "in" / "model.safetensors";
  const auto write = [&](std::size_t length) {
    write_string(file,
                 length_bytes(length) + entry + std::string(length - entry.size(), ' ') + "\1\1");
  };
  write(kCap);
  verify_report(dir / "in", 0);
  write(kCap + 1);
  const Json report = expect_refused(dir / "in", "header-over-limit");
  EXPECT_THAT(message_of(report), AllOf(HasSubstr("100000001"), HasSubstr("--max-header-size")));
  EXPECT_THAT(report.at("fetch_again"), ElementsAre()) << "the file may be whole";
  verify_report(dir / "in", 0, {"--max-header-size", "100000001"});
  expect_refused(dir / "in", "header-over-limit", {"--max-header-size", "100000000"});
  for (const char* command : {"inspect", "quantize", "dequantize"}) {
    std::vector<std::string> arguments = {command, (dir / "in").string()};
    if (command != std::string_view("inspect")) arguments.push_back((dir / command).string());
    arguments.insert(arguments.end(), {"--max-header-size", "101MB"});
    const Outcome run = run_octavo(arguments);
    EXPECT_EQ(run.status, 0) << command << run.err;
  }
}

}  // namespace
}  // namespace octavo::tests
