// What the commands print: help, plan, --json, exit status.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Names = std::set<std::string>;

constexpr Extent kSquare{256, 256};

Names keys_of(const nlohmann::json& object) {
  Names keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

void expect_keys(const nlohmann::json& object, const Names& expected) {
  const Names keys = keys_of(object);
  for (const std::string& key : expected) EXPECT_TRUE(keys.contains(key)) << key;
}

TEST(Commands, HelpShowsAnExampleAndTheMemoryLimit) {
  for (const char* command :
       {"quantize", "dequantize", "inspect", "verify", "compare", "tokenize", "bench", "info"}) {
    const Outcome run = run_octavo({command, "--help"});
    EXPECT_EQ(run.status, 0) << command;
    EXPECT_EQ(run.err, "");
    EXPECT_THAT(run.out,
                AllOf(HasSubstr("Example"), HasSubstr(std::string("\n  octavo ") + command),
                      HasSubstr(command == std::string("info") ? "OCTAVO_CPU" : "--json")));
  }
  for (const char* command : {"quantize", "dequantize"}) {
    EXPECT_THAT(run_octavo({command, "--help"}).out, HasSubstr("at most 64 MB per thread"));
  }
  EXPECT_EQ(run_octavo({"--help"}).status, 0);
  EXPECT_EQ(run_octavo({"--version"}).status, 0);
}

TEST(Commands, HelpFitsAHundredColumns) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"quantize", "--help"},
                                             {"dequantize", "--help"},
                                             {"inspect", "--help"},
                                             {"verify", "--help"},
                                             {"compare", "--help"},
                                             {"bench", "--help"},
                                             {"info", "--help"}}) {
    const std::string help = run_octavo(arguments).out;
    EXPECT_THAT(help, Not(HasSubstr("\n\n\n")));
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(Commands, BadUsageIsStatusTwo) {
  const TempDir dir;
  const std::string nowhere = (dir / "nowhere").string();
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {},
           {"quantise"},
           {"quantize"},
           {"quantize", nowhere},
           {"quantize", nowhere, "out", "--scale-fmt", "nonsense"},
           {"quantize", nowhere, "out", "--weight-block-size", "128"},
           {"quantize", nowhere, "out", "--weight-block-size", "0,128"},
           {"quantize", nowhere, "out", "--max-shard-size", "5XB"},
           {"quantize", nowhere, "out", "--threads", "-1"},
           {"dequantize", nowhere, "out", "--dtype", "f8"},
           {"inspect"},
           {"info", "--nonsense"}}) {
    const Outcome run = run_octavo(arguments);
    EXPECT_EQ(run.status, 2) << ::testing::PrintToString(arguments) << run.err;
    EXPECT_EQ(run.out, "") << ::testing::PrintToString(arguments);
    EXPECT_THAT(arguments.empty() ? run.err : only_line(run), Not(IsEmpty()));
  }
  EXPECT_THAT(only_line(run_octavo({"quantise"})),
              AllOf(HasSubstr("quantise"), HasSubstr("octavo --help")));
  EXPECT_THAT(only_line(run_octavo({"quantize", nowhere})),
              AllOf(HasSubstr("DST"), HasSubstr("octavo quantize --help")));
  for (const char* command : {"quantize", "dequantize"}) {
    const Outcome run = run_octavo({command, nowhere, (dir / "out").string()});
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(only_line(run), HasSubstr(nowhere));
    EXPECT_FALSE(fs::exists(dir / "out"));
  }
}

class Report : public ::testing::Test {
 protected:
  void SetUp() override {
    write_model(dir_ / "in", source_, kPlainConfig);
    const Fp8Weight weight = fp8_weight(kSquare, 3);
    write_model(dir_ / "fp8", {{"a.weight", weight.codes}, {"a.weight_scale_inv", weight.scales}},
                kFp8Config);
  }
  TempDir dir_;
  const Tensors source_ = {{"a.weight", bf16_weight(kSquare, 1)},
                           {"lm_head.weight", bf16_weight(kSquare, 2)},
                           {"a.bias", make_tensor("BF16", {256}, gaussian({1, 256}, 3))}};
  std::string in_ = (dir_ / "in").string();
  std::string fp8_ = (dir_ / "fp8").string();
  std::string out_ = (dir_ / "out").string();
  const Names keys_ = {"quantized", "kept",    "skipped",   "bytes_in",
                       "bytes_out", "seconds", "peak_bytes"};
};

