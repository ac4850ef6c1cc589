// What must not change the bytes: threads, instruction sets, going there and back.
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/checkpoint/conversion.h"
#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

// Every file of a directory with its bytes, by relative path.
std::map<std::string, Bytes> files_of(const fs::path& directory) {
  std::map<std::string, Bytes> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(directory).string()] = read_bytes(entry.path());
  }
  return files;
}

// Ragged, wide, tall, fused and copied tensors, several bands of each kind.
std::map<std::string, Tensors> mixed_model() {
  const std::string layer = "model.layers.0.";
  return {
      {"model-00001-of-00002.safetensors",
       {{layer + "mlp.up_proj.weight", bf16_weight({1100, 700}, 1)},
        {layer + "mlp.down_proj.weight", make_tensor("F32", {300, 515}, gaussian({300, 515}, 2))},
        {layer + "self_attn.q_proj.weight",
         make_tensor("F16", {129, 300}, gaussian({129, 300}, 3))},
        {layer + "mlp.experts.gate_up_proj",
         make_tensor("BF16", {3, 200, 130}, gaussian({600, 130}, 4))}}},
      {"model-00002-of-00002.safetensors",
       {{"model.embed_tokens.weight", bf16_weight({512, 256}, 5)},
        {"model.norm.weight", make_tensor("BF16", {256}, gaussian({1, 256}, 6))},
        {layer + "mlp.gate_proj.weight", bf16_weight({1, 2000}, 7)}}}};
}

void expect_same_files(const std::map<std::string, Bytes>& expected, const fs::path& directory,
                       const std::string& what) {
  const std::map<std::string, Bytes> files = files_of(directory);
  ASSERT_EQ(files.size(), expected.size()) << what;
  for (const auto& [name, bytes] : expected)
    EXPECT_TRUE(files.at(name) == bytes) << name << ", " << what;
}

TEST(SameBits, AnyNumberOfThreads) {
  const TempDir dir;
  write_model(dir / "in", mixed_model(), kPlainConfig);
  std::map<std::string, Bytes> narrow;
  std::map<std::string, Bytes> wide;
  for (const int threads : {1, 2, 3, 7}) {
    const std::string what = std::to_string(threads) + " threads";
    ConversionOptions run;
    run.threads = threads;
    run.overwrite = true;
    QuantizeOptions options;
    options.measure_error = true;
    const Checkpoint source = open_checkpoint(dir / "in").value();
    const ConversionPlan plan = plan_quantize(source, options).value();
    const auto report = quantize_checkpoint(source, plan, options, run, dir / "out");
    ASSERT_TRUE(report) << report.error().message;
    static const double rms = report->error->rms();
    EXPECT_EQ(report->error->rms(), rms) << what;

    const Checkpoint codes = open_checkpoint(dir / "out").value();
    const ConversionPlan back = plan_dequantize(codes, {}).value();
    const auto second = dequantize_checkpoint(codes, back, {}, run, dir / "back");
    ASSERT_TRUE(second) << second.error().message;
    if (narrow.empty()) {
      narrow = files_of(dir / "out");
      wide = files_of(dir / "back");
    }
    expect_same_files(narrow, dir / "out", what);
    expect_same_files(wide, dir / "back", what);
  }
}

TEST(SameBits, AnyInstructionSet) {
  const TempDir dir;
  write_model(dir / "in", mixed_model(), kPlainConfig);
  for (const Rule rule : kAllRules) {
    std::map<std::string, Bytes> narrow;
    std::map<std::string, Bytes> wide;
    for (const std::string& level : kernel_levels()) {
      const std::string before = "OCTAVO_CPU=" + level + " ";
      const Outcome there = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string(),
                                        "--overwrite", "--rule", rule_name(rule)},
                                       before);
      ASSERT_EQ(there.status, 0) << there.err;
      const Outcome back = run_octavo(
          {"dequantize", (dir / "out").string(), (dir / "back").string(), "--overwrite"}, before);
      ASSERT_EQ(back.status, 0) << back.err;
      if (narrow.empty()) {
        narrow = files_of(dir / "out");
        wide = files_of(dir / "back");
      }
      expect_same_files(narrow, dir / "out", level);
      expect_same_files(wide, dir / "back", level);
    }
  }
}

TEST(SameBits, UnknownLevelIsRefused) {
  const Outcome run = run_octavo({"info"}, "OCTAVO_CPU=avx1024 ");
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(only_line(run).find("avx1024"), std::string::npos);
}

// Quantized, dequantized to BF16 and quantized again.
struct RoundTrip {
  Tensors first;
  Tensors back;
  Tensors again;
  Tensors back_again;
};

