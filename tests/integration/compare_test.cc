// octavo compare: verdicts and figures on built checkpoints, against an evaluation of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <sstream>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr Extent kRagged{200, 300};
constexpr const char* kName = "model.layers.0.mlp.up_proj.weight";
constexpr const char* kScale = "model.layers.0.mlp.up_proj.weight_scale_inv";

template <class Element>
Tensor tensor_of(std::string_view dtype, Dims shape, const std::vector<Element>& elements) {
  Tensor tensor{std::string(dtype), std::move(shape), Bytes(elements.size() * sizeof(Element))};
  if (!elements.empty()) std::memcpy(tensor.bytes.data(), elements.data(), tensor.bytes.size());
  return tensor;
}

class Compare : public ::testing::Test {
 protected:
  std::string path(std::string_view name) const { return (dir_ / name).string(); }

  Outcome run(const Tensors& a, const Tensors& b, std::vector<std::string> more = {}) {
    write_model(dir_ / "a", a, a.contains(kScale) ? kFp8Config : kPlainConfig);
    write_model(dir_ / "b", b, b.contains(kScale) ? kFp8Config : kPlainConfig);
    more.insert(more.begin(), {"compare", path("a"), path("b")});
    return run_octavo(more);
  }

  // The only tensor of both.
  Json only(const Tensors& a, const Tensors& b) {
    const Outcome outcome = run(a, b, {"--json"});
    const Json json = outcome.json();
    EXPECT_EQ(json.at("tensors").size(), 1u) << outcome.out;
    EXPECT_EQ(outcome.status, json.at("equal") == true ? 0 : 3) << outcome.err;
    return json.at("tensors").at(0);
  }
  Json only(const Tensor& a, const Tensor& b) { return only(Tensors{{"x", a}}, {{"x", b}}); }
  std::string verdict(const Tensor& a, const Tensor& b) { return only(a, b).at("verdict"); }

  TempDir dir_;
};

// What the figures of finite values must be. Sums of n terms in any order, in double or wider, are
// within n x 2^-53 of their terms' magnitudes.
void expect_figures(const Json& tensor, const std::vector<float>& a, const std::vector<float>& b) {
  long double aa = 0;
  long double bb = 0;
  long double ab = 0;
  long double abs_ab = 0;
  long double dd = 0;
  double max_abs = 0;
  std::uint64_t differing = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const long double x = a[i];
    const long double y = b[i];
    aa += x * x;
    bb += y * y;
    ab += x * y;
    abs_ab += std::fabs(x * y);
    dd += (x - y) * (x - y);
    max_abs = std::max(max_abs, std::fabs(static_cast<double>(a[i]) - b[i]));
    if (a[i] != b[i]) ++differing;
  }
  const double n = static_cast<double>(a.size());
  const double relative = (n + 4) * 0x1p-53;  // of a sum; 4: the operations on sums
  const auto rms = static_cast<double>(std::sqrt(dd / n));
  EXPECT_NEAR(tensor.at("rms").get<double>(), rms, rms * relative);
  const auto snr = static_cast<double>(10 * std::log10(aa / dd));
  EXPECT_NEAR(tensor.at("snr_db").get<double>(), snr,
              10 / std::log(10.0) * 2 * relative + std::fabs(snr) * relative);
  const auto norm = static_cast<double>(std::sqrt(aa) * std::sqrt(bb));
  EXPECT_NEAR(tensor.at("cosine").get<double>(), static_cast<double>(ab) / norm,
              static_cast<double>(abs_ab) / norm * relative + 2 * relative);
  EXPECT_EQ(tensor.at("max_abs"), max_abs);
  EXPECT_EQ(tensor.at("elements"), a.size());
  EXPECT_EQ(tensor.at("differing"), differing);
  EXPECT_EQ(tensor.at("non_finite"), 0);
  const std::vector<std::uint64_t> index = tensor.at("worst").at("index");
  const std::vector<std::uint64_t> shape = tensor.at("a").at("shape");
  std::size_t flat = 0;
  for (std::size_t i = 0; i < index.size(); ++i) flat = flat * shape[i] + index[i];
  EXPECT_EQ(tensor.at("worst").at("a"), a[flat]);
  EXPECT_EQ(tensor.at("worst").at("b"), b[flat]);
  EXPECT_EQ(std::fabs(static_cast<double>(a[flat]) - b[flat]), max_abs);
}

