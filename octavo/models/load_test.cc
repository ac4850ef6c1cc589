// What the loader makes of directories that are written in other ways, or are wrong.
#include "octavo/models/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "octavo/models/models_testing.h"

namespace octavo::models {
namespace {

using namespace octavo::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kLayer = "model.layers.1.";
const std::string kGate = kLayer + "mlp.gate_proj";
const Tokens kTokens{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};

class LoadModel : public DirectoryTest {
 protected:
  // A tiny model as it is, or in FP8 with this block.
  ModelFiles tiny(const std::string& name = "llama3") const {
    return read_files(golden_models() / name);
  }
  ModelFiles fp8(BlockSize block = {}, const std::string& name = "llama3") const {
    QuantizeOptions options;
    options.recipe.block = block;
    const Checkpoint source = must(open_checkpoint(golden_models() / name));
    const std::filesystem::path quantized = directory_ / "quantized";
    std::filesystem::remove_all(quantized);
    must(quantize_checkpoint(source, must(plan_quantize(source, options)), options, {}, quantized));
    return read_files(quantized);
  }

  std::filesystem::path written(const ModelFiles& files) const {
    const std::filesystem::path directory = directory_ / "model";
    std::filesystem::remove_all(directory);
    files.write(directory);
    return directory;
  }
  LoadedModel loaded(const ModelFiles& files, const LoadOptions& options = {}) const {
    return load(written(files), options);
  }
  std::string hash(const ModelFiles& files, const LoadOptions& options = {}) const {
    const LoadedModel model = loaded(files, options);
    return hash_of(run_alone(model.model, kTokens, {}));
  }

  // The error of a model that must be refused.
  Error refusal(const ModelFiles& files, const LoadOptions& options = {}) const {
    const auto checkpoint = open_checkpoint(written(files));
    if (!checkpoint) return checkpoint.error();
    const auto model = load_model(*checkpoint, options);
    EXPECT_FALSE(model) << "loaded";
    if (model) return {};
    EXPECT_TRUE(is_one_line(model.error().message)) << model.error().message;
    EXPECT_THAT(model.error().message, Not(HasSubstr("octavo_checkpoint_XXXXXX")));
    return model.error();
  }
};

std::vector<float> values_of(const RawTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

RawTensor f32_tensor(const std::string& name, std::vector<std::uint64_t> shape,
                     const std::vector<float>& values) {
  return {name, "F32", std::move(shape), floats(values)};
}

TEST_F(LoadModel, NamesATensorThatIsMissing) {
  for (const std::string& name :
       {kGate + ".weight", kLayer + "input_layernorm.weight", std::string("model.norm.weight"),
        std::string("model.embed_tokens.weight"), kLayer + "self_attn.o_proj.weight"}) {
    ModelFiles files = tiny();
    files.tensors.erase(name);
    const Error error = refusal(files);
    EXPECT_EQ(error.code, ErrorCode::bad_model);
    EXPECT_THAT(error.message, AllOf(HasSubstr("TensorNotFound"), HasSubstr(name)));
  }
  ModelFiles biased = tiny("llama_yarn");
  biased.tensors.erase(kLayer + "self_attn.q_proj.bias");
  EXPECT_THAT(refusal(biased).message, HasSubstr(kLayer + "self_attn.q_proj.bias"));
}

TEST_F(LoadModel, NamesATensorThatNobodyAskedFor) {
  for (const std::string& name :
       {kLayer + "mlp.gate_proj.bias", std::string("model.layers.2.mlp.gate_proj.weight"),
        std::string("model.extra"), kLayer + "self_attn.q_norm.weight"}) {
    ModelFiles files = tiny();
    files.add(f32_tensor(name, {96}, std::vector<float>(96)));
    const Error error = refusal(files);
    EXPECT_EQ(error.code, ErrorCode::bad_model);
    EXPECT_THAT(error.message,
                AllOf(HasSubstr(name + " is in the files"), HasSubstr("LlamaForCausalLM")));
  }
}

// Old checkpoints store what the config says.
TEST_F(LoadModel, IgnoresStoredFrequencies) {
  ModelFiles files = tiny();
  const std::string before = hash(files);
  files.add(f32_tensor(kLayer + "self_attn.rotary_emb.inv_freq", {8}, std::vector<float>(8)));
  EXPECT_EQ(hash(files), before);
}

TEST_F(LoadModel, NamesATensorOfAnotherShapeAndBothShapes) {
  ModelFiles files = tiny();
  files.at(kGate + ".weight").shape = {72, 128};
  EXPECT_THAT(refusal(files).message,
              AllOf(HasSubstr("model.safetensors: " + kGate + ".weight (BF16 [72, 128])"),
                    HasSubstr("config.json says [96, 96]")));
  files = tiny();
  files.at("model.norm.weight").shape = {96, 1};
  EXPECT_THAT(refusal(files).message,
              AllOf(HasSubstr("model.norm.weight (BF16 [96, 1])"), HasSubstr("says [96]")));
  files = tiny();
  files.config["vocab_size"] = 159;
  EXPECT_THAT(refusal(files).message, AllOf(HasSubstr("model.embed_tokens.weight (BF16 [160, 96])"),
                                            HasSubstr("says [159, 96]")));
  files = fp8();
  files.config["intermediate_size"] = 95;
  EXPECT_THAT(refusal(files).message,
              AllOf(HasSubstr("mlp.gate_proj.weight (F8_E4M3 [96, 96])"), HasSubstr("[95, 96]")));
}

TEST_F(LoadModel, NamesATensorOfANumberTypeThatIsNotRun) {
  ModelFiles files = tiny();
  RawTensor& gate = files.at(kGate + ".weight");
  gate.dtype = "I16";
  EXPECT_THAT(refusal(files).message,
              AllOf(HasSubstr(kGate + ".weight (I16 [96, 96])"), HasSubstr("BF16, F16, F32")));
  files = tiny();
  files.at("model.norm.weight").dtype = "I16";
  EXPECT_THAT(refusal(files).message, HasSubstr("model.norm.weight (I16 [96])"));
}

TEST_F(LoadModel, NeedsAConfigOfAModelThatItKnows) {
  ModelFiles files = tiny();
  files.config["architectures"] = {"MambaForCausalLM"};
  Error error = refusal(files);
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("MambaForCausalLM is not supported"), HasSubstr("LlamaForCausalLM")));
  written(tiny());
  std::filesystem::remove(directory_ / "model" / "config.json");
  const auto model = load_model(must(open_checkpoint(directory_ / "model")));
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("no config.json"));
}

