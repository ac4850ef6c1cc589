// What `verify` counts, reads and says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "tests/support/broken.h"
#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr Extent kSquare{128, 128};
const std::string kName = "model.safetensors";
const std::vector<std::string> kFull = {"--full"};
constexpr std::string_view kUe8m0Config =
    R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}})";

// Where a tensor's bytes begin in a file.
std::uint64_t offset_in_file(const fs::path& file, const std::string& tensor) {
  const std::string text = read_string(file);
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(text[i]);
  const Json header = Json::parse(text.substr(8, length));
  return 8 + length + header.at(tensor).at("data_offsets").at(0).get<std::uint64_t>();
}

TEST(Verify, ASoundModel) {
  const TempDir dir;
  Fp8Weight a = fp8_weight({256, 256}, 1);
  write_model(dir / "in",
              {{"a.weight", a.codes},
               {"a.weight_scale_inv", a.scales},
               {"norm.weight", bf16_weight({1, 8}, 2)}},
              kFp8Config);
  const Json report = verify_report(dir / "in", 0);
  std::vector<std::string> keys;
  for (const auto& [key, value] : report.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("bytes", "bytes_read", "defects", "elements", "fetch_again",
                                "files", "fp8_weights", "notes", "ok", "reads", "scale_range",
                                "scales", "tensors", "unpaired"));
  EXPECT_EQ(report.at("fp8_weights"), 1);
  EXPECT_EQ(report.at("scales"), 1);
  EXPECT_EQ(report.at("unpaired"), 0);
  EXPECT_EQ(report.at("tensors"), 3);
  EXPECT_EQ(report.at("bytes"), 256 * 256 + 4 * 4 + 16);
  const std::vector<float> scales = values_of(a.scales);
  EXPECT_EQ(report.at("scale_range"),
            (Json{*std::ranges::min_element(scales), *std::ranges::max_element(scales)}));
  EXPECT_EQ(report.at("elements"), Json::array());
  const Outcome text = run_octavo({"verify", (dir / "in").string()});
  EXPECT_EQ(text.status, 0);
  EXPECT_EQ(text.err, "");
  EXPECT_THAT(text.out, AllOf(HasSubstr("1 FP8 weights, 1 scales, 0 unpaired"),
                              HasSubstr("\nsound, by headers and scales (--full reads all)\n")));
  EXPECT_THAT(run_octavo({"verify", (dir / "in").string(), "--full"}).out,
              EndsWith("\nsound, every byte read\n"));
}

TEST(Verify, ExitStatus) {
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", bf16_weight(kSquare, 1)}}, kPlainConfig);
  EXPECT_EQ(run_octavo({"verify", (dir / "in").string()}).status, 0);
  const Outcome quiet = run_octavo({"verify", (dir / "in").string(), "-q"});
  EXPECT_EQ(quiet.out + quiet.err, "");
  const Outcome none = run_octavo({"verify", (dir / "none").string()});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(only_line(none), HasSubstr((dir / "none").string() + ": no such file or directory"));
  EXPECT_EQ(run_octavo({"verify"}).status, 2);
  EXPECT_EQ(run_octavo({"verify", (dir / "in").string(), "--ful"}).status, 2);
  EXPECT_EQ(run_octavo({"verify", (dir / "in").string(), "--max-header-size", "x"}).status, 2);
  EXPECT_EQ(run_octavo({"verify", (dir / "in").string(), "--max-header-size", "16"}).status, 3);
}