Tensors quantized(const Tensor& wide, const Recipe& recipe) {
  const QuantizedTensors result = expected_quantized(wide, recipe);
  return {{kName, result.codes}, {kScale, result.scales}};
}

std::vector<float> values_of_quantized(const Tensors& tensors) {
  return dequantize(tensors.at(kName).bytes, Fp8::e4m3fn,
                    {tensors.at(kName).shape[0], tensors.at(kName).shape[1]},
                    values_of(tensors.at(kScale)), 128, 128);
}

TEST_F(Compare, AQuantizedDirectoryIsItsSourceRounded) {
  for (const bool heavy : {false, true}) {
    const std::vector<float> values = heavy ? heavy_tailed(kRagged, 1) : gaussian(kRagged, 2);
    const Tensor wide = make_tensor("BF16", {kRagged.rows, kRagged.cols}, values);
    for (const Rule rule : kAllRules) {
      for (const bool ue8m0 : {false, true}) {
        SCOPED_TRACE(std::string(rule_name(rule)) + (ue8m0 ? " ue8m0" : ""));
        const Tensors fp8 = quantized(wide, {.rule = rule, .ue8m0 = ue8m0});
        const Json tensor = only(Tensors{{kName, wide}}, fp8);
        EXPECT_EQ(tensor.at("verdict"), "rounded");
        expect_figures(tensor, values, values_of_quantized(fp8));
        EXPECT_EQ(only(fp8, Tensors{{kName, wide}}).at("verdict"), "rounded");
      }
    }
  }
}

// Where 448 / amax overflows and scales are subnormal floats.
TEST_F(Compare, TinyValuesAreRoundedToo) {
  std::vector<float> values(64 * 64);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(static_cast<float>(i % 509) - 254.0f, -142);
  const Tensor wide = make_tensor("F32", {64, 64}, values);
  for (const Rule rule : kAllRules) {
    const Tensors fp8 = quantized(wide, {.rule = rule});
    EXPECT_EQ(only(Tensors{{kName, wide}}, fp8).at("verdict"), "rounded") << rule_name(rule);
  }
}

TEST_F(Compare, OneWrongCodeIsDifferentAndNamed) {
  const Tensor wide = bf16_weight(kRagged, 3);
  const std::vector<float> values = values_of(wide);
  const Tensors fp8 = quantized(wide, {});
  // The neighbouring code: the least that can be wrong. The source lies nearer to its own code.
  for (const std::size_t at : {0, 301, 40'000, 59'999}) {
    Tensors wrong = fp8;
    std::uint8_t& code = wrong.at(kName).bytes[at];
    code = static_cast<std::uint8_t>((code & 0x7F) < 0x7E ? code + 1 : code - 1);
    EXPECT_EQ(only(Tensors{{kName, wide}}, wrong).at("verdict"), "different") << at;
  }
  // The largest code of the other sign: no other element is as far off in a block of this scale.
  const std::vector<float> scales = values_of(fp8.at(kScale));
  const std::size_t block =
      static_cast<std::size_t>(std::max_element(scales.begin(), scales.end()) - scales.begin());
  const std::uint64_t row = block / 3 * 128 + 5;
  const std::uint64_t col = block % 3 * 128 + 7;
  Tensors wrong = fp8;
  std::uint8_t& code = wrong.at(kName).bytes[row * kRagged.cols + col];
  code = static_cast<std::uint8_t>((code & 0x80) != 0 ? 0x7E : 0xFE);
  const Json tensor = only(Tensors{{kName, wide}}, wrong);
  EXPECT_EQ(tensor.at("verdict"), "different");
  EXPECT_EQ(tensor.at("worst").at("index"), Json({row, col}));
  expect_figures(tensor, values, values_of_quantized(wrong));
}

TEST_F(Compare, OneDoubledScaleIsDifferent) {
  const Tensor wide = bf16_weight(kRagged, 4);
  const Tensors fp8 = quantized(wide, {});
  std::vector<float> scales = values_of(fp8.at(kScale));
  scales[4] *= 2;
  Tensors wrong = fp8;
  wrong.at(kScale) = make_tensor("F32", fp8.at(kScale).shape, scales);
  EXPECT_EQ(only(Tensors{{kName, wide}}, wrong).at("verdict"), "different");
  const Json tensor = only(fp8, wrong);  // the same codes
  EXPECT_EQ(tensor.at("verdict"), "different");
  expect_figures(tensor, values_of_quantized(fp8), values_of_quantized(wrong));
}

