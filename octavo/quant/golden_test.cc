// Against what other programs computed: tests/golden/checkpoints/make_golden.py.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "octavo/base/ceil_div.h"
#include "octavo/base/json.h"
#include "octavo/quant/block.h"
#include "octavo/quant/quant_testing.h"

namespace octavo {
namespace {

std::string read_file(const std::string& name) {
  std::ifstream file(OCTAVO_GOLDEN_DIR "/checkpoints/" + name, std::ios::binary);
  EXPECT_TRUE(file) << name << " is missing";
  return {std::istreambuf_iterator<char>(file), {}};
}

struct GoldenTensor {
  std::string dtype;
  std::vector<std::size_t> shape;
  std::string bytes;
};

// The golden file, read here without the library's reader.
class GoldenFile {
 public:
  GoldenFile() : file_(read_file("golden_quantize.safetensors")) {
    std::uint64_t length = 0;
    std::memcpy(&length, file_.data(), 8);
    header_ = Json::parse(file_.substr(8, length));
    data_ = 8 + length;
  }
  GoldenTensor operator[](const std::string& name) const {
    const Json& entry = header_.at(name);
    const auto offsets = entry.at("data_offsets").get<std::vector<std::size_t>>();
    return {entry.at("dtype"), entry.at("shape"),
            file_.substr(data_ + offsets[0], offsets[1] - offsets[0])};
  }

 private:
  std::string file_;
  Json header_;
  std::size_t data_ = 0;
};

TEST(QuantizeGolden, CodesScalesAndDequantizedValuesToTheBit) {
  const GoldenFile golden;
  const Json cases = Json::parse(read_file("golden_quantize.json")).at("cases");
  ASSERT_GE(cases.size(), 1u);
  for (const Json& c : cases) {
    const std::string name = c.at("name");
    SCOPED_TRACE(name);
    const GoldenTensor tensor = golden[name + ".source"];
    const Format format = tensor.dtype == "F32"   ? Format::f32
                          : tensor.dtype == "F16" ? Format::f16
                                                  : Format::bf16;
    testing::Source source(format, tensor.shape.at(0), tensor.shape.at(1));
    ASSERT_EQ(source.bytes.size(), tensor.bytes.size());
    std::memcpy(source.bytes.data(), tensor.bytes.data(), tensor.bytes.size());

    BlockRecipe recipe;
    recipe.block = {c.at("block").at(0), c.at("block").at(1)};
    recipe.rule = rule_from_name(c.at("rule").get<std::string>()).value();
    recipe.scale_fmt = scale_format_from_name(c.at("scale_fmt").get<std::string>()).value();
    std::string codes(source.rows * source.cols, '\0');
    std::vector<float> scales(ceil_div(source.rows, recipe.block.rows) *
                              ceil_div(source.cols, recipe.block.cols));
    ASSERT_FALSE(quantize_blocks(kernels::cast_kernels(), source.view(), recipe,
                                 {reinterpret_cast<std::uint8_t*>(codes.data()), source.cols},
                                 scales, false));
    EXPECT_EQ(codes, golden[name + ".codes"].bytes);

    const GoldenTensor scale = golden[name + ".scale"];
    std::string stored;
    for (const float s : scales) {
      if (scale.dtype == "F8_E8M0") {
        stored += static_cast<char>(ue8m0_exact(s).value());
      } else {
        stored.append(reinterpret_cast<const char*>(&s), sizeof s);
      }
    }
    EXPECT_EQ(scale.dtype, recipe.scale_fmt == ScaleFormat::ue8m0 ? "F8_E8M0" : "F32");
    EXPECT_EQ(stored, scale.bytes);

    std::string dequantized(codes.size() * 2, '\0');
    dequantize_blocks(kernels::cast_kernels(),
                      {Format::e4m3fn, reinterpret_cast<const std::uint8_t*>(codes.data()),
                       source.cols, 0, 0, source.rows, source.cols},
                      recipe.block, scales,
                      {Format::bf16, dequantized.data(), source.cols, false, false, nullptr});
    EXPECT_EQ(dequantized, golden[name + ".dequantized"].bytes);
  }
}

}  // namespace
}  // namespace octavo
