// STF cases about what lies behind the header, and about counts in config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/checkpoint/conversion.h"
#include "octavo/checkpoint/verify.h"
#include "tests/support/broken.h"
#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Extent kSquare{128, 128};

// What inspect says of one tensor.
Json inspected(const fs::path& path, const std::string& name) {
  const Outcome run = run_octavo({"inspect", path.string(), "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  if (run.status != 0) return {};
  const Json listed = run.json().at("tensors");
  for (const Json& tensor : listed) {
    if (tensor.at("name") == name) return tensor;
  }
  ADD_FAILURE() << name << " is not listed";
  return {};
}

// `odd` beside a weight that each converter has something to do with: verified, listed, and there
// again to the bit.
void expect_carried_by_every_command(const NamedTensors& odd) {
  const Fp8Weight fp8 = fp8_weight(kSquare, 2);
  for (const bool quantize : {true, false}) {
    const TempDir dir;
    NamedTensors all = odd;
    if (quantize) {
      all.emplace_back("model.up_proj.weight", bf16_weight(kSquare, 1));
    } else {
      all.emplace_back("model.up_proj.weight", fp8.codes);
      all.emplace_back("model.up_proj.weight_scale_inv", fp8.scales);
    }
    write_string(dir / "in" / "model.safetensors", tensor_file_text(all));
    write_string(dir / "in" / "config.json", quantize ? kPlainConfig : kFp8Config);
    const auto state = state_of(dir / "in");
    for (const char* full : {"--all", "--full"}) {
      const Json report = verify_report(dir / "in", 0, {full});
      EXPECT_EQ(report.at("tensors"), all.size());
    }
    for (const auto& [name, tensor] : odd) {
      const Json listed = inspected(dir / "in", name);
      EXPECT_EQ(listed.at("dtype"), tensor.dtype);
      EXPECT_EQ(listed.at("shape"), Json(tensor.shape));
      EXPECT_EQ(listed.at("bytes"), tensor.bytes.size());
    }
    const Outcome run = run_octavo(
        {quantize ? "quantize" : "dequantize", (dir / "in").string(), (dir / "out").string()});
    ASSERT_EQ(run.status, 0) << run.err;
    const Tensors out = raw_tensors(dir / "out" / "model.safetensors");
    for (const auto& [name, tensor] : odd) {
      ASSERT_TRUE(out.contains(name)) << name;
      EXPECT_EQ(out.at(name), tensor) << name;
    }
    EXPECT_EQ(out.at("model.up_proj.weight").dtype, quantize ? "F8_E4M3" : "BF16");
    verify_report(dir / "out", 0, {"--full"});
    EXPECT_EQ(state_of(dir / "in"), state);
  }
}

TEST(Stf07, ExponentsAndFourBitElements) {
  expect_carried_by_every_command(
      {{"s", {"F8_E8M0", {3}, {0x7F, 0x00, 0xFE}}},
       {"w", {"F4", {2, 8}, {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE}}}});
}

TEST(Stf07, RowsOfFourBitElementsThatShareAByte) {
  const TempDir dir;
  write_string(dir / "in" / "model.safetensors",
               tensor_file_text("{" + header_entry("odd", "F4", "[2,3]", "[0,3]") + "}", "123"));
  const Json report = expect_refused(dir / "in", "size-overflow");
  EXPECT_THAT(
      report.at("defects").at(0).at("message").get<std::string>(),
      AllOf(HasSubstr("odd"), HasSubstr("F4 [2, 3]"), HasSubstr("no whole number of bytes")));
}

TEST(Stf09, EmptyTensorsAndScalars) {
  const Tensor one = make_tensor("F32", {}, std::vector<float>{2.5f});
  expect_carried_by_every_command({{"scalar", one},
                                   {"e1", {"F32", {0}, {}}},
                                   {"e2", {"BF16", {2, 0}, {}}},
                                   {"e3", {"I64", {0, 7, 3}, {}}}});
}

TEST(Stf09, AFileWithoutTensors) {
  const TempDir dir;
  write_model(
      dir / "in",
      std::map<std::string, Tensors>{{"a.safetensors", {{"a.weight", bf16_weight(kSquare, 1)}}}},
      kPlainConfig);
  write_string(dir / "alone" / "model.safetensors", tensor_file_text("{}", ""));
  const Json report = verify_report(dir / "alone", 0, {"--full"});
  EXPECT_EQ(report.at("tensors"), 0);
  EXPECT_EQ(report.at("files"), 1);
  EXPECT_EQ(run_octavo({"inspect", (dir / "alone").string()}).status, 0);
  for (const char* command : {"quantize", "dequantize"}) {
    const Outcome run = run_octavo({command, (dir / "alone").string(), (dir / command).string()});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(raw_tensors(dir / command / "model.safetensors").empty());
  }
}

TEST(Stf11, DtypesThatNobodyComputesWith) {
  const Bytes bytes = {1, 2, 3, 4, 5, 6, 7, 8};
  expect_carried_by_every_command({{"i64", {"I64", {1}, bytes}},
                                   {"f64", {"F64", {1}, bytes}},
                                   {"u16", {"U16", {2, 2}, bytes}},
                                   {"c64", {"C64", {1, 1}, bytes}},
                                   {"u64", {"U64", {1}, bytes}},
                                   {"bool", {"BOOL", {8}, bytes}}});
}

TEST(Stf08, DataAtEveryAlignment) {
  const Fp8Weight fp8 = fp8_weight(kSquare, 3);
  const NamedTensors wide = {{"u8", {"U8", {3}, {1, 2, 3}}},  // what follows is at odd places
                             {"a.weight", bf16_weight(kSquare, 1)},
                             {"b.weight", make_tensor("F32", {128, 128}, gaussian(kSquare, 2))}};
  const NamedTensors narrow = {
      {"u8", {"U8", {3}, {1, 2, 3}}}, {"c.weight_scale_inv", fp8.scales}, {"c.weight", fp8.codes}};
  const TempDir dir;
  std::string first_out[2];
  for (std::size_t remainder = 0; remainder < 8; ++remainder) {
    for (const bool quantize : {true, false}) {
      const std::string text = tensor_file_text(quantize ? wide : narrow);
      std::uint64_t length = 0;
      for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(text[i]);
      std::string header = text.substr(8, length);
      while (header.size() % 8 != remainder) header += ' ';
      write_string(dir / "in" / "model.safetensors",
                   tensor_file_text(header, text.substr(8 + length)));
      verify_report(dir / "in", 0, {"--full"});
      const Outcome run = run_octavo({quantize ? "quantize" : "dequantize", (dir / "in").string(),
                                      (dir / "out").string(), "--overwrite"});
      ASSERT_EQ(run.status, 0) << run.err;
      const std::string out = read_string(dir / "out" / "model.safetensors");
      std::string& first = first_out[quantize ? 0 : 1];
      if (remainder == 0) {
        first = out;
        const Tensors tensors = read_tensor_file(dir / "out" / "model.safetensors");
        if (quantize) {
          EXPECT_EQ(tensors.at("a.weight"), expected_quantized(wide[1].second, {}).codes);
          EXPECT_EQ(tensors.at("b.weight"), expected_quantized(wide[2].second, {}).codes);
        } else {
          EXPECT_EQ(tensors.at("c.weight"), as_bf16(fp8));
        }
      }
      EXPECT_TRUE(out == first) << "data at " << remainder << " modulo 8";
    }
  }
}

// Files are read by positioned reads alone, never mapped: there is no strategy to choose, and a
// file that shrinks, or a device that fails, is an error of read().
TEST(Stf10, AFileThatShrinksWhileItIsVerified) {
  constexpr std::uint64_t kRows = 8192;  // 16 MiB a tensor, two parts
  const TempDir dir;
  const fs::path shard = dir / "in" / "model-00001-of-00002.safetensors";
  const std::vector<SparseTensor> two = {{"a.weight", "BF16", {kRows, 1024}, {1}},
                                         {"b.weight", "BF16", {kRows, 1024}, {1}}};
  write_sparse_file(shard, two);
  write_sparse_file(dir / "in" / "model-00002-of-00002.safetensors",
                    {{"c.weight", "F32", {2, 2}, {0, 0, 0xC0, 0x7F}}});
  const Json map = {{"a.weight", shard.filename()},
                    {"b.weight", shard.filename()},
                    {"c.weight", "model-00002-of-00002.safetensors"}};
  write_string(dir / "in" / "model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  VerifyOptions options;
  options.full = true;
  // After the first part, before the second is read: one thread takes them in their order.
  options.on_progress = [&](std::uint64_t, std::uint64_t) { fs::resize_file(shard, 9 << 20); };
  const Result<VerifyReport> report = verify_checkpoint(dir / "in", options);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->defects.size(), 2u) << "one for the file, not one for each of its tensors";
  const Defect& defect = report->defects[0];
  EXPECT_EQ(defect_name(defect.code), "truncated");
  EXPECT_EQ(defect.file, shard.string());
  EXPECT_EQ(defect.tensor, "a.weight");
  EXPECT_THAT(defect.message, AllOf(HasSubstr(shard.string() + ": truncated"),
                                    HasSubstr("a.weight"), HasSubstr("shrank while it was read")));
  // The other file is looked at all the same.
  EXPECT_EQ(defect_name(report->defects[1].code), "nan-value");
}

TEST(Stf10, AFileThatShrinksWhileItIsConverted) {
  for (const bool quantize : {true, false}) {
    const TempDir dir;
    const fs::path file = dir / "in" / "model.safetensors";
    const Fp8Weight fp8 = fp8_weight(kSquare, 2);
    write_model(dir / "in",
                quantize ? Tensors{{"a.weight", bf16_weight(kSquare, 1)}}
                         : Tensors{{"a.weight", fp8.codes}, {"a.weight_scale_inv", fp8.scales}},
                quantize ? kPlainConfig : kFp8Config);
    const Result<Checkpoint> checkpoint = open_checkpoint(dir / "in");
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const Result<ConversionPlan> plan =
        quantize ? plan_quantize(*checkpoint, {}) : plan_dequantize(*checkpoint, {});
    ASSERT_TRUE(plan) << plan.error().message;
    fs::resize_file(file, fs::file_size(file) - 1);
    const Result<ConversionReport> report =
        quantize ? quantize_checkpoint(*checkpoint, *plan, {}, {}, dir / "out")
                 : dequantize_checkpoint(*checkpoint, *plan, {}, {}, dir / "out");
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, ErrorCode::bad_file);
    EXPECT_THAT(report.error().message, HasSubstr(file.string() + ": truncated"));
    EXPECT_FALSE(fs::exists(dir / "out" / "model.safetensors"));
  }
}

// A model of two layers, hidden size 64, four heads of 16, two of them for keys; vocabulary 32,
// two experts.
Tensors tiny_model() {
  Tensors tensors;
  tensors["model.embed_tokens.weight"] = bf16_weight({32, 64}, 1);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    tensors[layer + "self_attn.q_proj.weight"] = bf16_weight({64, 64}, 2);
    tensors[layer + "self_attn.k_proj.weight"] = bf16_weight({32, 64}, 3);
    tensors[layer + "mlp.experts.0.up_proj.weight"] = bf16_weight({64, 64}, 4);
    tensors[layer + "mlp.experts.1.up_proj.weight"] = bf16_weight({64, 64}, 5);
  }
  return tensors;
}