TEST_F(Compare, TheSameNumbersInOtherLayoutsAreEqual) {
  const Bytes codes = random_codes(kRagged, Fp8::e4m3fn, 5);
  const Tensor weight{"F8_E4M3", {200, 300}, codes};
  const auto side = [&](const Tensor& scale) { return Tensors{{kName, weight}, {kScale, scale}}; };
  const std::vector<float> same(6, 0.375f);
  const Tensors blocks = side(make_tensor("F32", {2, 3}, same));
  const Tensors per_tensor = side(make_tensor("F32", {}, std::vector{0.375f}));
  const Tensors per_row = side(make_tensor("BF16", {200, 1}, std::vector<float>(200, 0.375f)));
  EXPECT_EQ(only(blocks, per_tensor).at("verdict"), "equal_values");
  EXPECT_EQ(only(per_row, blocks).at("verdict"), "equal_values");
  const std::vector<float> powers = power_of_two_scales(6);
  const Tensors exponents = side(e8m0_tensor({2, 3}, powers));
  const Tensors floats = side(make_tensor("F32", {2, 3}, powers));
  EXPECT_EQ(only(exponents, floats).at("verdict"), "equal_values");
  EXPECT_EQ(only(exponents, exponents).at("verdict"), "equal_bits");
  const Tensor values =
      make_tensor("F32", {200, 300}, dequantize(codes, Fp8::e4m3fn, kRagged, powers, 128, 128));
  const Json tensor = only(exponents, Tensors{{kName, values}});
  EXPECT_EQ(tensor.at("verdict"), "equal_values");
  EXPECT_EQ(tensor.at("rms"), 0);
  EXPECT_EQ(tensor.at("snr_db"), nullptr);
  EXPECT_EQ(tensor.at("cosine"), 1);
  EXPECT_EQ(tensor.at("a").at("scale").at("dtype"), "F8_E8M0");
  EXPECT_EQ(tensor.at("a").at("scale").at("block"), Json({128, 128}));
  EXPECT_EQ(tensor.at("b").at("scale"), nullptr);
}

TEST_F(Compare, PackedFourBitAndFusedExperts) {
  constexpr Extent kSlice{40, 64};
  const Bytes packed = random_codes({3 * kSlice.rows, kSlice.cols / 2}, Fp8::e5m2, 6);
  const std::vector<float> scales = power_of_two_scales(3 * kSlice.rows * 2);
  std::vector<float> values;
  for (std::size_t i = 0; i < 3 * kSlice.count(); ++i) {
    const int nibble = i % 2 == 0 ? packed[i / 2] & 15 : packed[i / 2] >> 4;
    values.push_back(static_cast<float>(decode_e2m1(static_cast<std::uint8_t>(nibble))) *
                     scales[i / 32]);
  }
  const Tensors fp4 = {{"x.experts.down_proj", {"I8", {3, 40, 32}, packed}},
                       {"x.experts.down_proj_scale_inv", e8m0_tensor({3, 40, 2}, scales)}};
  const auto plain = [&] {
    return Tensors{{"x.experts.down_proj", make_tensor("BF16", {3, 40, 64}, values)}};
  };
  EXPECT_EQ(only(fp4, plain()).at("verdict"), "equal_values");
  values[2 * kSlice.count() + 65] += 0.25f * scales[(2 * kSlice.count() + 65) / 32];
  const Json rounded = only(fp4, plain());
  EXPECT_EQ(rounded.at("verdict"), "rounded");
  EXPECT_EQ(rounded.at("worst").at("index"), Json({2, 1, 1}));
  values[2 * kSlice.count() + 65] += 2 * scales[(2 * kSlice.count() + 65) / 32];
  EXPECT_EQ(only(fp4, plain()).at("verdict"), "different");
}