TEST(Verify, BigDirectoriesAreReadByHeadersAndScalesAlone) {
  const TempDir dir;
  // Four shards of 4 GiB of codes, which take no disk space.
  constexpr std::uint64_t kRows = 65536;
  constexpr std::uint64_t kGrid = kRows / 128 * (kRows / 128);
  Json map;
  std::uint64_t header_bytes = 0;
  for (const std::string number : {"1", "2", "3", "4"}) {
    const std::string file = "model-0000" + number + "-of-00004.safetensors";
    const std::string weight = "model.layers." + number + ".up_proj.weight";
    Bytes scales;
    for (std::uint64_t i = 0; i < kGrid; ++i)
      scales.insert(scales.end(), {0, 0, 0x80, 0x3F});  // 1.0f
    write_sparse_file(dir / "in" / file,
                      {{weight, "F8_E4M3", {kRows, kRows}, {}},
                       {weight + "_scale_inv", "F32", {kRows / 128, kRows / 128}, scales}});
    map[weight] = file;
    map[weight + "_scale_inv"] = file;
    header_bytes += fs::file_size(dir / "in" / file) - kRows * kRows - 4 * kGrid - 8;
  }
  write_string(dir / "in" / "model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  write_string(dir / "in" / "config.json", kFp8Config);
  const std::uint64_t texts =
      fs::file_size(dir / "in" / "model.safetensors.index.json") + kFp8Config.size();
  const Json report = verify_report(dir / "in", 0);
  EXPECT_EQ(report.at("bytes"), 4 * (kRows * kRows + 4 * kGrid));
  EXPECT_EQ(report.at("bytes_read"), 4 * (512 + 4 * kGrid) + header_bytes + texts);
  // Index and config; of each file its beginning and its header; its scales.
  EXPECT_EQ(report.at("reads"), 2 + 4 * 2 + 4);
}

TEST(Verify, DownloadCacheWithLinks) {
  const TempDir dir;
  const fs::path model = dir / "hub" / "models--org--name";
  const fs::path snapshot = model / "snapshots" / "0123abcd";
  fs::create_directories(snapshot);
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  std::map<std::string, Tensors> files;
  for (int i = 0; i < 6; ++i) {
    Fp8Weight weight = fp8_weight(kSquare, static_cast<std::uint64_t>(i));
    const std::string name = "model.layers." + std::to_string(i) + ".up_proj.weight";
    files[first][name] = weight.codes;
    files[second][name + "_scale_inv"] = weight.scales;
  }
  write_model(model / "plain", files, kFp8Config);
  int blob = 0;
  for (const auto& entry : fs::directory_iterator(model / "plain")) {
    const std::string name = "blob" + std::to_string(blob++);
    fs::create_directories(model / "blobs");
    fs::rename(entry.path(), model / "blobs" / name);
    fs::create_symlink("../../blobs/" + name, snapshot / entry.path().filename());
  }
  fs::remove(model / "plain");
  const Json sound = verify_report(snapshot, 0, kFull);
  EXPECT_EQ(sound.at("fp8_weights"), 6);
  EXPECT_EQ(sound.at("unpaired"), 0);
  // The name of the model instead of the commit's: said, not guessed.
  EXPECT_THAT(verify_report(model, 3).at("defects").at(0).at("message").get<std::string>(),
              HasSubstr("snapshots/0123abcd/" + first));
  EXPECT_EQ(verify_report(model, 3).at("fetch_again"), Json::array());

  fs::remove(model / "blobs" / fs::read_symlink(snapshot / second).filename());
  const Json report = expect_refused(snapshot, "broken-link");
  EXPECT_EQ(report.at("defects").size(), 1u) << report;
  EXPECT_THAT(report.at("fetch_again"), ElementsAre((snapshot / second).string()));
  EXPECT_EQ(report.at("unpaired"), 0) << "the scales are in the file that is lost";
}

struct ScaleCase {
  std::string code;
  Tensor scales;  // [2, 2], the wrong one at [1, 0]
};

std::vector<ScaleCase> scale_cases() {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  std::vector<ScaleCase> cases;
  for (const char* dtype : {"F32", "F16", "BF16"}) {
    for (const auto& [code, value] : {std::pair{"scale-nan", nan},
                                      {"scale-infinite", inf},
                                      {"scale-infinite", -inf},
                                      {"scale-zero", 0.0f},
                                      {"scale-zero", -0.0f},
                                      {"scale-negative", -0.5f},
                                      {"scale-not-power-of-two", 0.75f}})
      cases.push_back({code, make_tensor(dtype, {2, 2}, std::vector<float>{1, 0.5f, value, 2})});
  }
  cases.push_back({"scale-nan", {"F8_E8M0", {2, 2}, {127, 126, 255, 128}}});
  cases.push_back({"scale-nan", {"U8", {2, 2}, {127, 126, 255, 128}}});
  return cases;
}

TEST(Verify, ScalesThatAreNone) {
  for (const ScaleCase& c : scale_cases()) {
    SCOPED_TRACE(c.code + " " + c.scales.dtype);
    const TempDir dir;
    write_model(dir / "in",
                {{"m.weight", fp8_weight({256, 256}, 1).codes}, {"m.weight_scale_inv", c.scales}},
                kUe8m0Config);
    const Json report = verify_report(dir / "in", 3);
    ASSERT_EQ(codes_of(report.at("defects")), std::vector<std::string>{c.code}) << report;
    const Json& defect = report.at("defects").at(0);
    EXPECT_EQ(defect.at("file"), (dir / "in" / kName).string());
    EXPECT_EQ(defect.at("tensor"), "m.weight_scale_inv");
    EXPECT_EQ(defect.at("offset"), offset_in_file(dir / "in" / kName, "m.weight_scale_inv") +
                                       2 * dtype_bytes(c.scales.dtype));
    EXPECT_THAT(defect.at("message").get<std::string>(), HasSubstr("at [1, 0]"));
    EXPECT_EQ(report.at("fp8_weights"), 1);
    EXPECT_EQ(report.at("unpaired"), 0);
  }
}

TEST(Verify, PowersOfTwoAreAskedForByTheConfigAlone) {
  const TempDir dir;
  const Tensors tensors = {{"m.weight", fp8_weight({256, 256}, 1).codes},
                           {"m.weight_scale_inv",
                            make_tensor("F32", {2, 2}, std::vector<float>{0.75f, 1, 0x1p-140f, 3})},
                           {"m.input_scale", make_tensor("F32", {}, std::vector<float>{0.3f})}};
  write_model(dir / "in", tensors, kFp8Config);
  verify_report(dir / "in", 0);
  write_model(dir / "in", tensors, kUe8m0Config);
  const Json report = verify_report(dir / "in", 3);
  ASSERT_EQ(report.at("defects").size(), 1u) << report;
  EXPECT_THAT(report.at("defects").at(0).at("message").get<std::string>(),
              HasSubstr("(2 of them), first 0.75 at [0, 0]"));
}

struct CodeCase {
  std::string dtype;
  Fp8 format;
  std::uint8_t nan;
  std::uint8_t number;  // the neighbour of a NaN that is one
};

TEST(Verify, NanCodesOfEachFormat) {
  for (const CodeCase& c :
       {CodeCase{"F8_E4M3", Fp8::e4m3fn, 0x7F, 0x80}, CodeCase{"F8_E4M3", Fp8::e4m3fn, 0xFF, 0x7E},
        CodeCase{"F8_E5M2", Fp8::e5m2, 0x7D, 0x7B}, CodeCase{"F8_E5M2", Fp8::e5m2, 0xFF, 0x80},
        CodeCase{"F8_E4M3FNUZ", Fp8::e4m3fnuz, 0x80, 0x7F},
        CodeCase{"F8_E5M2FNUZ", Fp8::e5m2fnuz, 0x80, 0xFF}}) {
    SCOPED_TRACE(c.dtype + " " + std::to_string(c.nan));
    const TempDir dir;
    Tensor codes{c.dtype, {128, 128}, random_codes(kSquare, c.format, 7)};
    codes.bytes[0] = c.number;
    codes.bytes[5 * 128 + 17] = c.nan;
    codes.bytes[9 * 128] = c.nan;
    write_model(dir / "in",
                {{"m.weight", codes},
                 {"m.weight_scale_inv", make_tensor("F32", {1, 1}, std::vector<float>{1})}},
                "");
    EXPECT_EQ(verify_report(dir / "in", 0).at("elements"), Json::array()) << "codes are not read";
    const Json report = verify_report(dir / "in", 3, kFull);
    std::vector<std::string> found = codes_of(report.at("defects"));
    // Random codes of E5M2 hold no infinity: random_codes() gives numbers.
    ASSERT_EQ(found, std::vector<std::string>{"nan-code"}) << report;
    const Json& defect = report.at("defects").at(0);
    EXPECT_EQ(defect.at("offset"), offset_in_file(dir / "in" / kName, "m.weight") + 5 * 128 + 17);
    EXPECT_THAT(defect.at("message").get<std::string>(),
                HasSubstr("m.weight: 2 of 16384 elements are NaN codes, first at [5, 17], offset " +
                          defect.at("offset").dump()));
    EXPECT_EQ(report.at("elements").at(0).at("nan"), 2);
  }
}

TEST(Verify, NanAndInfinityInWideTensors) {
  struct Case {
    std::string dtype;
    std::uint64_t nan;       // bits
    std::uint64_t infinity;  // bits
  };
  for (const Case& c :
       {Case{"BF16", 0xFF81, 0x7F80}, Case{"F16", 0x7C01, 0xFC00},
        Case{"F32", 0x7F800001, 0xFF800000}, Case{"F64", 0xFFF0000000000001, 0x7FF0000000000000},
        Case{"C64", 0x7F80000100000000, 0xFF800000}}) {
    SCOPED_TRACE(c.dtype);
    const TempDir dir;
    const std::uint64_t size = c.dtype == "C64" ? 8 : dtype_bytes(c.dtype);
    Tensor tensor{c.dtype, {3, 4}, Bytes(12 * size, 0)};
    const auto put = [&](std::uint64_t element, std::uint64_t bits) {
      for (std::uint64_t i = 0; i < size; ++i)
        tensor.bytes[element * size + i] = static_cast<std::uint8_t>(bits >> (8 * i));
    };
    put(6, c.nan);
    put(11, c.nan);
    put(9, c.infinity);
    write_string(dir / "in" / kName, tensor_file_text({{"t", tensor}}));
    verify_report(dir / "in", 0);
    const Json report = verify_report(dir / "in", 3, kFull);
    ASSERT_EQ(codes_of(report.at("defects")),
              (std::vector<std::string>{"nan-value", "infinite-value"}))
        << report;
    const std::uint64_t begin = offset_in_file(dir / "in" / kName, "t");
    const std::string nan = report.at("defects").at(0).at("message");
    EXPECT_THAT(nan, HasSubstr("t: 2 of 12 elements are NaN, first at [1, 2]"));
    EXPECT_EQ(report.at("defects").at(0).at("offset"),
              begin + 6 * size + (c.dtype == "C64" ? 4 : 0));
    const std::string infinite = report.at("defects").at(1).at("message");
    EXPECT_THAT(infinite, HasSubstr("t: 1 of 12 elements are infinite, first at [2, 1]"));
    EXPECT_EQ(report.at("defects").at(1).at("offset"), begin + 9 * size);
  }
}

Json elements_of(const Json& report) {
  EXPECT_EQ(report.at("elements").size(), 1u);
  return report.at("elements").at(0);
}

TEST(Verify, CountsOfCodes) {
  const TempDir dir;
  // Every code of E5M2 once, then some again. By hand: 2 x 3 NaN, 2 infinities, 2 of the largest
  // magnitude (0x7B, 0xFB), 2 x 3 subnormals, 2 zeros.
  Tensor codes{"F8_E5M2", {2, 130}, Bytes(260)};
  for (std::size_t i = 0; i < 256; ++i) codes.bytes[i] = static_cast<std::uint8_t>(i);
  codes.bytes[256] = 0x80;
  codes.bytes[257] = 0x00;
  codes.bytes[258] = 0x7B;
  codes.bytes[259] = 0x01;
  write_model(
      dir / "in",
      {{"m.weight", codes}, {"m.weight_scale_inv", make_tensor("F32", {1}, std::vector<float>{1})}},
      "");
  const Json report = verify_report(dir / "in", 3, kFull);
  EXPECT_EQ(codes_of(report.at("defects")),
            (std::vector<std::string>{"nan-code", "infinite-value"}));
  EXPECT_EQ(elements_of(report), (Json{{"name", "m.weight"},
                                       {"elements", 260},
                                       {"nan", 6},
                                       {"infinite", 2},
                                       {"saturated", 3},
                                       {"subnormal", 7},
                                       {"zero", 4}}));

  // E4M3FNUZ: 0x80 is the NaN, 0x7F and 0xFF are 240, 0x01..0x07 subnormal.
  codes.dtype = "F8_E4M3FNUZ";
  write_model(
      dir / "in",
      {{"m.weight", codes}, {"m.weight_scale_inv", make_tensor("F32", {1}, std::vector<float>{1})}},
      "");
  EXPECT_EQ(elements_of(verify_report(dir / "in", 3, kFull)), (Json{{"name", "m.weight"},
                                                                    {"elements", 260},
                                                                    {"nan", 2},
                                                                    {"infinite", 0},
                                                                    {"saturated", 2},
                                                                    {"subnormal", 15},
                                                                    {"zero", 2}}));
}

TEST(Verify, CountsOfPackedCodes) {
  // Every byte once: each of the 16 codes 32 times. Saturated 0x7 and 0xF, subnormal 0x1 and 0x9,
  // zero 0x0 and 0x8.
  Bytes bytes(256);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  for (const bool tagged : {true, false}) {
    const TempDir dir;
    const Tensor codes = tagged ? Tensor{"F4", {8, 64}, bytes} : Tensor{"I8", {8, 32}, bytes};
    const Tensor scales = e8m0_tensor({8, 2}, power_of_two_scales(16));
    write_string(dir / "in" / kName, tensor_file_text({{"m.weight", codes}, {"m.scale", scales}}));
    const Json report = verify_report(dir / "in", 0, kFull);
    EXPECT_EQ(report.at("fp8_weights"), 1);
    EXPECT_EQ(elements_of(report), (Json{{"name", "m.weight"},
                                         {"elements", 512},
                                         {"nan", 0},
                                         {"infinite", 0},
                                         {"saturated", 64},
                                         {"subnormal", 64},
                                         {"zero", 64}}));
  }
}

TEST(Verify, PartsOfOneTensorAndAnyNumberOfThreads) {
  const TempDir dir;
  // 20 MiB of codes and 24 MiB of floats: parts of 8 MiB. NaN on both sides of a boundary.
  constexpr std::uint64_t kPart = 8 << 20;
  Tensor codes{"F8_E4M3", {5120, 4096}, Bytes(5120 * 4096, 0x38)};
  codes.bytes[kPart - 1] = 0x7F;
  codes.bytes[kPart] = 0xFF;
  codes.bytes[2 * kPart + 5] = 0x7F;
  codes.bytes[1] = 0x00;
  codes.bytes.back() = 0x7E;
  Tensor floats{"F32", {1536, 4096}, Bytes(4 * 1536 * 4096, 0)};
  floats.bytes[2 * kPart + 2] = 0x80;  // infinity, the first element of the third part
  floats.bytes[2 * kPart + 3] = 0x7F;
  write_string(
      dir / "in" / kName,
      tensor_file_text({{"m.weight", codes},
                        {"m.weight_scale_inv", make_tensor("F32", {1}, std::vector<float>{1})},
                        {"f", floats}}));
  const Json report = verify_report(dir / "in", 3, {"--full", "--threads", "1"});
  ASSERT_EQ(codes_of(report.at("defects")),
            (std::vector<std::string>{"nan-code", "infinite-value"}));
  const std::uint64_t begin = offset_in_file(dir / "in" / kName, "m.weight");
  EXPECT_EQ(report.at("defects").at(0).at("offset"), begin + kPart - 1);
  EXPECT_THAT(report.at("defects").at(0).at("message").get<std::string>(),
              HasSubstr("3 of 20971520 elements are NaN codes, first at [2047, 4095]"));
  EXPECT_EQ(report.at("defects").at(1).at("offset"),
            offset_in_file(dir / "in" / kName, "f") + 2 * kPart);
  EXPECT_EQ(elements_of(report), (Json{{"name", "m.weight"},
                                       {"elements", 20971520},
                                       {"nan", 3},
                                       {"infinite", 0},
                                       {"saturated", 1},
                                       {"subnormal", 0},
                                       {"zero", 1}}));
  EXPECT_THAT(report.at("notes"), IsEmpty()) << "floats of which one is not zero";
  EXPECT_EQ(verify_report(dir / "in", 3, {"--full", "--threads", "2"}), report);
  EXPECT_EQ(verify_report(dir / "in", 3, {"--full", "--threads", "3"}), report);
}

TEST(Verify, TensorsOfZeros) {
  const TempDir dir;
  write_model(dir / "in",
              {{"a.weight", {"BF16", {2, 2}, Bytes(8, 0)}},
               {"b.weight", {"F8_E4M3", {2, 2}, Bytes(4, 0)}},
               {"b.weight_scale_inv", make_tensor("F32", {1}, std::vector<float>{1})},
               {"bias", {"F32", {2}, Bytes(8, 0)}},
               {"empty", {"F32", {0, 2}, {}}},
               {"minus.weight", {"F8_E4M3", {1, 2}, Bytes(2, 0x80)}},
               {"minus.weight_scale_inv", make_tensor("F32", {1}, std::vector<float>{1})}},
              "");
  const Json report = verify_report(dir / "in", 0, kFull);
  std::vector<std::string> tensors;
  for (const Json& note : report.at("notes")) {
    EXPECT_EQ(note.at("code"), "all-zero");
    tensors.push_back(note.at("tensor"));
  }
  EXPECT_THAT(tensors, ::testing::UnorderedElementsAre("a.weight", "b.weight"));
}

TEST(Verify, EverythingThatIsWrongIsListed) {
  const TempDir dir;
  const std::string first = "model-00001-of-00003.safetensors";
  const std::string second = "model-00002-of-00003.safetensors";
  const std::string third = "model-00003-of-00003.safetensors";
  Tensor nan = fp8_weight(kSquare, 1).codes;
  nan.bytes[1] = 0x7F;
  write_model(dir / "in",
              std::map<std::string, Tensors>{
                  {first,
                   {{"a.weight", nan},
                    {"a.weight_scale_inv", make_tensor("F32", {1, 1}, std::vector<float>{0})},
                    {"b.weight", fp8_weight(kSquare, 2).codes},
                    {"c.weight_scale_inv", make_tensor("F32", {1}, std::vector<float>{1})}}},
                  {second, {{"d.weight", bf16_weight(kSquare, 3)}}},
                  {third, {{"e.weight", bf16_weight(kSquare, 4)}}}},
              R"({"vocab_size": -5})");
  fs::resize_file(dir / "in" / second, fs::file_size(dir / "in" / second) - 1);
  fs::remove(dir / "in" / third);
  const Json report = verify_report(dir / "in", 3, kFull);
  EXPECT_THAT(codes_of(report.at("defects")),
              ElementsAre("missing-file", "truncated", "missing-scale", "unused-scale",
                          "config-lacks-quantization", "config-value", "scale-zero", "nan-code"));
  EXPECT_EQ(report.at("fp8_weights"), 2);
  EXPECT_EQ(report.at("scales"), 2);
  EXPECT_EQ(report.at("unpaired"), 2);
  EXPECT_THAT(report.at("fetch_again"),
              ElementsAre((dir / "in" / second).string(), (dir / "in" / third).string()));
  const Outcome text = run_octavo({"verify", (dir / "in").string(), "--full"});
  EXPECT_EQ(text.status, 3);
  std::size_t lines = 0;
  std::istringstream stream(text.out);
  for (std::string line; std::getline(stream, line);) lines += line.starts_with("defect ") ? 1 : 0;
  EXPECT_EQ(lines, 8u) << text.out;
  EXPECT_THAT(text.out, AllOf(HasSubstr("2 FP8 weights, 2 scales, 2 unpaired"),
                              EndsWith("NOT SOUND: 8 defects\n")));
}

TEST(Verify, ManyOfOneKindAreCounted) {
  const TempDir dir;
  Tensors tensors;
  for (int i = 0; i < 25; ++i)
    tensors["m" + std::to_string(i) + ".weight"] = fp8_weight({1, 8}, 1).codes;
  write_model(dir / "in", tensors, "");
  const Outcome text = run_octavo({"verify", (dir / "in").string()});
  EXPECT_THAT(text.out, AllOf(HasSubstr("and 15 more like these (--all)"),
                              EndsWith("NOT SOUND: 25 defects\n")));
  const Outcome all = run_octavo({"verify", (dir / "in").string(), "--all"});
  EXPECT_THAT(all.out, AllOf(HasSubstr("m24.weight"), Not(HasSubstr("more like these"))));
  EXPECT_EQ(verify_report(dir / "in", 3).at("defects").size(), 25u);
}

TEST(Verify, NamesThatBreakNothing) {
  for (const std::string& odd :
       {std::string("line\nbreak"), std::string("<b>\"quo'te\"\\"), std::string("tab\tesc\x1b[2J"),
        std::string("bell\a\x7f"), std::string("not utf-8 \xFF\xC3")}) {
    const TempDir dir;
    const bool utf8 = odd.find('\xFF') == odd.npos;
    // As the name of a directory, of a link that leads nowhere, and of a tensor.
    const fs::path in = dir / odd;
    write_model(in, {{(utf8 ? odd : "x") + ".weight", fp8_weight({1, 8}, 1).codes}}, "");
    fs::create_symlink("nowhere", in / odd);
    const Json report = verify_report(in, 3);
    EXPECT_THAT(codes_of(report.at("defects")), ElementsAre("broken-link", "missing-scale"));
    if (utf8) {
      EXPECT_EQ(report.at("defects").at(0).at("file"), (in / odd).string());
      EXPECT_EQ(report.at("defects").at(1).at("tensor"), odd + ".weight");
    }
    const Outcome text = run_octavo({"verify", in.string()});
    std::size_t lines = 0;
    std::istringstream stream(text.out);
    for (std::string line; std::getline(stream, line); ++lines) {
      for (const char c : line)
        EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) << line;
      const bool known = line.empty() || line.starts_with("defect  ") ||
                         line.starts_with("fetch again: ") || line.starts_with("NOT SOUND: 2") ||
                         (line[0] >= '0' && line[0] <= '9' &&
                          line.find_first_not_of("0123456789") == line.find(' '));
      EXPECT_TRUE(known) << line;
    }
    EXPECT_EQ(lines, 7u) << text.out;
    const Outcome inspected = run_octavo({"inspect", in.string()});
    EXPECT_EQ(inspected.status, 1);
    EXPECT_NE(only_line(inspected), "") << inspected.err;
  }
}

}  // namespace
}  // namespace octavo::tests