TEST_F(LoadModel, TiedHeads) {
  // Declared, without a head: the embeddings are it.
  ModelFiles files = tiny("llama_tied");
  const std::string tied = hash(files);
  // With an equal head beside them: the same model.
  RawTensor head = files.at("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  files.add(head);
  EXPECT_EQ(hash(files), tied);
  // The same, declared as two.
  files.config["tie_word_embeddings"] = false;
  EXPECT_EQ(hash(files), tied);
  EXPECT_TRUE(loaded(files).model.embed_tokens.has_value());
  // Declared as one, with another head: two, as the converter writes it, and one line says so.
  ModelFiles both = files;
  both.config["tie_word_embeddings"] = true;
  both.at("lm_head.weight").bytes[0] ^= 1;
  const std::string untied = hash(both);
  EXPECT_NE(untied, tied);
  EXPECT_THAT(loaded(both).report.notes, ElementsAre(HasSubstr("lm_head differs")));
  both.config["tie_word_embeddings"] = false;
  EXPECT_EQ(hash(both), untied);
  // Not declared, and no head.
  files.tensors.erase("lm_head.weight");
  EXPECT_THAT(refusal(files).message,
              AllOf(HasSubstr("lm_head.weight"), HasSubstr("tie_word_embeddings")));
}

// F16 and F32 files of the same numbers give the same logits as BF16 with activations in f32.
TEST_F(LoadModel, WideTypesHoldTheSameNumbers) {
  const ModelFiles files = tiny("llama_yarn");  // F32
  ASSERT_EQ(files.tensors.begin()->second.dtype, "F32");
  ModelFiles halves = files, rounded = files;
  for (auto& [name, tensor] : halves.tensors) {
    const std::vector<float> values = values_of(tensor);
    std::vector<std::uint16_t> codes(values.size());
    kernels::cast_kernels(Isa::generic)
        .cast({Format::f32, values.data(), Format::f16, codes.data(), codes.size(),
               Overflow::special});
    std::vector<float> back(values.size());
    kernels::cast_kernels(Isa::generic)
        .cast(
            {Format::f16, codes.data(), Format::f32, back.data(), codes.size(), Overflow::special});
    tensor.dtype = "F16";
    tensor.bytes.assign(reinterpret_cast<const char*>(codes.data()), codes.size() * 2);
    rounded.at(name).bytes = floats(back);
  }
  const RunOptions f32{nn::ActivationType::f32, Format::f32};
  EXPECT_EQ(hash_of(run_alone(loaded(halves).model, kTokens, f32)),
            hash_of(run_alone(loaded(rounded).model, kTokens, f32)));
}

// An activation scale of the file is used by static models, and only there.
TEST_F(LoadModel, StaticActivationScales) {
  ModelFiles files = fp8();
  const std::string dynamic = hash(files);
  for (auto& [name, tensor] : ModelFiles(files).tensors) {
    if (!name.ends_with("_proj.weight")) continue;
    const std::string module = name.substr(0, name.size() - std::strlen(".weight"));
    files.add(
        f32_tensor(module + (module.ends_with("q_proj") ? ".input_scale" : ".activation_scale"), {},
                   {0.0625f}));
  }
  ASSERT_EQ(files.config["quantization_config"]["activation_scheme"], "dynamic");
  EXPECT_EQ(hash(files), dynamic);
  files.config["quantization_config"]["activation_scheme"] = "static";
  EXPECT_NE(hash(files), dynamic);
  const LoadedModel model = loaded(files);
  for (const NamedLinear& named : linear_layers(model.model)) {
    const bool head = named.name == "lm_head";
    EXPECT_EQ(named.layer->activation_scale, head ? std::nullopt : std::optional(0.0625f));
    EXPECT_EQ(nn::activation_format(*named.layer, nn::ActivationType::fp8),
              head ? "bf16" : "e4m3fn, static scale");
  }
  files.tensors.erase(kGate + ".activation_scale");
  EXPECT_THAT(loaded(files).report.notes,
              ElementsAre(AllOf(HasSubstr("static"), HasSubstr("1 FP8 layers have no"))));
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    files.add(f32_tensor(kGate + ".activation_scale", {}, {bad}));
    EXPECT_THAT(refusal(files).message,
                AllOf(HasSubstr(kGate + ".activation_scale"), HasSubstr("positive number")));
  }
  files.add(f32_tensor(kGate + ".activation_scale", {2}, {1.0f, 1.0f}));
  EXPECT_THAT(refusal(files).message,
              AllOf(HasSubstr(kGate + ".activation_scale (F32 [2])"), HasSubstr("one number")));
}

