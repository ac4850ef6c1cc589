// QNT cases about what a quantized directory holds beside the weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

constexpr Extent kSquare{256, 256};

TEST(Qnt11, SideFilesAndConfigAreCarriedOver) {
  const TempDir dir;
  // Unknown keys, an order of their own, numbers whose spelling a JSON library would change.
  const std::string head = R"({
  "zeta": {"b": [1, 2.50, 1e-06], "a": null},
  "eos_token_id": [1, 106],
    "alpha": 10000000000000000000000,
  "architectures": ["LlamaForCausalLM"])";
  const std::string tail = "\n}\n";
  write_model(dir / "in", {{"a.proj.weight", bf16_weight(kSquare, 110)}}, head + tail);
  const std::map<std::string, std::string> files = {
      {"generation_config.json", "{\"eos_token_id\": [1, 106], \"temperature\": 0.60}"},
      {"tokenizer.json", std::string("{\"model\": \"\\u0000\"}\r\n")},
      {"tokenizer_config.json", "{}"},
      {"chat_template.jinja", "{% for m in messages %}{{ m }}{% endfor %}"},
      {"modeling_new.py", "import os\n"},
      {"empty.txt", ""},
      {"binary.dat", std::string("\0\xFF\n\0", 4)},
      {"extra/deep/notes.md", "# notes\n"},
      {"extra/model.safetensors", "another model's weights, in a folder of its own"}};
  for (const auto& [name, text] : files) write_string(dir / "in" / name, text);
  const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()});
  ASSERT_EQ(run.status, 0) << run.err;
  for (const auto& [name, text] : files) EXPECT_EQ(read_string(dir / "out" / name), text) << name;

  const std::string config = read_string(dir / "out" / "config.json");
  ASSERT_TRUE(config.starts_with(head + ",\n  \"quantization_config\": {")) << config;
  EXPECT_TRUE(config.ends_with(tail));
  nlohmann::json parsed = nlohmann::json::parse(config);
  parsed.erase("quantization_config");
  EXPECT_EQ(parsed, nlohmann::json::parse(head + tail));

  // There and back again: only the dtype is added.
  ASSERT_EQ(run_octavo({"dequantize", (dir / "out").string(), (dir / "back").string()}).status, 0);
  EXPECT_EQ(read_string(dir / "back" / "config.json"),
            head + ",\n  \"torch_dtype\": \"bfloat16\"" + tail);
  for (const auto& [name, text] : files) EXPECT_EQ(read_string(dir / "back" / name), text) << name;
}

TEST(Qnt14, UnknownArchitectureAndSelectableLayout) {
  const Tensor weight = bf16_weight({200, 256}, 140);
  struct Case {
    std::vector<std::string> options;
    Recipe recipe;
    const char* scale_dtype;
  };
  const std::vector<Case> cases = {
      {{}, {}, "F32"},
      {{"--scale-fmt", "ue8m0"}, {.ue8m0 = true}, "F8_E8M0"},
      {{"--scale-fmt", "ue8m0", "--scale-dtype", "f32"}, {.ue8m0 = true}, "F32"},
      {{"--weight-block-size", "1,32", "--scale-fmt", "ue8m0"},
       {.block_rows = 1, .block_cols = 32, .ue8m0 = true},
       "F8_E8M0"},
      {{"--rule", "deepgemm"}, {.rule = Rule::deepgemm}, "F32"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c.options));
    const TempDir dir;
    write_model(dir / "in", {{"some.thing.weight", weight}},
                R"({"architectures": ["SomethingNewForCausalLM"]})");
    std::vector<std::string> arguments = {"quantize", (dir / "in").string(),
                                          (dir / "out").string()};
    arguments.insert(arguments.end(), c.options.begin(), c.options.end());
    const Outcome run = run_octavo(arguments);
    ASSERT_EQ(run.status, 0) << run.err;
    const Model model = read_model(dir / "out");
    const QuantizedTensors expected = expected_quantized(weight, c.recipe);
    EXPECT_EQ(model.tensors.at("some.thing.weight"), expected.codes);
    const Tensor& scales = model.tensors.at("some.thing.weight_scale_inv");
    EXPECT_EQ(scales.dtype, c.scale_dtype);
    EXPECT_EQ(scales.shape, expected.scales.shape);
    EXPECT_EQ(values_of(scales), values_of(expected.scales));

    // The layout is stated, with full names, and nothing beside it.
    nlohmann::json stated = {{"activation_scheme", "dynamic"},
                             {"fmt", "e4m3"},
                             {"quant_method", "fp8"},
                             {"weight_block_size", {c.recipe.block_rows, c.recipe.block_cols}}};
    if (c.recipe.ue8m0) stated["scale_fmt"] = "ue8m0";
    EXPECT_EQ(model.config.at("quantization_config"), stated);
  }
}

}  // namespace
}  // namespace octavo::tests