TEST_F(Report, JsonOfQuantize) {
  const Outcome run = run_octavo({"quantize", in_, out_, "--json", "--measure-error"});
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json report = run.json();
  expect_keys(report, keys_);
  EXPECT_EQ(report.at("quantized"), 1);
  EXPECT_EQ(report.at("kept"), 2);
  EXPECT_EQ(report.at("bytes_in"), 2 * 256 * 256 * 2 + 512);
  EXPECT_EQ(report.at("bytes_out"), 256 * 256 * 3 + 16 + 512);
  ASSERT_EQ(report.at("skipped").size(), 1u);
  EXPECT_EQ(report.at("skipped").at(0),
            (nlohmann::json{{"name", "lm_head.weight"}, {"reason", "output head"}}));
  expect_keys(report.at("error"), {"max_abs", "rms", "snr_db"});

  // The error that it reports, from the files.
  const std::vector<float> source = values_of(source_.at("a.weight"));
  const Tensors out = read_model(dir_ / "out").tensors;
  const std::vector<float> values = dequantize(out.at("a.weight").bytes, Fp8::e4m3fn, kSquare,
                                               values_of(out.at("a.weight_scale_inv")), 128, 128);
  double largest = 0;
  double sum = 0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const double difference = static_cast<double>(values[i] - source[i]);
    largest = std::max(largest, std::fabs(difference));
    sum += difference * difference;
  }
  EXPECT_EQ(report.at("error").at("max_abs"), largest);
  // 65,536 additions in another order, in double.
  EXPECT_NEAR(report.at("error").at("rms").get<double>(), std::sqrt(sum / 65536),
              std::sqrt(sum / 65536) * 65536 * 0x1p-53);
}