// Scales for a static FP8 cache, in every spelling: counted, not used.
TEST_F(LoadModel, ScalesOfKeysAndValuesAreCounted) {
  ModelFiles files = tiny();
  const std::string before = hash(files);
  EXPECT_EQ(loaded(files).report.kv_scales.count, 0u);
  float value = 0.5f;
  for (const char* name :
       {"k_scale", "v_scale", "q_scale", "kv_scale", "attn.k_scale", "attn.v_scale",
        "k_proj.k_scale", "v_proj.v_scale", "q_proj.q_scale", "qkv_proj.k_scale"}) {
    files.add(f32_tensor(kLayer + "self_attn." + name, {1}, {value}));
    value /= 2;
  }
  EXPECT_EQ(hash(files), before);
  const KvScaleReport report = loaded(files).report.kv_scales;
  EXPECT_EQ(report.count, 10u);
  EXPECT_EQ(report.most, 0.5f);
  EXPECT_EQ(report.least, 0x1p-10f);
  for (const std::string& name :
       {kLayer + "mlp.k_scale", kLayer + "self_attn.o_proj.k_scale",
        kLayer + "self_attn.k_proj.k_scales", std::string("model.layers.2.self_attn.k_scale")}) {
    ModelFiles other = files;
    other.add(f32_tensor(name, {}, {1.0f}));
    EXPECT_THAT(refusal(other).message, HasSubstr(name + " is in the files"));
  }
}

TEST_F(LoadModel, ScalesOfKeysAndValuesThatAreNone) {
  const std::string name = kLayer + "self_attn.k_scale";
  LoadOptions ignore;
  ignore.ignore_kv_scales = true;
  for (const auto& [shape, values, said] :
       {std::tuple<std::vector<std::uint64_t>, std::vector<float>, const char*>{
            {}, {std::numeric_limits<float>::quiet_NaN()}, "nan"},
        {{1}, {std::numeric_limits<float>::infinity()}, "inf"},
        {{}, {0.0f}, ": 0,"},
        {{}, {-1.0f}, "-1"},
        {{8}, std::vector<float>(8, 1.0f), "(F32 [8]): one number"}}) {
    ModelFiles files = tiny();
    files.add(f32_tensor(name, shape, values));
    EXPECT_THAT(refusal(files).message,
                AllOf(HasSubstr(name), HasSubstr(said), HasSubstr("--ignore-kv-scales")));
    EXPECT_EQ(loaded(files, ignore).report.kv_scales.count, 1u);
  }
  for (const auto& [dtype, bytes] :
       {std::pair("I64", 8u), {"F64", 8u}, {"C64", 8u}, {"I32", 4u}, {"U8", 1u}, {"BOOL", 1u}}) {
    ModelFiles files = tiny();
    files.add({name, dtype, {1}, std::string(bytes, '\1')});
    EXPECT_THAT(refusal(files).message,
                AllOf(HasSubstr(name), HasSubstr("a number in F32, BF16 or F16 is expected"),
                      HasSubstr("--ignore-kv-scales")));
    EXPECT_EQ(loaded(files, ignore).report.kv_scales.count, 1u);
  }
}

