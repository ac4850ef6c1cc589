// CFG cases about what is in the files: scales under every name and shape, fused matrices, splits
// over devices, the method.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Extent kSquare{256, 256};

Tensors dequantized(const Tensors& tensors, std::string_view config) {
  const TempDir dir;
  write_model(dir / "in", tensors, config);
  const Outcome run = run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string()});
  EXPECT_EQ(run.status, 0) << run.err;
  return run.status == 0 ? read_model(dir / "out").tensors : Tensors{};
}

nlohmann::json entry_of(const nlohmann::json& list, const std::string& name) {
  for (const auto& entry : list) {
    if (entry.at("name") == name) return entry;
  }
  ADD_FAILURE() << name << " is not listed";
  return {};
}

Tensor wide(const Extent& matrix, const std::vector<float>& values) {
  return make_tensor("BF16", {matrix.rows, matrix.cols}, values);
}

TEST(Cfg04, OneConfigGroupWhateverItsNameAndBothScaleShapes) {
  const Extent matrix{256, 128};
  const Bytes codes = random_codes(matrix, Fp8::e4m3fn, 41);
  const std::vector<float> scales = values_of(make_tensor("BF16", {256}, distinct_scales(256)));
  const Tensors expected = {
      {"a.weight", wide(matrix, dequantize(codes, Fp8::e4m3fn, matrix, scales, 1, 128))}};
  const std::string config = R"({"quantization_config": {"quant_method": "compressed-tensors",
    "format": "float-quantized", "ignore": [], "config_groups": {"FP8_DYNAMIC": {
      "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}})";
  for (const Dims& shape : {Dims{256, 1}, Dims{256}}) {
    SCOPED_TRACE(::testing::PrintToString(shape));
    const Tensors tensors = {{"a.weight", {"F8_E4M3", {256, 128}, codes}},
                             {"a.weight_scale", make_tensor("BF16", shape, scales)}};
    EXPECT_EQ(dequantized(tensors, config), expected);

    const TempDir dir;
    write_model(dir / "in", tensors, config);
    const nlohmann::json inspected =
        run_octavo({"inspect", (dir / "in").string(), "--json"}).json();
    EXPECT_EQ(inspected.at("summary").at("config").at("strategy"), "channel");
    EXPECT_TRUE(inspected.at("summary").at("config_facts").empty());
    const nlohmann::json scale = entry_of(inspected.at("tensors"), "a.weight").at("scale");
    EXPECT_EQ(scale.at("block"), (Dims{1, 128}));
    EXPECT_EQ(scale.at("grid"), (Dims{256, 1}));
  }
}

TEST(Cfg05, TheShapeOfAScaleCountsAndNotItsName) {
  const std::string module = "model.layers.0.self_attn.q_proj";
  const Fp8Weight blocks = fp8_weight(kSquare, 51);
  EXPECT_EQ(dequantized(
                {{module + ".weight", blocks.codes}, {module + ".weight_scale_inv", blocks.scales}},
                kFp8Config),
            (Tensors{{module + ".weight", as_bf16(blocks)}}));

  const std::vector<float> scale = {0.0371f};
  const Bytes codes = random_codes(kSquare, Fp8::e4m3fn, 52);
  const Tensor expected =
      wide(kSquare, dequantize(codes, Fp8::e4m3fn, kSquare, scale, kSquare.rows, kSquare.cols));
  for (const Dims& shape : {Dims{}, Dims{1}}) {
    EXPECT_EQ(dequantized({{module + ".weight", {"F8_E4M3", {256, 256}, codes}},
                           {module + ".weight_scale_inv", make_tensor("F32", shape, scale)}},
                          R"({"quantization_config": {"quant_method": "fp8"}})"),
              (Tensors{{module + ".weight", expected}}))
        << ::testing::PrintToString(shape);
  }
}

TEST(Cfg06, OneScalarForAFusedMatrix) {
  const Extent matrix{768, 256};
  const std::string module = "model.layers.0.self_attn.qkv_proj";
  const std::vector<float> scale = {0.0123f};
  const Bytes codes = random_codes(matrix, Fp8::e4m3fn, 61);
  const Tensor expected =
      wide(matrix, dequantize(codes, Fp8::e4m3fn, matrix, scale, matrix.rows, matrix.cols));
  EXPECT_EQ(dequantized({{module + ".weight", {"F8_E4M3", {768, 256}, codes}},
                         {module + ".weight_scale", make_tensor("F32", {}, scale)}},
                        R"({"quantization_config": {"quant_method": "fp8",
                            "activation_scheme": "dynamic"}})"),
            (Tensors{{module + ".weight", expected}}));
}

