// DEQ cases about what a dequantized directory holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <set>

#include "octavo/base/machine.h"
#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Extent kSquare{256, 256};

void add_fp8(Tensors& tensors, const std::string& module, const Extent& matrix,
             std::uint64_t seed) {
  Fp8Weight weight = fp8_weight(matrix, seed);
  tensors[module + ".weight"] = std::move(weight.codes);
  tensors[module + ".weight_scale_inv"] = std::move(weight.scales);
}

std::set<std::string> names_of(const Tensors& tensors) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) names.insert(name);
  return names;
}

std::set<std::string> without_scales(const Tensors& tensors) {
  std::set<std::string> names = names_of(tensors);
  std::erase_if(names, [](const std::string& name) { return name.ends_with("_scale_inv"); });
  return names;
}

void expect_no_fp8(const Tensors& tensors) {
  for (const auto& [name, tensor] : tensors) EXPECT_FALSE(tensor.dtype.starts_with("F8")) << name;
}

TEST(Deq07, EveryTensorOfAnIndexerModelArrives) {
  const TempDir dir;
  std::map<std::string, Tensors> files;
  for (int layer = 0; layer < 2; ++layer) {
    Tensors& tensors = files["model-0000" + std::to_string(layer + 1) + "-of-00002.safetensors"];
    const std::string at = "model.layers." + std::to_string(layer);
    const std::uint64_t seed = 700 + 10 * static_cast<std::uint64_t>(layer);
    add_fp8(tensors, at + ".self_attn.indexer.wq_b", kSquare, seed);
    add_fp8(tensors, at + ".self_attn.indexer.wk", {128, 256}, seed + 1);
    add_fp8(tensors, at + ".self_attn.kv_a_proj_with_mqa", {192, 256}, seed + 2);
    add_fp8(tensors, at + ".mlp.gate_proj", kSquare, seed + 3);
    tensors[at + ".self_attn.indexer.k_norm.weight"] = bf16_weight({1, 128}, seed + 4);
    tensors[at + ".self_attn.indexer.k_norm.bias"] = bf16_weight({1, 128}, seed + 5);
    tensors[at + ".self_attn.indexer.weights_proj.weight"] = bf16_weight({64, 256}, seed + 6);
    tensors[at + ".input_layernorm.weight"] = bf16_weight({1, 256}, seed + 7);
  }
  write_model(dir / "in", files, kFp8Config);
  const Outcome run =
      run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string(), "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.json().at("dequantized"), 8);
  EXPECT_EQ(run.json().at("kept"), 8);
  EXPECT_EQ(run.json().at("dropped"), 8);

  const Tensors before = read_model(dir / "in").tensors;
  const Model after = read_model(dir / "out");  // holds the index against the files
  EXPECT_EQ(after.files.size(), 2u);
  EXPECT_EQ(names_of(after.tensors), without_scales(before));
  expect_no_fp8(after.tensors);

  const Outcome text = run_octavo({"dequantize", (dir / "in").string(), (dir / "out2").string()});
  EXPECT_THAT(text.out, AllOf(HasSubstr("dequantized 8 weights"), HasSubstr("8 tensors"),
                              HasSubstr("8 scales")));
}

TEST(Deq09, ConfigLosesQuantizationAndNothingElse) {
  // Number spellings, order and white space are the source's own.
  const std::string quantization =
      R"("quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]})";
  struct Case {
    std::string before;
    std::string after;
  };
  const std::vector<Case> cases = {
      {"{\n  \"b\": 1e-06,\n  " + quantization +
           ",\n  \"torch_dtype\": \"float16\",\n  \"a\": [1,  2]\n}\n",
       "{\n  \"b\": 1e-06,\n  \"torch_dtype\": \"bfloat16\",\n  \"a\": [1,  2]\n}\n"},
      {"{\n  " + quantization +
           ",\n  \"dtype\": \"bfloat16\", \"x\": {\"quantization_config\": 1}\n}",
       "{\n  \"dtype\": \"bfloat16\", \"x\": {\"quantization_config\": 1}\n}"},
      {"{\"torch_dtype\":\"float8_e4m3fn\",\"z\":\"\\u00e9 }\"," + quantization + "}",
       "{\"torch_dtype\":\"bfloat16\",\"z\":\"\\u00e9 }\"}"},
  };
  for (const Case& c : cases) {
    const TempDir dir;
    Tensors tensors;
    add_fp8(tensors, "a", kSquare, 91);
    write_model(dir / "in", tensors, c.before);
    const Outcome run = run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string()});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(read_string(dir / "out" / "config.json"), c.after);
  }
}