RoundTrip round_trip(const TempDir& dir, const std::vector<std::string>& options) {
  const auto convert = [&](const char* command, const char* from, const char* to,
                           std::vector<std::string> more) {
    std::vector<std::string> arguments = {command, (dir / from).string(), (dir / to).string(),
                                          "--overwrite"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome run = run_octavo(arguments);
    EXPECT_EQ(run.status, 0) << run.err;
    return read_model(dir / to).tensors;
  };
  RoundTrip trip;
  trip.first = convert("quantize", "in", "one", options);
  trip.back = convert("dequantize", "one", "wide", {});
  trip.again = convert("quantize", "wide", "two", options);
  trip.back_again = convert("dequantize", "two", "wide2", {});
  return trip;
}

TEST(FixedPoint, FloatScalesComeBackToTheBit) {
  const Extent matrix{384, 1000};
  const Tensors source = {
      {"a.gaussian.weight", make_tensor("BF16", {384, 1000}, gaussian(matrix, 10))},
      {"a.heavy.weight", make_tensor("BF16", {384, 1000}, heavy_tailed(matrix, 11))}};
  for (const Rule rule : kAllRules) {
    const TempDir dir;
    write_model(dir / "in", source, kPlainConfig);
    const RoundTrip trip =
        round_trip(dir, {"--rule", rule_name(rule), "--weight-block-size", "8,8"});
    for (const auto& [name, tensor] : trip.first)
      EXPECT_TRUE(trip.again.at(name) == tensor) << name << " " << rule_name(rule);
    EXPECT_TRUE(trip.back_again == trip.back);
  }
}

TEST(FixedPoint, EveryBf16Maximum) {
  // Each 1 x 1 block has a BF16 number of its own; below 2^-117 scales are no longer normal.
  for (const Rule rule : kAllRules) {
    std::vector<float> values;
    for (int bits = 10 << 7; bits < 255 << 7; ++bits) {
      const float value = bf16_value(static_cast<std::uint16_t>(bits));
      // Just below deepgemm's floor of 1e-4 the code is 448 (from 432 on), which dequantizes to the
      // BF16 above the floor: the next scale is that number's own.
      const bool next_to_floor = value >= 1e-4f * 432 / 448 && value < 1e-4f;
      values.push_back(rule == Rule::deepgemm && next_to_floor ? 1.0f : value);
    }
    const Tensors source = {{"a.weight", make_tensor("BF16", {245, 128}, values)}};
    const TempDir dir;
    write_model(dir / "in", source, kPlainConfig);
    const RoundTrip trip =
        round_trip(dir, {"--rule", rule_name(rule), "--weight-block-size", "1,1"});
    EXPECT_TRUE(trip.first == trip.again) << rule_name(rule);
    EXPECT_TRUE(trip.back == trip.back_again) << rule_name(rule);
    if (rule != Rule::deepgemm) {  // whose floor swallows small numbers
      EXPECT_TRUE(trip.back == source) << rule_name(rule);
    }
  }
}

TEST(FixedPoint, PowerOfTwoScalesKeepTheValues) {
  const Extent matrix{384, 1000};
  const Tensors source = {
      {"a.gaussian.weight", make_tensor("BF16", {384, 1000}, gaussian(matrix, 12))},
      {"a.heavy.weight", make_tensor("BF16", {384, 1000}, heavy_tailed(matrix, 13))}};
  for (const Rule rule : kAllRules) {
    const TempDir dir;
    write_model(dir / "in", source, kPlainConfig);
    const RoundTrip trip = round_trip(
        dir, {"--rule", rule_name(rule), "--weight-block-size", "8,8", "--scale-fmt", "ue8m0"});
    EXPECT_TRUE(trip.back_again == trip.back) << rule_name(rule);
  }
}

// Codes and scales of each rule against the reference, on the inputs that hurt.
TEST(Rules, EqualTheReferenceToTheBit) {
  const Extent matrix{70, 150};
  std::map<std::string, std::vector<float>> inputs = {{"gaussian", gaussian(matrix, 14)},
                                                      {"heavy", heavy_tailed(matrix, 15)}};
  for (const int exponent :
       {-140, -133, -120, 110}) {  // subnormal sources, the guard of 448 / amax, large ones
    std::vector<float>& values = inputs["times 2^" + std::to_string(exponent)];
    for (const float value : gaussian(matrix, 16)) values.push_back(std::ldexp(value, exponent));
  }
  inputs["zeros"] = std::vector<float>(matrix.count(), -0.0f);
  for (const char* dtype : {"BF16", "F16", "F32"}) {
    Tensors source;
    for (const auto& [name, values] : inputs) {
      if (dtype == std::string("F16") && name == "times 2^110") continue;  // infinite in F16
      source["a." + name + ".weight"] = make_tensor(dtype, {matrix.rows, matrix.cols}, values);
    }
    for (const Rule rule : kAllRules) {
      for (const bool ue8m0 : {false, true}) {
        const TempDir dir;
        write_model(dir / "in", source, kPlainConfig);
        const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string(),
                                        "--rule", rule_name(rule), "--scale-fmt",
                                        ue8m0 ? "ue8m0" : "float", "--weight-block-size", "4,6"});
        ASSERT_EQ(run.status, 0) << run.err;
        const Tensors out = read_model(dir / "out").tensors;
        for (const auto& [name, tensor] : source) {
          const QuantizedTensors expected = expected_quantized(
              tensor, {.block_rows = 4, .block_cols = 6, .rule = rule, .ue8m0 = ue8m0});
          EXPECT_TRUE(out.at(name) == expected.codes) << name << dtype << rule_name(rule) << ue8m0;
          EXPECT_TRUE(out.at(name + "_scale_inv") == expected.scales)
              << name << dtype << rule_name(rule) << ue8m0;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::tests
