// Each defect that `verify` can find, in a directory that has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "octavo/checkpoint/defect.h"
#include "tests/support/broken.h"
#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr Extent kSquare{128, 128};
const std::string kName = "model.safetensors";
const std::string kIndex = "model.safetensors.index.json";

struct Broken {
  DefectCode code;
  std::function<void(const fs::path& directory)> build;
  bool full = false;
};

std::function<void(const fs::path&)> with_file(std::string text) {
  return [text](const fs::path& directory) { write_string(directory / kName, text); };
}

std::function<void(const fs::path&)> with_header(const std::string& entries, std::size_t data) {
  return with_file(tensor_file_text("{" + entries + "}", std::string(data, 'x')));
}

std::function<void(const fs::path&)> with_tensors(Tensors tensors, std::string config = "") {
  return [=](const fs::path& directory) { write_model(directory, tensors, config); };
}

// An index over a file with the tensors a and b.
std::function<void(const fs::path&)> with_index(std::string text) {
  return [=](const fs::path& directory) {
    write_tensor_file(directory / "x.safetensors",
                      {{"a", bf16_weight({1, 8}, 1)}, {"b", bf16_weight({1, 8}, 1)}});
    write_string(directory / kIndex, text);
  };
}

// An FP8 weight with these scales.
Tensors fp8_with(const Tensor& scales, const std::string& scale_name = "m.weight_scale_inv") {
  return {{"m.weight", fp8_weight(kSquare, 1).codes}, {scale_name, scales}};
}

Tensor one_scale(float value) { return make_tensor("F32", {1, 1}, std::vector<float>{value}); }

std::vector<Broken> broken_files() {
  using enum DefectCode;
  const std::string a = header_entry("a", "U8", "[4]", "[0,4]");
  return {
      {unreadable,
       [](const fs::path& directory) {
         fs::create_directories(directory / "x.safetensors");
         write_string(directory / kIndex, R"({"weight_map": {"a": "x.safetensors"}})");
       }},
      {lfs_pointer, with_file("version https://git-lfs.github.com/spec/v1\nsize 5\n")},
      {truncated, with_header(a, 3)},
      {header_too_small, with_file("1234567")},
      {header_too_large, with_file(length_bytes(std::uint64_t{1} << 40) + "{}")},
      {header_over_limit,
       [](const fs::path& directory) {
         write_string(directory / kName, length_bytes(100'000'001) + "{");
         fs::resize_file(directory / kName, 100'000'009);
       }},
      {header_syntax, with_file(tensor_file_text("{\"a\":}", ""))},
      {duplicate_key, with_header(a + "," + a, 4)},
      {tensor_info, with_header(R"("a":{"dtype":"U8","shape":[4]})", 4)},
      {offsets, with_header(header_entry("a", "U8", "[4]", "[4,0]"), 4)},
      {unknown_dtype, with_header(header_entry("a", "F9", "[4]", "[0,4]"), 4)},
      {size_overflow, with_header(header_entry("a", "F4", "[3]", "[0,2]"), 2)},
      {size_mismatch, with_header(header_entry("a", "U8", "[5]", "[0,4]"), 4)},
      {overlap, with_header(a + "," + header_entry("b", "U8", "[4]", "[2,6]"), 6)},
      {hole, with_header(header_entry("a", "U8", "[4]", "[2,6]"), 6)},
      {trailing_bytes, with_header(a, 5)},
  };
}

