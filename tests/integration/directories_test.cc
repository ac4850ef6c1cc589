// What a converted directory looks like: shards, index, copied tensors, side files, config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr Extent kSquare{256, 256};
const std::string kFirst = "model-00001-of-00002.safetensors";
const std::string kSecond = "model-00002-of-00002.safetensors";

Outcome convert(const TempDir& dir, const char* command, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {command, (dir / "in").string(), (dir / "out").string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_octavo(arguments);
}

std::set<std::string> listing(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) names.insert(entry.path().lexically_relative(directory).string());
  }
  return names;
}

TEST(Directories, ShardsAreFilledUpToTheLimit) {
  const TempDir dir;
  Tensors source;
  for (std::uint64_t i = 0; i < 6; ++i)
    source["a." + std::to_string(i) + ".weight"] = bf16_weight(kSquare, i);
  source["big.weight"] = bf16_weight({1024, 512}, 10);  // alone above the limit
  write_model(dir / "in", source, kPlainConfig);
  const Outcome run = convert(dir, "quantize", {"--max-shard-size", "140KB"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Model model = read_model(dir / "out");  // holds index and total_size against the files
  EXPECT_EQ(model.tensors.size(), 2 * source.size());
  EXPECT_EQ(model.files.size(),
            4u);  // two small weights of 64 KiB each three times, and the big one
  for (const auto& [file, tensors] : model.files) {
    std::uint64_t bytes = 0;
    for (const auto& [name, tensor] : tensors) bytes += tensor.bytes.size();
    EXPECT_TRUE(bytes <= 140'000 || tensors.contains("big.weight")) << file;
    for (const auto& [name, tensor] : tensors) {  // a weight and its scales are in one file
      if (name.ends_with(".weight")) {
        EXPECT_TRUE(tensors.contains(name + "_scale_inv"));
      }
    }
  }
  const auto index =
      nlohmann::json::parse(read_string(dir / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata").at("total_size"), 6 * (65536 + 16) + 1024 * 512 + 8 * 4 * 4);
}

TEST(Directories, OneFileInOneFileOut) {
  const TempDir dir;
  const Tensor weight = bf16_weight(kSquare, 1);
  write_tensor_file(dir / "single" / "weights.safetensors", {{"a.weight", weight}});
  const Outcome run = run_octavo(
      {"quantize", (dir / "single" / "weights.safetensors").string(), (dir / "out").string()});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(listing(dir / "out"), (std::set<std::string>{"weights.safetensors", "config.json"}));
  const QuantizedTensors expected = expected_quantized(weight, {});
  EXPECT_EQ(read_tensor_file(dir / "out" / "weights.safetensors"),
            (Tensors{{"a.weight", expected.codes}, {"a.weight_scale_inv", expected.scales}}));
  EXPECT_EQ(nlohmann::json::parse(read_string(dir / "out" / "config.json")).size(), 1u);
  EXPECT_EQ(run_octavo({"inspect", (dir / "out" / "weights.safetensors").string()}).status, 0);
}

TEST(Directories, ScalesInOtherShards) {
  const TempDir dir;
  const Fp8Weight a = fp8_weight(kSquare, 1);
  const Fp8Weight b = fp8_weight({576, 130}, 2);
  const Tensor norm = make_tensor("BF16", {256}, gaussian({1, 256}, 3));
  write_model(
      dir / "in",
      std::map<std::string, Tensors>{
          {"model-00001-of-00003.safetensors",
           {{"a.weight", a.codes}, {"b.weight_scale_inv", b.scales}}},
          {"model-00002-of-00003.safetensors", {{"b.weight", b.codes}, {"norm.weight", norm}}},
          {"model-00003-of-00003.safetensors", {{"a.weight_scale_inv", a.scales}}}},
      kFp8Config);
  const Outcome run = convert(dir, "dequantize");
  ASSERT_EQ(run.status, 0) << run.err;
  const Model model = read_model(dir / "out");
  EXPECT_EQ(model.tensors,
            (Tensors{{"a.weight", as_bf16(a)}, {"b.weight", as_bf16(b)}, {"norm.weight", norm}}));
  EXPECT_EQ(model.files.size(), 2u) << "a shard of scales alone has nothing left to hold";
}

TEST(Directories, OtherTensorsAreCopiedUnchanged) {
  const Tensors odd = {
      {"a.scalar", make_tensor("F32", {}, std::vector{3.5f})},
      {"a.empty", {"BF16", {0, 16}, {}}},
      {"a.empty.weight", {"BF16", {16, 0}, {}}},
      {"a.ids", {"I64", {3}, Bytes(24, 7)}},
      {"a.table", {"I64", {2, 3}, Bytes(48, 9)}},
      {"a.mask", {"BOOL", {5}, {0, 1, 1, 0, 1}}},
      {"a.double.weight", {"F64", {2, 2}, Bytes(32, 0x3F)}},
      {"a.int8", {"I8", {3, 3}, Bytes(9, 0x81)}},
      {"a.nan", {"BF16", {2}, {0xC1, 0x7F, 0x80, 0xFF}}},
      {"a.one_dimension.weight", make_tensor("F16", {300}, gaussian({1, 300}, 1))}};
  const Fp8Weight weight = fp8_weight(kSquare, 2);
  {
    const TempDir dir;
    Tensors source = odd;
    source["z.weight"] = as_bf16(weight);
    write_model(dir / "in", source, kPlainConfig);
    const Outcome run = convert(dir, "quantize", {"--json"});
    ASSERT_EQ(run.status, 0) << run.err;
    const Tensors out = read_model(dir / "out").tensors;
    EXPECT_EQ(out.size(), source.size() + 1);
    for (const auto& [name, tensor] : odd) EXPECT_EQ(out.at(name), tensor) << name;
    EXPECT_EQ(run.json().at("kept"), odd.size());
  }
  const TempDir dir;
  Tensors source = odd;
  source["z.weight"] = weight.codes;
  source["z.weight_scale_inv"] = weight.scales;
  write_model(dir / "in", source, kFp8Config);
  const Outcome run = convert(dir, "dequantize");
  ASSERT_EQ(run.status, 0) << run.err;
  const Tensors out = read_model(dir / "out").tensors;
  EXPECT_EQ(out.size(), odd.size() + 1);
  for (const auto& [name, tensor] : odd) EXPECT_EQ(out.at(name), tensor) << name;
}

TEST(Directories, TensorsThatAreNotAlignedAreRead) {
  const TempDir dir;
  // The reader must not rely on alignment: three bytes in front of BF16.
  const Tensor weight = bf16_weight({8, 8}, 1);
  const std::string header =
      R"({"a.mask":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},)"
      R"("a.weight":{"dtype":"BF16","shape":[8,8],"data_offsets":[3,131]}} )";
  std::string text(8, '\0');
  text[0] = static_cast<char>(header.size());
  text += header + std::string("\1\0\1", 3) + std::string(weight.bytes.begin(), weight.bytes.end());
  write_string(dir / "in" / "model.safetensors", text);
  const Outcome run = convert(dir, "quantize");
  ASSERT_EQ(run.status, 0) << run.err;
  const Tensors out = read_model(dir / "out").tensors;
  EXPECT_EQ(out.at("a.weight"), expected_quantized(weight, {}).codes);
  EXPECT_EQ(out.at("a.mask").bytes, (Bytes{1, 0, 1}));
}

TEST(Directories, ConfigKeepsEveryOtherByte) {
  const std::string before =
      "{\"z\": 1,\n\t\"quantization_config\"  :  {\"a\": [1, {\"b\": \"}\"}]} ,\n  \"m\": 1.10, "
      "\"a\": \"\\ud83d\\ude00\"\n, \"tie_word_embeddings\": false }\n\n";
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", bf16_weight(kSquare, 1)}}, before);
  const Outcome run = convert(dir, "quantize");
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string after = read_string(dir / "out" / "config.json");
  const std::size_t begin = before.find("{\"a\": [1");
  const std::string head = before.substr(0, begin);
  const std::string tail = before.substr(before.find(" ,\n  \"m\""));
  EXPECT_TRUE(after.starts_with(head)) << after;
  EXPECT_TRUE(after.ends_with(tail)) << after;
  const std::string value = after.substr(head.size(), after.size() - head.size() - tail.size());
  EXPECT_EQ(nlohmann::json::parse(value).at("quant_method"), "fp8");
}

TEST(Directories, NestedTextConfigLosesItsQuantization) {
  const Fp8Weight weight = fp8_weight({192, 256}, 1, 96, 128);
  const TempDir dir;
  write_model(
      dir / "in", {{"a.weight", weight.codes}, {"a.weight_scale_inv", weight.scales}},
      R"({"text_config": {"quantization_config": {"quant_method": "fp8", "weight_block_size": [96, 128]}, "dtype": "float16"}})");
  const Outcome run = convert(dir, "dequantize");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(read_string(dir / "out" / "config.json"), R"({"text_config": {"dtype": "bfloat16"}})");
  EXPECT_EQ(read_model(dir / "out").tensors.at("a.weight"), as_bf16(weight));
}

TEST(Directories, ConfiguredBlockCountsAndNotTheRatioOfShapes) {
  // 192 rows and two rows of scales: 128 + 64, not 96 + 96.
  const Fp8Weight weight = fp8_weight({192, 320}, 1);
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", weight.codes}, {"a.weight_scale_inv", weight.scales}},
              kFp8Config);
  ASSERT_EQ(convert(dir, "dequantize").status, 0);
  EXPECT_EQ(read_model(dir / "out").tensors.at("a.weight"), as_bf16(weight));
  const TempDir other;
  write_model(other / "in",
              {{"a.weight", weight.codes},
               {"a.weight_scale_inv", make_tensor("F32", {3, 3}, distinct_scales(9))}},
              kFp8Config);
  const Outcome run = convert(other, "dequantize");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(only_line(run), HasSubstr("do not fit"));
  EXPECT_FALSE(fs::exists(other / "out"));
}

TEST(Directories, OverwriteLeavesNothingOfTheOldModel) {
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", bf16_weight(kSquare, 1)}}, kPlainConfig);
  write_model(dir / "out",
              std::map<std::string, Tensors>{{kFirst, {{"x.weight", bf16_weight(kSquare, 2)}}},
                                             {kSecond, {{"y.weight", bf16_weight(kSquare, 3)}}}},
              kPlainConfig);
  const Outcome refused = convert(dir, "quantize");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(only_line(refused), HasSubstr("--overwrite"));
  EXPECT_TRUE(fs::exists(dir / "out" / kFirst));
  ASSERT_EQ(convert(dir, "quantize", {"--overwrite"}).status, 0);
  EXPECT_EQ(listing(dir / "out"), (std::set<std::string>{"model.safetensors", "config.json"}));
}

// What killed runs with other names left; what a user calls so is a file like any other.
TEST(Directories, LeftoversGoFromEveryFolderThatIsWrittenTo) {
  const TempDir dir;
  write_tensor_file(dir / "in" / "weights" / kFirst, {{"a.weight", bf16_weight(kSquare, 1)}});
  write_tensor_file(dir / "in" / "weights" / kSecond, {{"b.weight", bf16_weight(kSquare, 2)}});
  write_string(
      dir / "in" / "model.safetensors.index.json",
      nlohmann::json{
          {"metadata", nlohmann::json::object()},
          {"weight_map", {{"a.weight", "weights/" + kFirst}, {"b.weight", "weights/" + kSecond}}}}
          .dump());
  write_string(dir / "in" / "config.json", kPlainConfig);
  write_string(dir / "in" / "templates" / "chat.jinja", "x");
  write_string(dir / "in" / "notes.partial", "of the source");
  for (const char* leftover :
       {".old.json.partial", "weights/.old.safetensors.partial", "templates/.old.jinja.partial"}) {
    write_string(dir / "out" / leftover, "x");
  }
  const std::set<std::string> others = {"elsewhere/.old.partial", "templates/inner/.old.partial"};
  for (const std::string& other : others) write_string(dir / "out" / other, "x");
  const Outcome run = convert(dir, "quantize");
  ASSERT_EQ(run.status, 0) << run.err << "leftovers alone count as an empty directory";
  std::set<std::string> expected = {"config.json",       "model.safetensors.index.json",
                                    "notes.partial",     "templates/chat.jinja",
                                    "weights/" + kFirst, "weights/" + kSecond};
  expected.insert(others.begin(), others.end());
  EXPECT_EQ(listing(dir / "out"), expected);

  write_string(dir / "other" / "notes.partial", "of the user");
  const Outcome refused = run_octavo({"quantize", (dir / "in").string(), (dir / "other").string()});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(only_line(refused), HasSubstr("is not empty"));
}

// A folder that this run writes to may be where another run was cut off.
TEST(Directories, AnotherRunsFolderKeepsWhatItNeeds) {
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", bf16_weight(kSquare, 1)}}, kPlainConfig);
  write_string(dir / "in" / "inner" / "chat.jinja", "x");
  write_string(dir / "out" / "inner" / ".octavo-resume.jsonl.partial", "x");
  write_string(dir / "out" / "inner" / ".model.safetensors.partial", "x");
  ASSERT_EQ(convert(dir, "quantize").status, 0);
  EXPECT_EQ(listing(dir / "out"),
            (std::set<std::string>{"config.json", "model.safetensors", "inner/chat.jinja",
                                   "inner/.octavo-resume.jsonl.partial",
                                   "inner/.model.safetensors.partial"}));
}

TEST(Directories, SourceIsNeverTheDestination) {
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", bf16_weight(kSquare, 1)}}, kPlainConfig);
  fs::create_directory_symlink(dir / "in", dir / "link");
  const Bytes before = read_bytes(dir / "in" / "model.safetensors");
  for (const char* destination : {"in", "link", "in/../in", "in/inner"}) {
    const Outcome run = run_octavo(
        {"quantize", (dir / "in").string(), (dir / destination).string(), "--overwrite"});
    EXPECT_EQ(run.status, 2) << destination;
    EXPECT_THAT(only_line(run), HasSubstr("input directory"));
  }
  EXPECT_EQ(listing(dir / "in"), (std::set<std::string>{"model.safetensors", "config.json"}));
  EXPECT_EQ(read_bytes(dir / "in" / "model.safetensors"), before);
}

}  // namespace
}  // namespace octavo::tests