TEST_F(Report, JsonOfDequantizeInspectAndInfo) {
  const Outcome run = run_octavo({"dequantize", fp8_, out_, "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  expect_keys(run.json(), keys_);
  EXPECT_EQ(run.json().at("bytes_out"), 256 * 256 * 2);

  const nlohmann::json inspected = run_octavo({"inspect", fp8_, "--json"}).json();
  expect_keys(inspected, {"tensors", "summary"});
  ASSERT_EQ(inspected.at("tensors").size(), 2u);
  for (const auto& tensor : inspected.at("tensors")) {
    expect_keys(tensor, {"name", "dtype", "shape", "bytes", "file", "role", "scale"});
    if (tensor.at("name") == "a.weight") {
      expect_keys(tensor.at("scale"), {"name", "dtype", "shape", "block"});
      EXPECT_EQ(tensor.at("bytes"), 65536);
      EXPECT_EQ(tensor.at("file"), "model.safetensors");
    } else {
      EXPECT_EQ(tensor.at("role"), "scale");
      EXPECT_TRUE(tensor.at("scale").is_null());
    }
  }
  expect_keys(run_octavo({"info", "--json"}).json(), {"version", "threads", "kernels", "features"});
}

TEST(InfoPlan, NamesKernelPiecesAndReason) {
  const Outcome text = run_octavo({"info", "--op", "gemm", "--m", "512", "--threads", "1"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("C (512, 4096) = A (512, 4096) in bf16"),
                              HasSubstr("kernel     "), HasSubstr("One thread is allowed")));
  const nlohmann::json plan = run_octavo({"info", "--op", "gemv", "--n", "300", "--json"}).json();
  expect_keys(plan, {"op", "m", "n", "k", "weights", "activations", "kernel", "threads", "split",
                     "split_step", "row_chunk", "group", "weight_bytes", "why"});
  EXPECT_EQ(plan.at("m"), 1);
  EXPECT_EQ(plan.at("weight_bytes"), 320 * 4096);
  const nlohmann::json plain =
      run_octavo({"info", "--op", "gemm", "--json"}, "OCTAVO_CPU=generic ").json();
  EXPECT_EQ(plain.at("kernel"), "generic_plain_fma");
  EXPECT_EQ(run_octavo({"info", "--op", "conv"}).status, 2);
  EXPECT_EQ(run_octavo({"info", "--op", "gemm", "--m", "0"}).status, 2);
  EXPECT_EQ(run_octavo({"info", "--op", "gemm", "--n", "999999999999"}).status, 2);
  const Outcome format = run_octavo({"info", "--op", "gemm", "--weights", "f16"});
  EXPECT_NE(format.status, 0);
  EXPECT_THAT(format.err, HasSubstr("given f16, expected e4m3fn"));
}

TEST(Bench, RefusesSizesThatMemoryDoesNotHold) {
  const std::string most = std::to_string(1 << 28);
  for (const char* op : {"gemv", "gemm", "training", "quantize", "dequantize", "cast"}) {
    const Outcome run =
        run_octavo({"bench", "--op", op, "--m", most, "--n", most, "--k", most, "--threads", "1"});
    EXPECT_EQ(run.status, 2) << op;
    EXPECT_THAT(run.err, HasSubstr("give smaller ones")) << op;
  }
  for (const char* size : {"--m", "--n", "--k"}) {
    const Outcome run = run_octavo({"bench", "--op", "gemm", size, "18446744073709551615"});
    EXPECT_EQ(run.status, 2) << size;
    EXPECT_THAT(run.err, HasSubstr("not in range 1 to 268435456")) << size;
  }
}

TEST(Bench, MeasuresTheSmallestProduct) {
  const Outcome run = run_octavo({"bench", "--quick", "--op", "gemv,gemm", "--m", "1", "--n", "1",
                                  "--k", "1", "--threads", "1", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json json = run.json();
  for (const auto& row : json.at("results")) EXPECT_EQ(row.at("error"), 0.0) << row;
}

// The last block row of a matrix is cut.
TEST(Bench, StreamsRowsThatAreNotAMultipleOfABlock) {
  const Outcome run = run_octavo({"bench", "--quick", "--op", "quantize,dequantize,cast", "--n",
                                  "131", "--k", "66", "--threads", "1", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json json = run.json();
  for (const auto& row : json.at("results")) EXPECT_EQ(row.at("error"), 0.0) << row;
}

TEST_F(Report, PlanListsEveryTensorAndWritesNothing) {
  for (const char* flag : {"--plan", "--dry-run"}) {
    const Outcome run = run_octavo({"quantize", in_, out_, flag});
    ASSERT_EQ(run.status, 0) << run.err;
    for (const auto& [name, tensor] : source_) EXPECT_THAT(run.out, HasSubstr(name));
    EXPECT_THAT(run.out,
                AllOf(HasSubstr("output head"), HasSubstr("1-D"), HasSubstr("blocks of 128x128")));
    EXPECT_FALSE(fs::exists(dir_ / "out"));
  }
  const nlohmann::json plan = run_octavo({"dequantize", fp8_, out_, "--plan", "--json"}).json();
  std::map<std::string, std::string> actions;
  for (const auto& tensor : plan.at("tensors")) actions[tensor.at("name")] = tensor.at("action");
  EXPECT_EQ(actions, (std::map<std::string, std::string>{{"a.weight", "dequantize"},
                                                         {"a.weight_scale_inv", "drop"}}));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

TEST_F(Report, QuietIsQuietAndResultsGoToStdout) {
  const Outcome quiet = run_octavo({"quantize", in_, out_, "--quiet"});
  EXPECT_EQ(quiet.status, 0);
  EXPECT_EQ(quiet.out + quiet.err, "");
  const Outcome loud = run_octavo({"quantize", in_, out_, "--overwrite"});
  EXPECT_EQ(loud.err, "");
  EXPECT_THAT(loud.out, AllOf(HasSubstr("quantized   1 weights"),
                              HasSubstr("lm_head.weight (output head)"), HasSubstr("written to")));
}

// Redirects of the program alone: the wrapper keeps what is left of its streams.
TEST_F(Report, OutputThatIsLostIsAnError) {
  const std::string full = "sh -c '\"$0\" \"$@\" > /dev/full' ";
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"inspect", in_, "--json"},
                                             {"inspect", in_},
                                             {"info"},
                                             {"--help"},
                                             {"--version"},
                                             {"quantize", in_, "--plan"},
                                             {"quantize", in_, out_}}) {
    const Outcome run = run_octavo(arguments, full);
    EXPECT_EQ(run.status, 1) << ::testing::PrintToString(arguments);
    EXPECT_THAT(only_line(run), HasSubstr("stdout")) << run.err;
  }
  // Nobody is left to tell, and the work is done all the same.
  fs::remove_all(out_);
  const std::string mute = "sh -c '\"$0\" \"$@\" 2> /dev/full' ";
  EXPECT_EQ(run_octavo({"quantize", in_, out_}, mute).status, 0);
  EXPECT_EQ(run_octavo({"inspect", out_ + "/nowhere"}, mute).status, 1);
}

TEST_F(Report, ListOptionsTakeOneArgumentEach) {
  write_model(dir_ / "lists",
              {{"a.weight", bf16_weight(kSquare, 1)},
               {"b.weight", bf16_weight(kSquare, 2)},
               {"cc.weight", bf16_weight(kSquare, 3)},
               {"lm_head.weight", bf16_weight(kSquare, 4)}},
              kPlainConfig);
  const std::string lists = (dir_ / "lists").string();
  const std::string keep = "--modules-to-not-convert";
  const std::string convert = "--modules-to-convert";
  const auto quantized = [](const std::vector<std::string>& arguments) {
    const Outcome run = run_octavo(arguments);
    EXPECT_EQ(run.status, 0) << ::testing::PrintToString(arguments) << run.err;
    Names names;
    if (run.status != 0) return names;
    const nlohmann::json plan = run.json();
    for (const auto& tensor : plan.at("tensors"))
      if (tensor.at("action") == "quantize") names.insert(tensor.at("name"));
    return names;
  };
  const Names without_a = {"b.weight", "cc.weight"};
  EXPECT_EQ(quantized({"quantize", keep, "a", lists, out_, "--plan", "--json"}), without_a);
  EXPECT_EQ(quantized({"quantize", lists, keep, "a", out_, "--plan", "--json"}), without_a);
  EXPECT_EQ(quantized({"quantize", lists, out_, "--plan", "--json", keep + "=a"}), without_a);
  EXPECT_EQ(quantized({"quantize", keep, "a", lists, keep, "b", out_, "--plan", "--json"}),
            Names{"cc.weight"});
  EXPECT_EQ(quantized({"quantize", keep, "a,b", lists, "--plan", "--json"}), Names{"cc.weight"});
  EXPECT_EQ(quantized({"quantize", convert, "lm_head", lists, out_, "--plan", "--json"}),
            (Names{"a.weight", "b.weight", "cc.weight", "lm_head.weight"}));
  // The comma is the regular expression's: "c{2" and "2}" would match nothing.
  EXPECT_EQ(quantized({"quantize", keep, "re:c{2,2}", lists, "--plan", "--json"}),
            (Names{"a.weight", "b.weight"}));
  EXPECT_EQ(quantized({"quantize", keep, "a,re:c{2,2}", lists, "--plan", "--json"}),
            Names{"b.weight"});
}

TEST_F(Report, NothingLostIsLossless) {
  // 448 is the largest code: with it in every block the scale is 1 and codes are the values.
  write_model(dir_ / "exact",
              {{"a.weight", make_tensor("BF16", {256, 256}, std::vector<float>(65536, 448.0f))}},
              kPlainConfig);
  const std::string exact = (dir_ / "exact").string();
  const Outcome run = run_octavo({"quantize", exact, out_, "--measure-error"});
  EXPECT_THAT(run.out, AllOf(HasSubstr("error       lossless\n"), Not(HasSubstr("inf"))));
  EXPECT_TRUE(run_octavo({"quantize", exact, out_, "--measure-error", "--json", "--overwrite"})
                  .json()
                  .at("error")
                  .at("snr_db")
                  .is_null());
}

TEST_F(Report, TextOfFilesCannotSteerTheTerminal) {
  write_model(dir_ / "steer",
              {{"a.weight", bf16_weight(kSquare, 1)}, {"b.weight", bf16_weight(kSquare, 2)}},
              R"({"model_type": "llama", "quantization_config": {"quant_method": "x\u001b[31m",
                  "scale_fmt": "y\u001b[31m", "modules_to_not_convert": ["re:a|\u001b[31m"]}})");
  const std::string steer = (dir_ / "steer").string();
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"inspect", steer}, {"quantize", steer, "--plan"}, {"quantize", steer, out_}}) {
    const Outcome run = run_octavo(arguments);
    EXPECT_THAT(run.out + run.err, AllOf(HasSubstr("\\x1B[31m"), Not(HasSubstr("\x1b"))))
        << ::testing::PrintToString(arguments);
  }
}