TEST(Cfg07, FusedAndSeparateGateAndUpKeepTheirNames) {
  const std::string mlp = "model.layers.0.mlp.";
  const Fp8Weight gate = fp8_weight(kSquare, 71);
  const Fp8Weight up = fp8_weight(kSquare, 72);
  const auto joined = [](const Tensor& a, const Tensor& b) {
    Tensor both{a.dtype, {a.shape[0] + b.shape[0], a.shape[1]}, a.bytes};
    both.bytes.insert(both.bytes.end(), b.bytes.begin(), b.bytes.end());
    return both;
  };
  const Tensors separate = {{mlp + "gate_proj.weight", gate.codes},
                            {mlp + "gate_proj.weight_scale_inv", gate.scales},
                            {mlp + "up_proj.weight", up.codes},
                            {mlp + "up_proj.weight_scale_inv", up.scales}};
  const Tensors fused = {{mlp + "gate_up_proj.weight", joined(gate.codes, up.codes)},
                         {mlp + "gate_up_proj.weight_scale_inv", joined(gate.scales, up.scales)}};
  EXPECT_EQ(dequantized(separate, kFp8Config), (Tensors{{mlp + "gate_proj.weight", as_bf16(gate)},
                                                        {mlp + "up_proj.weight", as_bf16(up)}}));
  const Tensors wide_fused = {{mlp + "gate_up_proj.weight", joined(as_bf16(gate), as_bf16(up))}};
  EXPECT_EQ(dequantized(fused, kFp8Config), wide_fused);

  // And back: the name is no part of another name, and gets its scale.
  const TempDir dir;
  write_model(dir / "in", wide_fused, kPlainConfig);
  const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()});
  ASSERT_EQ(run.status, 0) << run.err;
  const Tensors out = read_model(dir / "out").tensors;
  EXPECT_EQ(out.size(), 2u);
  EXPECT_EQ(out.at(mlp + "gate_up_proj.weight").dtype, "F8_E4M3");
  EXPECT_EQ(out.at(mlp + "gate_up_proj.weight_scale_inv").shape, (Dims{4, 2}));
}

// Experts of 768, a shared one of 512, as configured in the case; sparse, 4.7 MB of data each
// layer.
class Cfg12 : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto add = [&](const std::string& name, std::uint64_t rows, std::uint64_t cols) {
      tensors_.push_back({name + ".weight", "F8_E4M3", {rows, cols}, {}});
      tensors_.push_back(
          {name + ".weight_scale_inv", "F32", {(rows + 127) / 128, (cols + 127) / 128}, {}});
      data_bytes_ += rows * cols;
    };
    for (int layer = 0; layer < 2; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer) + ".";
      add(name + "self_attn.q_proj", 1024, 2048);
      add(name + "self_attn.k_proj", 512, 2048);
      add(name + "self_attn.o_proj", 2048, 1024);
      for (const char* expert : {"mlp.experts.0.", "mlp.experts.1."})
        add_mlp(add, name + expert, 768);
      add_mlp(add, name + "mlp.shared_expert.", 512);
    }
    fs::create_directories(dir_ / "in");
    write_sparse_file(dir_ / "in" / "model.safetensors", tensors_);
    write_string(dir_ / "in" / "config.json", R"({"hidden_size": 2048, "num_attention_heads": 8,
      "num_key_value_heads": 4, "head_dim": 128, "moe_intermediate_size": 768,
      "shared_expert_intermediate_size": 512,
      "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})");
  }

  template <class Add>
  static void add_mlp(Add add, const std::string& name, std::uint64_t width) {
    add(name + "gate_proj", width, 2048);
    add(name + "up_proj", width, 2048);
    add(name + "down_proj", 2048, width);
  }

  Outcome inspect(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"inspect", (dir_ / "in").string()});
    return run_octavo(arguments);
  }

  TempDir dir_;
  std::vector<SparseTensor> tensors_;
  std::uint64_t data_bytes_ = 0;
};