TEST_F(LoadModel, SkipListsOfLoadTimeQuantization) {
  QuantizeOptions options;
  options.not_convert = {"self_attn"};
  const LoadedModel model = loaded(tiny(), quantizing(options));
  EXPECT_EQ(model.report.fp8_layers, 6u);
  EXPECT_EQ(model.report.wide_layers, 9u);
  for (const NamedLinear& named : linear_layers(model.model)) {
    EXPECT_EQ(named.layer->weight.format,
              named.name.find(".mlp.") == std::string::npos ? Format::bf16 : Format::e4m3fn)
        << named.name;
  }
  // As the converter warns of it.
  options.not_convert = {"no_such_module"};
  EXPECT_THAT(loaded(tiny(), quantizing(options)).report.notes,
              ElementsAre(HasSubstr("no_such_module")));
}

// Blocks that files may have and products do not take are refused by name, not by exception.
TEST_F(LoadModel, BlocksThatProductsDoNotTake) {
  QuantizeOptions options;
  options.recipe.block = {96, 48};
  EXPECT_THAT(refusal(tiny(), quantizing(options)).message,
              AllOf(HasSubstr("96x48"), HasSubstr("32, 64 or multiples of 128")));
  const ModelFiles files = fp8({96, 48});
  EXPECT_THAT(refusal(files).message, AllOf(HasSubstr("96x48"), HasSubstr("--dequantize")));
  EXPECT_EQ(loaded(files, dequantizing()).report.fp8_layers, 0u);
}

// A source in FP8 is not quantized anew while loading: said, never ignored.
TEST_F(LoadModel, DoesNotRequantize) {
  const ModelFiles files = fp8({32, 32});
  QuantizeOptions options;
  EXPECT_THAT(refusal(files, quantizing(options)).message, HasSubstr("requantize"));
  options.requantize = true;
  EXPECT_THAT(refusal(files, quantizing(options)).message,
              AllOf(HasSubstr("not requantized while loading"), HasSubstr("octavo quantize")));
}

TEST_F(LoadModel, NonFiniteWeightsAreNotQuantized) {
  ModelFiles files = tiny("llama_yarn");
  RawTensor& gate = files.at(kGate + ".weight");
  std::vector<float> values = values_of(gate);
  values[gate.shape[1] + 2] = std::numeric_limits<float>::infinity();
  gate.bytes = floats(values);
  EXPECT_THAT(refusal(files, quantizing(QuantizeOptions{})).message,
              AllOf(HasSubstr(kGate + ".weight"), HasSubstr("[1, 2]"), HasSubstr("inf")));
}

TEST_F(LoadModel, ReportsBytesAndProgress) {
  const ModelFiles files = tiny();
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  LoadOptions options;
  options.on_progress = [&](std::uint64_t bytes, std::uint64_t all) {
    done.push_back(bytes);
    total = all;
  };
  const LoadedModel model = loaded(files, options);
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : files.tensors) bytes += tensor.bytes.size();
  EXPECT_EQ(total, bytes);
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.back(), bytes);
  EXPECT_EQ(model.report.wide_layers, 15u);
  EXPECT_EQ(model.report.fp8_layers, 0u);
  // Every size of llama3 is even and a multiple of 32: packed weights take what files take, beside
  // the scale 1 of each of 16 weights.
  std::uint64_t norms = 0;
  for (const auto& [name, tensor] : files.tensors) {
    if (tensor.shape.size() == 1) norms += tensor.bytes.size();
  }
  EXPECT_EQ(model.report.weight_bytes, bytes - norms + 16 * sizeof(float));
  EXPECT_THAT(model.report.notes, IsEmpty());
}

}  // namespace
}  // namespace octavo::models