// Wider than a window: its second half begins within a block.
TEST_F(Compare, RowsWiderThanAWindow) {
  constexpr Extent kWide{3, 140'000};
  const Tensor wide = bf16_weight(kWide, 12);
  const Tensors fp8 = quantized(wide, {.block_cols = 48});
  const Json tensor = run({{kName, wide}}, fp8, {"--json", "--weight-block-size", "128,48"})
                          .json()
                          .at("tensors")
                          .at(0);
  EXPECT_EQ(tensor.at("verdict"), "rounded");
  expect_figures(
      tensor, values_of(wide),
      dequantize(fp8.at(kName).bytes, Fp8::e4m3fn, kWide, values_of(fp8.at(kScale)), 128, 48));
}

TEST_F(Compare, WideFormats) {
  const std::vector<float> values = gaussian(kRagged, 7);
  const Tensor bf16 = make_tensor("BF16", {kRagged.count()}, values);
  EXPECT_EQ(verdict(bf16, make_tensor("F32", {kRagged.count()}, values)), "equal_values");
  std::vector<float> fine = values;
  for (float& x : fine) x *= 1.0f + 0x1p-12f;
  const Tensor f32 = make_tensor("F32", {kRagged.count()}, fine);
  EXPECT_EQ(verdict(f32, make_tensor("BF16", {kRagged.count()}, fine)), "rounded");
  const Json tensor = only(f32, make_tensor("F16", {kRagged.count()}, fine));
  EXPECT_EQ(tensor.at("verdict"), "rounded");
  expect_figures(tensor, fine, values_of(make_tensor("F16", {kRagged.count()}, fine)));
  // Neighbours in one format are no rounding, also at a power of two.
  EXPECT_EQ(verdict(make_tensor("BF16", {1}, std::vector{2.0f}),
                    make_tensor("BF16", {1}, std::vector{2.0f - 0x1p-7f})),
            "different");
  EXPECT_EQ(verdict(make_tensor("F32", {1}, std::vector{2.0f - 0x1p-8f}),
                    make_tensor("BF16", {1}, std::vector{2.0f})),
            "rounded");
}

TEST_F(Compare, IntegersAndDoublesAreExact) {
  const std::int64_t large = (std::int64_t{1} << 62) + 1;
  const Json integers = only(tensor_of<std::int64_t>("I64", {2}, {large, -5}),
                             tensor_of<std::int64_t>("I64", {2}, {large - 1, -5}));
  EXPECT_EQ(integers.at("verdict"), "different");
  EXPECT_EQ(integers.at("max_abs"), 1);
  EXPECT_EQ(verdict(tensor_of<std::int64_t>("I64", {2}, {7, -5}),
                    tensor_of<std::int32_t>("I32", {2}, {7, -5})),
            "equal_values");
  EXPECT_EQ(verdict(make_tensor("F32", {2}, std::vector{7.5f, -5.0f}),
                    tensor_of<std::int32_t>("I32", {2}, {7, -5})),
            "rounded");
  EXPECT_EQ(verdict(tensor_of<double>("F64", {1}, {1.0 / 3}),
                    make_tensor("F32", {1}, std::vector{1.0f / 3})),
            "rounded");
  // Squares that no double holds.
  const Json huge = only(tensor_of<double>("F64", {2}, {1.5e308, -1e-310}),
                         tensor_of<double>("F64", {2}, {-1.5e308, 1e-310}));
  EXPECT_EQ(huge.at("verdict"), "different");
  EXPECT_EQ(huge.at("max_abs"), std::numeric_limits<double>::max());
  EXPECT_NEAR(huge.at("snr_db").get<double>(), 10 * std::log10(0.25), 0x1p-50);
  EXPECT_EQ(huge.at("cosine"), -1);
  // Rounding at and beyond the largest doubles.
  const Json large_floats = only(make_tensor("F32", {2}, std::vector{3e38f, -3e38f}),
                                 make_tensor("F32", {2}, std::vector{-3e38f, 3e38f}));
  EXPECT_EQ(large_floats.at("max_abs"), 2 * static_cast<double>(3e38f));
  EXPECT_EQ(large_floats.at("cosine"), -1);
}

TEST_F(Compare, NothingZeroAndNotFinite) {
  const float nan = std::nanf("");
  const Tensor scalar = make_tensor("F32", {}, std::vector{2.5f});
  EXPECT_EQ(verdict(scalar, scalar), "equal_bits");
  EXPECT_EQ(only(scalar, make_tensor("F32", {}, std::vector{3.5f})).at("worst").at("index"),
            Json::array());
  const Tensor empty{"F32", {0, 3}, {}};
  EXPECT_EQ(verdict(empty, empty), "equal_bits");
  EXPECT_EQ(verdict(empty, Tensor{"BF16", {0, 3}, {}}), "equal_values");
  EXPECT_EQ(verdict(empty, Tensor{"F32", {3, 0}, {}}), "different");

  const Tensor zeros = make_tensor("F32", {2}, std::vector{0.0f, 0.0f});
  EXPECT_EQ(verdict(zeros, make_tensor("F32", {2}, std::vector{-0.0f, 0.0f})), "equal_values");
  const Json from_zero = only(zeros, make_tensor("F32", {2}, std::vector{0.0f, 1.0f}));
  EXPECT_EQ(from_zero.at("verdict"), "different");
  EXPECT_EQ(from_zero.at("snr_db"), nullptr);  // minus infinity
  EXPECT_EQ(from_zero.at("cosine"), 0);

  const Tensor special = make_tensor("F32", {4}, std::vector{nan, HUGE_VALF, -HUGE_VALF, 1.0f});
  EXPECT_EQ(
      verdict(special, make_tensor("BF16", {4}, std::vector{nan, HUGE_VALF, -HUGE_VALF, 1.0f})),
      "equal_values");
  const Json mixed =
      only(special, make_tensor("F32", {4}, std::vector{nan, -HUGE_VALF, -1.0f, 1.0f}));
  EXPECT_EQ(mixed.at("verdict"), "different");
  EXPECT_EQ(mixed.at("non_finite"), 2);
  EXPECT_EQ(mixed.at("differing"), 2);
  EXPECT_EQ(mixed.at("max_abs"), 0);
  EXPECT_EQ(mixed.at("worst"), (Json{{"index", {1}}, {"a", "inf"}, {"b", "-inf"}}));
}

TEST_F(Compare, ShapesAndMissingTensors) {
  const Tensor x = make_tensor("F32", {2, 3}, std::vector<float>(6, 1.0f));
  const Tensor turned = make_tensor("F32", {3, 2}, std::vector<float>(6, 1.0f));
  const Outcome outcome = run({{"x", x}, {"left", x}, {"same", x}},
                              {{"x", turned}, {"right", x}, {"same", x}}, {"--json"});
  EXPECT_EQ(outcome.status, 3);
  const Json json = outcome.json();
  std::vector<std::string> order;
  for (const Json& tensor : json.at("tensors")) {
    order.push_back(tensor.at("name").get<std::string>() + " " +
                    tensor.at("verdict").get<std::string>());
  }
  EXPECT_EQ(order, (std::vector<std::string>{"left missing", "right missing", "x different",
                                             "same equal_bits"}));
  EXPECT_EQ(json.at("tensors")[0].at("b"), nullptr);
  EXPECT_EQ(json.at("tensors")[1].at("a"), nullptr);
  EXPECT_EQ(json.at("tensors")[2].at("max_abs"), nullptr);
  EXPECT_EQ(json.at("equal"), false);
  EXPECT_EQ(json.at("summary").at("missing"), 2);
  EXPECT_EQ(json.at("summary").at("differences"), 3);
  const std::string table = run({{"x", x}, {"left", x}}, {{"x", turned}}).out;
  EXPECT_THAT(table, AllOf(HasSubstr("left  (not in B)"), HasSubstr("x  ([2, 3] / [3, 2])")));
}

TEST_F(Compare, ScalesBelongToTheirWeight) {
  const Fp8Weight weight = fp8_weight(kRagged, 8);
  const Tensor scalar = make_tensor("F32", {}, std::vector{0.5f});
  const Tensors fp8 = {{kName, weight.codes}, {kScale, weight.scales}};
  Tensors with_activation = fp8;
  with_activation["model.layers.0.mlp.up_proj.input_scale"] = scalar;
  // Against a model without quantized weights they say nothing; between two that have them they do.
  EXPECT_EQ(only(with_activation, Tensors{{kName, as_bf16(weight)}}).at("verdict"), "rounded");
  EXPECT_EQ(run(with_activation, fp8, {"--json"}).json().at("summary").at("missing"), 1);
  // A scale without a weight is a tensor of its own, with a warning.
  Tensors orphan = fp8;
  orphan["lonely.weight_scale_inv"] = scalar;
  const Outcome outcome = run(orphan, fp8, {"--json"});
  EXPECT_EQ(outcome.json().at("summary").at("missing"), 1);
  EXPECT_THAT(outcome.err, HasSubstr("lonely.weight_scale_inv"));
  // Scales that do not fit are compared apart from their codes: nothing is lost silently.
  Tensors unfit = fp8;
  unfit.at(kScale) = make_tensor("F32", {3, 3}, std::vector<float>(9, 1.0f));
  const Json same = run(unfit, unfit, {"--json"}).json();
  EXPECT_EQ(same.at("summary").at("equal_bits"), 2);
  Tensors other = unfit;
  other.at(kScale) = make_tensor("F32", {3, 3}, std::vector<float>(9, 2.0f));
  EXPECT_EQ(run(unfit, other, {"--json"}).json().at("summary").at("different"), 1);
}

TEST_F(Compare, HelpAndBadUsage) {
  const Outcome help = run_octavo({"compare", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("\n  octavo compare"), HasSubstr("--min-snr DB")));
  std::istringstream lines(help.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_EQ(run_octavo({"compare", path("a")}).status, 2);
  EXPECT_EQ(run_octavo({"compare", path("a"), path("b"), "--min-snr", "loud"}).status, 2);
  const Outcome absent = run_octavo({"compare", path("a"), path("b")});
  EXPECT_EQ(absent.status, 1);
  EXPECT_THAT(only_line(absent), HasSubstr(path("a")));
}

TEST_F(Compare, MinimalSnr) {
  const Tensor wide = bf16_weight(kRagged, 9);
  const Tensors fp8 = quantized(wide, {});
  const double snr = only(Tensors{{kName, wide}}, fp8).at("snr_db");
  const auto status = [&](const Tensors& b, double least) {
    return run({{kName, wide}}, b, {"-q", "--min-snr", std::to_string(least)}).status;
  };
  EXPECT_EQ(status(fp8, snr - 0.01), 0);
  EXPECT_EQ(status(fp8, snr + 0.01), 3);
  Tensors more = fp8;
  more["extra"] = wide;
  EXPECT_EQ(status(more, 0), 3);
}

TEST_F(Compare, TheSameResultForEveryNumberOfThreads) {
  const Extent large{700, 1100};  // several windows
  const Tensor wide = bf16_weight(large, 10);
  Tensors a = {{kName, wide}, {"y", make_tensor("F32", {77}, std::vector<float>(77, 0.1f))}};
  Tensors b = quantized(wide, {});
  b["y"] = make_tensor("F32", {77}, std::vector<float>(77, 0.2f));
  const std::string one = run(a, b, {"--json", "--threads", "1"}).out;
  for (const char* threads : {"2", "3"}) {
    EXPECT_EQ(run(a, b, {"--json", "--threads", threads}).out, one) << threads;
  }
  for (const std::string& level : kernel_levels()) {
    EXPECT_EQ(
        run_octavo({"compare", path("a"), path("b"), "--json"}, "OCTAVO_CPU=" + level + " ").out,
        one)
        << level;
  }
}

TEST_F(Compare, ADirectoryIsEqualToItself) {
  const Fp8Weight weight = fp8_weight(kRagged, 11);
  Tensors tensors = {{kName, weight.codes}, {kScale, weight.scales}};
  for (const char* layer : {"0", "1", "2"}) {
    tensors["model.layers." + std::string(layer) + ".norm.weight"] =
        make_tensor("BF16", {8}, std::vector<float>(8, 1.0f));
  }
  const Outcome outcome = run(tensors, tensors);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("model.layers.*.norm.weight  (3 tensors)"),
                                 HasSubstr("4 tensors: 4 equal_bits, 0 equal_values")));
  EXPECT_THAT(run(tensors, tensors, {"--all"}).out, HasSubstr("model.layers.2.norm.weight\n"));
}