TEST_F(Cfg12, EachLayerSaysWhichDegreesWork) {
  const nlohmann::json plan = inspect({"--tp", "2,4,8", "--json"}).json().at("tensor_parallel");
  const auto verdicts = [&](const std::string& name) {
    std::vector<std::string> found;
    const nlohmann::json row = entry_of(plan.at("rows"), name);
    for (const auto& result : row.at("results")) found.push_back(result.at("verdict"));
    return found;
  };
  using Verdicts = std::vector<std::string>;
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
      EXPECT_EQ(verdicts(layer + "mlp.experts.1." + name + ".weight"),
                (Verdicts{"works", "blocks cut", "blocks cut"}));
      EXPECT_EQ(verdicts(layer + "mlp.shared_expert." + name + ".weight"),
                (Verdicts{"works", "works", "blocks cut"}));
    }
    for (const char* name : {"q_proj", "k_proj", "o_proj"}) {
      EXPECT_EQ(verdicts(layer + "self_attn." + name + ".weight"),
                (Verdicts{"works", "works", "works"}));
    }
  }
  const nlohmann::json expert =
      entry_of(plan.at("rows"), "model.layers.0.mlp.experts.0.up_proj.weight");
  EXPECT_EQ(expert.at("split"), "column");
  EXPECT_EQ(expert.at("results").at(1).at("shard"), 192);
  EXPECT_EQ(expert.at("results").at(1).at("reason"), "768 / 4 = 192 is no multiple of 128");
  EXPECT_EQ(plan.at("degrees"),
            nlohmann::json::parse(R"([{"degree": 2, "works": true, "refused": 0},
                                      {"degree": 4, "works": false, "refused": 12},
                                      {"degree": 8, "works": false, "refused": 18}])"));
  EXPECT_EQ(plan.at("working_degrees"), (Dims{1, 2}));
  EXPECT_EQ(plan.at("block_cutting_degrees"), (Dims{4, 8}));
}

TEST_F(Cfg12, ForPeople) {
  const Outcome run = inspect({"--tp", "2,4", "--tp", "8"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("tp 2: works everywhere"),
                    HasSubstr("tp 4: refused by 12 of 24 modules (0 do not divide, 12 cut blocks)"),
                    HasSubstr("model.layers.{0..1}.mlp.experts.{0..1}.gate_proj: 768 / 4 = 192 is "
                              "no multiple of 128"),
                    HasSubstr("mlp.shared_expert.up_proj: 512 / 8 = 64 is no multiple of 128"),
                    HasSubstr("engines that need whole blocks (vLLM, SGLang, Transformers) refuse"),
                    HasSubstr("work everywhere: 1, 2\n"), HasSubstr("cut blocks: 4, 8\n")));
}

TEST_F(Cfg12, BadDegrees) {
  for (const char* degrees : {"0", "", "2,", ",2", "x", "2;4", "-1", "65537", "2,4x", "1e3"}) {
    const Outcome run = inspect({"--tp", degrees});
    EXPECT_EQ(run.status, 2) << degrees;
    EXPECT_THAT(only_line(run), HasSubstr("--tp")) << degrees;
  }
}

