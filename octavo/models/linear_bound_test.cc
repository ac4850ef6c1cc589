// Every linear layer of FP8 checkpoints against f64, on the codes and scales that are in the file
// and those that its input gets: within what the roundings of order C can do.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/base/ceil_div.h"
#include "octavo/formats/values.h"
#include "octavo/models/models_testing.h"
#include "octavo/nn/linear.h"
#include "octavo/quant/block.h"

namespace octavo::models {
namespace {

using namespace octavo::testing;

constexpr std::size_t kRows = 5;

std::uint8_t byte_at(const RawTensor& tensor, std::size_t i) {
  return static_cast<std::uint8_t>(tensor.bytes[i]);
}

// Entry i of scales in F32 or F8_E8M0.
double scale_at(const RawTensor& scales, std::size_t i) {
  if (scales.dtype == "F8_E8M0") return std::ldexp(1.0, byte_at(scales, i) - 127);
  float value = 0;
  std::memcpy(&value, scales.bytes.data() + i * sizeof value, sizeof value);
  return static_cast<double>(value);
}

double value_of(std::uint8_t code) {
  return static_cast<double>(E4m3fn::from_bits(code).to_float());
}

// A relative error of `count` roundings, one after another.
double rounded(std::size_t count) {
  const double u = 0x1p-24 * static_cast<double>(count);
  return u / (1 - u);
}

struct Input {
  std::vector<float> x;             // (kRows, cols)
  std::vector<std::uint8_t> codes;  // of it
  std::vector<float> scales;        // (kRows, ceil(cols / group))
};

Input some_input(std::mt19937& random, std::size_t cols, std::size_t group) {
  std::normal_distribution<float> normal;
  Input input{std::vector<float>(kRows * cols), std::vector<std::uint8_t>(kRows * cols),
              std::vector<float>(kRows * ceil_div(cols, group))};
  for (float& x : input.x) x = normal(random);
  const auto bad = quantize_blocks(kernels::cast_kernels(Isa::generic),
                                   {Format::f32, input.x.data(), kRows, cols, cols},
                                   {{1, group}, ScaleRule::deepseek, ScaleFormat::float32},
                                   {input.codes.data(), cols}, input.scales, false);
  EXPECT_FALSE(bad);
  return input;
}

// Most of |result - exact| / bound over the outputs of a layer.
double expect_within_bound(const nn::Linear& layer, const RawTensor& codes, const RawTensor& scales,
                           std::size_t block, std::mt19937& random) {
  const std::size_t n = codes.shape.at(0), k = codes.shape.at(1);
  const std::size_t blocks = ceil_div(k, block);
  const Input input = some_input(random, k, block);
  ThreadPool pool(1);
  const Context context{&pool};
  nn::Arena arena;
  const nn::Step step{arena, nn::ActivationType::fp8, context};
  const nn::Value x = step.value(kRows, k);
  std::ranges::copy(input.x, x.data);
  const nn::Value y = nn::linear(step, x, layer);
  double most = 0;
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t out = 0; out < n; ++out) {
      const double bias = layer.bias.empty() ? 0 : static_cast<double>(layer.bias[out]);
      double exact = bias, sizes = std::abs(bias);
      for (std::size_t i = 0; i < k; ++i) {
        const double term = value_of(input.codes[row * k + i]) *
                            static_cast<double>(input.scales[row * blocks + i / block]) *
                            value_of(byte_at(codes, out * k + i)) *
                            scale_at(scales, out / block * blocks + i / block);
        exact += term;
        sizes += std::abs(term);
      }
      // A term: the sums of its block, the product of two scales, by which the sum is multiplied,
      // the sum of blocks, the bias.
      const double bound = rounded(std::min(block, k) + 2 + blocks + 1) * sizes;
      const double error = std::abs(static_cast<double>(y.row(row)[out]) - exact);
      EXPECT_LE(error, bound) << row << ", " << out;
      if (bound > 0) most = std::max(most, error / bound);
    }
  }
  return most;
}

class LinearBound : public DirectoryTest {};

TEST_F(LinearBound, HoldsForEveryLayerOfFp8Checkpoints) {
  const std::pair<BlockSize, ScaleFormat> recipes[] = {{{128, 128}, ScaleFormat::float32},
                                                       {{32, 32}, ScaleFormat::ue8m0}};
  std::mt19937 random(9);
  for (const char* name : kTinyModels) {
    for (const auto& [block, format] : recipes) {
      QuantizeOptions options;
      options.recipe = {block, ScaleRule::transformers, format};
      if (format == ScaleFormat::ue8m0) options.scale_dtype = DType::f8_e8m0;
      const Checkpoint source = must(open_checkpoint(golden_models() / name));
      const std::filesystem::path directory = directory_ / (name + std::to_string(block.cols));
      must(quantize_checkpoint(source, must(plan_quantize(source, options)), options, {},
                               directory));
      ModelFiles files = read_files(directory);
      const LoadedModel loaded = load(directory);
      std::size_t layers = 0;
      double most = 0;
      for (const NamedLinear& linear : linear_layers(loaded.model)) {
        if (!files.tensors.contains(linear.name + ".weight_scale_inv")) continue;  // the head
        SCOPED_TRACE(std::string(name) + " " + linear.name);
        most = std::max(most, expect_within_bound(*linear.layer, files.at(linear.name + ".weight"),
                                                  files.at(linear.name + ".weight_scale_inv"),
                                                  block.cols, random));
        ++layers;
      }
      EXPECT_EQ(layers, 14u);
      EXPECT_GT(most, 0.0);  // not compared with itself
    }
  }
}

}  // namespace
}  // namespace octavo::models