TEST(Deq09, DtypeIsAddedWhereTheConfigHasNone) {
  const TempDir dir;
  Tensors tensors;
  add_fp8(tensors, "a", kSquare, 92);
  write_model(dir / "in", tensors,
              "{\n  \"b\": 1,\n  \"quantization_config\": {\"quant_method\": \"fp8\"}\n}\n");
  ASSERT_EQ(run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string()}).status, 0);
  EXPECT_EQ(read_string(dir / "out" / "config.json"),
            "{\n  \"b\": 1,\n  \"torch_dtype\": \"bfloat16\"\n}\n");
}

TEST(Deq10, IndexOfTheNewShards) {
  const TempDir dir;
  std::map<std::string, Tensors> files;
  for (std::uint64_t i = 0; i < 10; ++i) {
    Tensors& tensors =
        files[i < 5 ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors"];
    add_fp8(tensors, "model.layers." + std::to_string(i) + ".mlp.up_proj", kSquare, 100 + i);
  }
  write_model(dir / "in", files, kFp8Config);
  // A dequantized weight takes 128 KiB: two a shard, five shards.
  const Outcome run = run_octavo(
      {"dequantize", (dir / "in").string(), (dir / "out").string(), "--max-shard-size", "300KB"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Model after = read_model(dir / "out");
  EXPECT_EQ(after.files.size(), 5u);
  EXPECT_EQ(names_of(after.tensors), without_scales(read_model(dir / "in").tensors));
  for (const auto& [file, tensors] : after.files) EXPECT_EQ(tensors.size(), 2u) << file;
  const auto index =
      nlohmann::json::parse(read_string(dir / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(index.at("metadata").at("total_size"), 10 * 2 * 256 * 256);
  EXPECT_EQ(index.at("weight_map").size(), 10u);
}

TEST(Deq12, MultiTokenPredictionLayerIsKept) {
  const TempDir dir;
  const std::string config =
      R"({"num_hidden_layers": 2, "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16",
 "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";
  Tensors tensors;
  for (int layer = 0; layer < 3; ++layer) {
    add_fp8(tensors, "model.layers." + std::to_string(layer) + ".mlp.up_proj", kSquare,
            120 + static_cast<std::uint64_t>(layer));
  }
  const std::string mtp = "model.layers.2.";
  add_fp8(tensors, mtp + "eh_proj", {256, 512}, 124);
  tensors[mtp + "enorm.weight"] = bf16_weight({1, 256}, 125);
  tensors[mtp + "hnorm.weight"] = bf16_weight({1, 256}, 126);
  tensors[mtp + "shared_head.norm.weight"] = bf16_weight({1, 256}, 127);
  tensors[mtp + "shared_head.head.weight"] = bf16_weight({512, 256}, 128);
  write_model(dir / "in", tensors, config);

  const Outcome wide = run_octavo({"dequantize", (dir / "in").string(), (dir / "wide").string()});
  ASSERT_EQ(wide.status, 0) << wide.err;
  const Tensors after = read_model(dir / "wide").tensors;
  EXPECT_EQ(names_of(after), without_scales(tensors));
  EXPECT_EQ(after.at(mtp + "eh_proj.weight"), as_bf16(fp8_weight({256, 512}, 124)));
  for (const char* kept :
       {"enorm.weight", "hnorm.weight", "shared_head.norm.weight", "shared_head.head.weight"}) {
    EXPECT_EQ(after.at(mtp + kept), tensors.at(mtp + kept)) << kept;
  }

  const Outcome narrow =
      run_octavo({"quantize", (dir / "wide").string(), (dir / "narrow").string()});
  ASSERT_EQ(narrow.status, 0) << narrow.err;
  const Tensors quantized = read_model(dir / "narrow").tensors;
  EXPECT_EQ(without_scales(quantized), names_of(after));
  EXPECT_EQ(quantized.at(mtp + "mlp.up_proj.weight").dtype, "F8_E4M3");
}

TEST(Deq13, EveryCodeTimesManyScalesRoundedOnce) {
  const TempDir dir;
  // 1 x 1 blocks: every code meets a scale of its own, many of them on the edge between two BF16
  // values.
  const Extent matrix{64, 254};
  Bytes codes;
  for (std::uint64_t i = 0; i < matrix.count(); ++i) {
    const auto code = static_cast<std::uint8_t>(i % 254);
    codes.push_back(
        static_cast<std::uint8_t>(code < 0x7F ? code : code + 1));  // all but 0x7F and 0xFF
  }
  std::vector<float> scales = distinct_scales(matrix.count());
  for (std::uint64_t i = 0; i < scales.size(); i += 3)
    scales[i] = 1.0f + static_cast<float>(i % 512) / 512.0f;  // 9 bits
  const std::vector<float> values = dequantize(codes, Fp8::e4m3fn, matrix, scales, 1, 1);
  write_model(dir / "in",
              {{"a.weight", {"F8_E4M3", {64, 254}, codes}},
               {"a.weight_scale_inv", make_tensor("F32", {64, 254}, scales)}},
              R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [1, 1]}})");
  for (const char* dtype : {"bf16", "f16", "f32"}) {
    const Outcome run = run_octavo({"dequantize", (dir / "in").string(), (dir / "out").string(),
                                    "--dtype", dtype, "--overwrite"});
    ASSERT_EQ(run.status, 0) << run.err;
    std::string tag(dtype);
    for (char& c : tag) c = static_cast<char>(std::toupper(c));
    EXPECT_TRUE(read_model(dir / "out").tensors.at("a.weight") ==
                make_tensor(tag, {64, 254}, values))
        << dtype;
  }
}

TEST(Deq13, AllAllowedCoresAreUsed) {
  const TempDir dir;
  Tensors tensors;
  add_fp8(tensors, "a", kSquare, 131);
  write_model(dir / "in", tensors, kFp8Config);
  const auto threads = [&](const char* before) -> int {
    const Outcome run = run_octavo(
        {"dequantize", (dir / "in").string(), (dir / "out").string(), "--json", "--overwrite"},
        before);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.json().at("threads");
  };
  EXPECT_EQ(threads(""), allowed_threads().threads);

  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  int first = 0;
  while (!CPU_ISSET(first, &set)) ++first;
  EXPECT_EQ(threads(("taskset -c " + std::to_string(first) + " ").c_str()), 1);
}

TEST(Deq19, Fp8IsInputToEveryCommand) {
  const TempDir dir;
  Tensors tensors;
  add_fp8(tensors, "model.layers.0.mlp.up_proj", kSquare, 191);
  add_fp8(tensors, "model.layers.1.mlp.up_proj", kSquare, 192);
  tensors["model.norm.weight"] = bf16_weight({1, 256}, 193);
  write_model(dir / "in", tensors, kFp8Config);
  const std::string in = (dir / "in").string();

  const Outcome inspected = run_octavo({"inspect", in, "--json"});
  ASSERT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_EQ(inspected.json().at("tensors").size(), 5u);
  EXPECT_EQ(inspected.json().at("summary").at("fp8_weights"), 2);
  EXPECT_EQ(inspected.json().at("summary").at("unpaired"), 0);
  const Outcome text = run_octavo({"inspect", in});
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("2 quantized weights, 2 scales, 0 unpaired"),
                              HasSubstr("blocks of 128x128")));

  EXPECT_EQ(run_octavo({"dequantize", in, "--plan"}).status, 0);
  EXPECT_EQ(run_octavo({"quantize", in, (dir / "again").string(), "--requantize"}).status, 0);
  EXPECT_EQ(read_model(dir / "again").tensors.at("model.layers.0.mlp.up_proj.weight").dtype,
            "F8_E4M3");
}

}  // namespace
}  // namespace octavo::tests