std::vector<Broken> broken_directories() {
  using enum DefectCode;
  const Tensors wide = {{"a.weight", bf16_weight(kSquare, 1)}};
  return {
      {broken_link,
       [=](const fs::path& directory) {
         write_model(directory, wide, "");
         fs::create_symlink("../blobs/none", directory / "tokenizer.json");
       }},
      {no_weights,
       [](const fs::path& directory) { write_string(directory / "config.json", "{}"); }},
      {ambiguous_weights,
       [=](const fs::path& directory) {
         write_tensor_file(directory / "a.safetensors", wide);
         write_tensor_file(directory / "b.safetensors", wide);
       }},
      {missing_file, with_index(R"({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}})")},
      {index_syntax, with_index("[]")},
      {index_path, with_index(R"({"weight_map": {"a": "../x.safetensors"}})")},
      {index_stale,
       [=](const fs::path& directory) {
         write_tensor_file(directory / "model-00001-of-00001.safetensors", wide);
         write_string(directory / kIndex,
                      R"({"weight_map": {"a.weight": "model-00001-of-00002.safetensors"}})");
       }},
      {index_wrong_file,
       [=](const fs::path& directory) {
         write_tensor_file(directory / "y.safetensors", {{"c", bf16_weight({1, 8}, 1)}});
         with_index(
             R"({"weight_map": {"a": "x.safetensors", "b": "y.safetensors", "c": "y.safetensors"}})")(
             directory);
       }},
      {index_missing_tensor,
       with_index(
           R"({"weight_map": {"a": "x.safetensors", "b": "x.safetensors", "c": "x.safetensors"}})")},
      {index_unlisted_tensor, with_index(R"({"weight_map": {"a": "x.safetensors"}})")},
      {duplicate_tensor,
       [=](const fs::path& directory) {
         write_tensor_file(directory / "y.safetensors",
                           {{"a", bf16_weight({1, 8}, 1)}, {"c", bf16_weight({1, 8}, 1)}});
         with_index(
             R"({"weight_map": {"a": "x.safetensors", "b": "x.safetensors", "c": "y.safetensors"}})")(
             directory);
       }},
      {config_syntax, with_tensors(wide, "[]")},
      {config_block_size,
       with_tensors(wide, R"({"quantization_config": {"weight_block_size": [0, 1]}})")},
      {config_value, with_tensors(wide, R"({"vocab_size": 0})")},
      {config_claims_quantized, with_tensors(wide, std::string(kFp8Config))},
      {config_lacks_quantization, with_tensors(fp8_with(one_scale(1)), std::string(kPlainConfig))},
      {config_quantization,
       with_tensors(fp8_with(e8m0_tensor({1, 1}, {0.5f})),
                    R"({"quantization_config": {"quant_method": "fp8", "scale_fmt": "float"}})")},
      {skip_entry_syntax,
       with_tensors(fp8_with(one_scale(1)),
                    R"({"quantization_config": {"quant_method": "fp8", "ignore": ["re:("]}})")},
  };
}

std::vector<Broken> broken_tensors() {
  using enum DefectCode;
  const Tensors unpaired = {{"m.weight", fp8_weight(kSquare, 1).codes}};
  Tensors differ = fp8_with(one_scale(1));
  differ["m.weight_scale"] = one_scale(2);
  Tensors raw = fp8_with(one_scale(1));
  raw["m.weight"].dtype = "U8";
  Tensors integers = fp8_with(one_scale(1));
  integers["m.weight"].dtype = "I8";
  Tensors nan = fp8_with(one_scale(1));
  nan["m.weight"].bytes[3] = 0xFF;
  const float inf = std::numeric_limits<float>::infinity();
  const auto wide = [](float value) {
    return Tensors{{"a", make_tensor("F32", {2}, std::vector<float>{1, value})}};
  };
  return {
      {missing_scale, with_tensors(unpaired)},
      {unused_scale, with_tensors({{"m.weight_scale_inv", one_scale(1)}})},
      {scale_shape,
       with_tensors(fp8_with(make_tensor("F32", {3, 1}, std::vector<float>(3, 1.0f))))},
      {scale_dtype, with_tensors(fp8_with({"I32", {1, 1}, {1, 0, 0, 0}}))},
      {scales_differ, with_tensors(differ)},
      {raw_bytes, with_tensors(raw)},
      {unsupported_format, with_tensors(integers)},
      {scale_nan, with_tensors(fp8_with(one_scale(std::nanf(""))))},
      {scale_infinite, with_tensors(fp8_with(one_scale(-inf)))},
      {scale_zero, with_tensors(fp8_with(one_scale(-0.0f)))},
      {scale_negative, with_tensors(fp8_with(one_scale(-1)))},
      {scale_not_power_of_two,
       with_tensors(fp8_with(one_scale(0.75f)),
                    R"({"quantization_config": {"quant_method": "fp8", "scale_fmt": "ue8m0"}})")},
      {nan_code, with_tensors(nan), true},
      {nan_value, with_tensors(wide(std::nanf(""))), true},
      {infinite_value, with_tensors(wide(-inf)), true},
  };
}

std::vector<Broken> all_broken() {
  std::vector<Broken> all = broken_files();
  for (Broken& broken : broken_directories()) all.push_back(std::move(broken));
  for (Broken& broken : broken_tensors()) all.push_back(std::move(broken));
  return all;
}

TEST(VerifyCodes, EachIsFoundWhereItIsAndTellsWhatToFetch) {
  for (const Broken& broken : all_broken()) {
    const DefectInfo& info = defect_info(broken.code);
    SCOPED_TRACE(info.name);
    const TempDir dir;
    broken.build(dir / "in");
    const auto state = state_of(dir / "in");
    const Json report = verify_report(
        dir / "in", 3,
        broken.full ? std::vector<std::string>{"--full"} : std::vector<std::string>{});
    ASSERT_EQ(codes_of(report.at("defects")), std::vector<std::string>{std::string(info.name)})
        << report;
    const Json& defect = report.at("defects").at(0);
    const Json files = info.fetch_again ? Json::array({defect.at("file")}) : Json::array();
    EXPECT_EQ(report.at("fetch_again"), files);
    if (broken.full) {
      EXPECT_EQ(verify_report(dir / "in", 0).at("defects"), Json::array());
    }

    // For a person: that line, what to fetch, and the verdict at the end.
    std::vector<std::string> arguments = {"verify", (dir / "in").string()};
    if (broken.full) arguments.emplace_back("--full");
    const Outcome text = run_octavo(arguments);
    EXPECT_EQ(text.status, 3);
    EXPECT_EQ(text.err, "");
    EXPECT_THAT(text.out, ::testing::HasSubstr(std::string(info.name)));
    std::string message = defect.at("message");
    const std::string prefix = (dir / "in" / "").string();
    if (message.starts_with(prefix)) message.erase(0, prefix.size());
    EXPECT_THAT(text.out, ::testing::HasSubstr("  " + message + "\n"));
    EXPECT_THAT(text.out, ::testing::EndsWith("NOT SOUND: 1 defect\n"));
    EXPECT_EQ(text.out.find("fetch again: ") != std::string::npos, info.fetch_again);
    EXPECT_EQ(state_of(dir / "in"), state);
  }
}

TEST(VerifyCodes, NoneIsLeftOut) {
  std::vector<DefectCode> built;
  for (const Broken& broken : all_broken()) built.push_back(broken.code);
  std::vector<DefectCode> defects;
  for (const DefectInfo& info : all_defects()) {
    if (info.code < DefectCode::other_weights) defects.push_back(info.code);
  }
  EXPECT_EQ(built, defects);
}

}  // namespace
}  // namespace octavo::tests