TEST_F(Compare, ThePageStandsAloneAndEscapesNames) {
  const Tensor x = make_tensor("F32", {2}, std::vector{1.0f, 2.0f});
  const Tensor y = make_tensor("F32", {2}, std::vector{1.0f, 2.5f});
  const std::string hostile = "model.layers.0.<script>alert(\"1\")</script>&'\n\x01.weight";
  const Tensors a = {{hostile, x}, {"model.layers.1.mlp.weight", x}, {"<b>.weight", x}};
  const Tensors b = {{hostile, y}, {"<b>.weight", x}};
  const std::string page = path("report.html");
  EXPECT_EQ(run(a, b, {"-q", "--html", page}).status, 3);
  const std::string html = read_string(page);
  EXPECT_THAT(html, AllOf(HasSubstr("<!DOCTYPE html>"), HasSubstr("<svg"), HasSubstr("<title>"),
                          HasSubstr("prefers-color-scheme: dark"), HasSubstr("</html>")));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("http")), Not(HasSubstr("url(")),
                          Not(HasSubstr("<b>.")), Not(HasSubstr("\x01")), Not(HasSubstr("src="))));
  EXPECT_THAT(html,
              HasSubstr("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;\\x0A\\x01"));
  EXPECT_THAT(html,
              AllOf(HasSubstr("class=\"cell missing\""), HasSubstr("class=\"cell equal_bits\"")));
  EXPECT_FALSE(fs::exists(dir_ / ".report.html.partial"));
}