Json tiny_config() {
  return {{"num_hidden_layers", 2},  {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"hidden_size", 64},       {"vocab_size", 32},         {"num_experts", 2},
          {"num_experts_per_tok", 1}};
}

struct BadCount {
  std::string field;
  Json value;
  std::string tensors;  // what they imply
};

std::vector<BadCount> bad_counts() {
  std::vector<BadCount> all;
  for (const Json& layers : {Json(1'000'000'000), Json(0), Json(-1), Json(2.5), Json("2"), Json(1),
                             Json(3), Json(true), Json(1e30), Json::object()})
    all.push_back({"num_hidden_layers", layers, "tensors have 2 layers"});
  for (const Json& heads : {Json(0), Json(3), Json(-2), Json("2")})
    all.push_back({"num_key_value_heads", heads, "k_proj.weight is [32, 64]"});
  all.push_back({"num_attention_heads", 0, "q_proj.weight is [64, 64]"});
  for (const Json& vocabulary : {Json(33), Json(0), Json(1'000'000'000'000)})
    all.push_back({"vocab_size", vocabulary, "model.embed_tokens.weight is [32, 64]"});
  all.push_back({"hidden_size", 128, "model.embed_tokens.weight is [32, 64]"});
  for (const Json& chosen : {Json(3), Json(-1)})
    all.push_back({"num_experts_per_tok", chosen, "tensors have 2 experts"});
  all.push_back({"num_experts", 1'000'000, "tensors have 2 experts"});
  return all;
}

TEST(Stf13, CountsThatAreNoneOrThatTensorsContradict) {
  for (const bool nested : {false, true}) {
    for (const BadCount& bad : bad_counts()) {
      SCOPED_TRACE(bad.field + " " + bad.value.dump());
      const TempDir dir;
      Json config = tiny_config();
      config[bad.field] = bad.value;
      if (nested) config = {{"text_config", config}};
      write_model(dir / "in", tiny_model(), config.dump());
      const Json report =
          verify_report(dir / "in", 3, {}, built_with_sanitizers() ? "" : "ulimit -v 262144; ");
      ASSERT_EQ(codes_of(report.at("defects")), std::vector<std::string>{"config-value"}) << report;
      EXPECT_EQ(report.at("defects").at(0).at("file"), (dir / "in" / "config.json").string());
      EXPECT_THAT(report.at("defects").at(0).at("message").get<std::string>(),
                  AllOf(HasSubstr(bad.field + " is " + bad.value.dump() + ", but"),
                        HasSubstr(bad.tensors)));
    }
  }
}

TEST(Stf13, CountsThatFit) {
  std::vector<Json> configs = {tiny_config(), Json::object()};
  configs.push_back(tiny_config());
  configs.back()["vocab_size"] = 30;  // embeddings are often padded
  configs.push_back(tiny_config());
  configs.back()["num_hidden_layers"] = 1;
  configs.back()["num_nextn_predict_layers"] = 1;
  configs.push_back(tiny_config());
  configs.back()["num_key_value_heads"] = nullptr;
  configs.push_back(tiny_config());
  configs.back()["num_key_value_heads"] = {2, 2};  // one for each layer
  for (const Json& config : configs) {
    const TempDir dir;
    write_model(dir / "in", tiny_model(), config.dump());
    EXPECT_EQ(verify_report(dir / "in", 0).at("defects"), Json::array()) << config;
  }
}

TEST(Stf13, NothingIsConcludedFromFilesThatAreNotThere) {
  // One shard of two, asked for by its name.
  const TempDir dir;
  Tensors first = tiny_model();
  Tensors second;
  for (const char* name :
       {"model.layers.1.mlp.experts.0.up_proj.weight",
        "model.layers.1.mlp.experts.1.up_proj.weight", "model.layers.1.self_attn.q_proj.weight",
        "model.layers.1.self_attn.k_proj.weight"})
    second.insert(first.extract(name));
  const std::string name = "model-00001-of-00002.safetensors";
  write_model(
      dir / "in",
      std::map<std::string, Tensors>{{name, first}, {"model-00002-of-00002.safetensors", second}},
      tiny_config().dump());
  verify_report(dir / "in", 0);
  verify_report(dir / "in" / name, 0);
  fs::remove(dir / "in" / "model-00002-of-00002.safetensors");
  EXPECT_EQ(codes_of(verify_report(dir / "in", 3).at("defects")),
            std::vector<std::string>{"missing-file"});
}

}  // namespace
}  // namespace octavo::tests