TEST_F(Report, RaggedShapesAreWarnedOfOnce) {
  const TempDir dir;
  write_model(dir / "in",
              {{"a.weight", bf16_weight({576, 256}, 1)},
               {"b.weight", bf16_weight({100, 100}, 2)},
               {"c.weight", bf16_weight(kSquare, 3)}},
              kPlainConfig);
  const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(only_line(run), AllOf(HasSubstr("2 quantized weights"), HasSubstr("128x128"),
                                    HasSubstr("Transformers")));
}

TEST(Commands, OverflowSaysWhatHelps) {
  const TempDir dir;
  const auto write_source = [&](float scale) {
    const Fp8Weight weight = fp8_weight({128, 128}, 1, std::vector<float>{scale});
    const Tensor codes{"F8_E4M3", {128, 128}, Bytes(128 * 128, 0x7E)};  // 448
    write_model(dir / "in", {{"a.weight", codes}, {"a.weight_scale_inv", weight.scales}},
                kFp8Config);
  };
  const auto message_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {(dir / "in").string(), (dir / "out").string()});
    const Outcome run = run_octavo(arguments);
    EXPECT_EQ(run.status, 1);
    return only_line(run);
  };
  const auto expected = [](const std::string& dtype, const std::string& remedy) {
    return "a.weight: 16384 elements are too large for " + dtype +
           " (1 tensors overflow in all); nothing is kept" + remedy;
  };
  write_source(4096);
  EXPECT_EQ(message_of({"dequantize", "--dtype", "f16"}),
            expected("F16",
                     "; --clamp makes them its largest value, --dtype bf16 or f32 has more "
                     "range"));
  write_source(0x1p127f);
  EXPECT_EQ(message_of({"dequantize"}), expected("BF16", "; --clamp makes them its largest value"));
  EXPECT_EQ(message_of({"quantize", "--requantize", "--modules-to-not-convert", "a"}),
            expected("BF16", ""));
}

}  // namespace
}  // namespace octavo::tests