TEST_F(Compare, ThePageShowsExpertsAsTheirWorst) {
  const auto expert = [](int layer, int number) {
    return "model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(number) +
           ".w1.weight";
  };
  Tensors a;
  for (const int layer : {9, 10})
    for (const int number : {0, 1, 2})
      a[expert(layer, number)] = make_tensor("F32", {1}, std::vector{1.0f});
  Tensors b = a;
  b[expert(10, 1)] = make_tensor("F32", {1}, std::vector{1.1f});
  b[expert(10, 2)] = make_tensor("F32", {1}, std::vector{2.0f});
  run(a, b, {"-q", "--html", path("report.html")});
  const std::string html = read_string(path("report.html"));
  EXPECT_THAT(html, HasSubstr("3 tensors, the worst: " + expert(10, 2)));
  EXPECT_THAT(html, HasSubstr(">mlp.experts.*.w1</text>"));
  EXPECT_LT(html.find(">9</text>"), html.find(">10</text>"));  // numbers as numbers
}

TEST_F(Compare, ThePageNeverReplacesAnInput) {
  const Tensors tensors = {{"x", make_tensor("F32", {1}, std::vector{1.0f})}};
  EXPECT_EQ(run(tensors, tensors).status, 0);
  fs::create_symlink(dir_ / "b" / "model.safetensors", dir_ / "link.html");
  const Bytes before = read_bytes(dir_ / "b" / "model.safetensors");
  for (const std::string& target : {path("a/model.safetensors"), path("a/../b/config.json"),
                                    path("link.html"), path("a"), path("nowhere/report.html")}) {
    const Outcome outcome = run_octavo({"compare", path("a"), path("b"), "--html", target});
    EXPECT_EQ(outcome.status, 2) << target;
    EXPECT_THAT(only_line(outcome), HasSubstr(target));
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(read_bytes(dir_ / "b" / "model.safetensors"), before);
}

TEST_F(Compare, ThePageReplacesOnlyRegularFiles) {
  const Tensors tensors = {{"x", make_tensor("F32", {1}, std::vector{1.0f})}};
  EXPECT_EQ(run(tensors, tensors).status, 0);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", dir_ / "link-to-pipe");
  for (const std::string& target : {path("pipe"), path("link-to-pipe")}) {
    const Outcome outcome = run_octavo({"compare", path("a"), path("b"), "--html", target});
    EXPECT_EQ(outcome.status, 2) << target;
    EXPECT_THAT(only_line(outcome), HasSubstr("--html " + target + ": not a regular file"));
  }
  EXPECT_TRUE(fs::is_fifo(dir_ / "pipe"));
  EXPECT_TRUE(fs::is_symlink(dir_ / "link-to-pipe"));

  write_string(dir_ / "pages" / "old.html", "old");
  fs::create_symlink("pages/old.html", dir_ / "link-to-page");
  EXPECT_EQ(run_octavo({"compare", path("a"), path("b"), "--html", path("link-to-page")}).status,
            0);
  EXPECT_TRUE(fs::is_symlink(dir_ / "link-to-page"));
  EXPECT_THAT(read_string(dir_ / "pages" / "old.html"), HasSubstr("</html>"));
}

}  // namespace
}  // namespace octavo::tests