// What this process and the children that it waited for have read, in bytes.
std::uint64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string key;
  std::uint64_t value = 0;
  while (file >> key >> value) {
    if (key == "rchar:") return value;
  }
  ADD_FAILURE() << "/proc/self/io has no rchar";
  return 0;
}

TEST_F(Cfg12, ReadsHeadersOnly) {
  const std::uint64_t before = bytes_read();
  const Outcome run = inspect({"--tp", "2,4,8", "--json"});
  const std::uint64_t read = bytes_read() - before;
  ASSERT_EQ(run.status, 0) << run.err;
  const std::uint64_t header = fs::file_size(dir_ / "in" / "model.safetensors") - data_bytes_;
  EXPECT_GE(read, header + run.out.size()) << "what the child reads is counted";
  // The smallest weight has 1 MiB; what libraries and the shell read to start is far below half of
  // that.
  EXPECT_LT(read, header + run.out.size() + run.err.size() + (512 << 10));
  EXPECT_GT(data_bytes_, std::uint64_t{20} << 20);
}

TEST(Cfg13, AnotherMethodThanTheConfigs) {
  const TempDir dir;
  const Fp8Weight weight = fp8_weight(kSquare, 131);
  write_model(dir / "in", {{"a.weight", weight.codes}, {"a.weight_scale_inv", weight.scales}},
              kFp8Config);
  const std::string in = (dir / "in").string();
  const std::string line = "found quant_method fp8 in " + in +
                           "/config.json, asked for compressed-tensors; supported: fp8, "
                           "compressed-tensors, modelopt, mxfp8, fbgemm_fp8";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"inspect", in}, {"dequantize", in, (dir / "out").string()}}) {
    std::vector<std::string> other = arguments;
    other.insert(other.end(), {"--quant-method", "compressed-tensors"});
    const Outcome refused = run_octavo(other);
    EXPECT_EQ(refused.status, 2);
    EXPECT_EQ(only_line(refused), line);
    EXPECT_FALSE(fs::exists(dir / "out"));
    std::vector<std::string> same = arguments;
    same.insert(same.end(), {"--quant-method", "fp8"});
    EXPECT_EQ(run_octavo(same).status, 0);
  }
}

TEST(Cfg13, ModelOpt) {
  const TempDir dir;
  const Fp8Weight weight = fp8_weight(kSquare, 132);
  write_model(
      dir / "in",
      {{"a.weight", weight.codes}, {"a.weight_scale", make_tensor("F32", {}, std::vector{0.5f})}},
      kPlainConfig);
  write_string(dir / "in" / "hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  const std::string in = (dir / "in").string();
  const Outcome refused = run_octavo({"inspect", in, "--quant-method", "fp8"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(only_line(refused),
              HasSubstr("found quant_method modelopt in " + in +
                        "/hf_quant_config.json, asked for fp8; supported: fp8,"));
  EXPECT_EQ(run_octavo({"inspect", in, "--quant-method", "modelopt"}).status, 0);
}

TEST(Cfg13, AMethodThatIsNotRead) {
  const TempDir dir;
  write_model(dir / "in", {{"a.weight", bf16_weight(kSquare, 133)}},
              R"({"quantization_config": {"quant_method": "awq"}})");
  const std::string in = (dir / "in").string();
  const Outcome refused = run_octavo({"dequantize", in, (dir / "out").string()});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(only_line(refused),
              AllOf(HasSubstr(in + "/config.json: quant_method \"awq\""),
                    HasSubstr("supported with FP8 weights: fp8, compressed-tensors, modelopt")));
  const Outcome asked =
      run_octavo({"dequantize", in, (dir / "out").string(), "--quant-method", "awq"});
  EXPECT_EQ(asked.status, 2);
  EXPECT_THAT(only_line(asked), AllOf(HasSubstr("awq"), HasSubstr("supported: fp8")));
}

}  // namespace
}  // namespace octavo::tests
