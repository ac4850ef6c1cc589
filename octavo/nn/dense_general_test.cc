#include "octavo/nn/dense_general.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/nn/dense.h"
#include "octavo/nn/layers_testing.h"

namespace octavo::nn {
namespace {

using Shapes = std::map<std::string, Shape>;

struct Case {
  const char* name;
  DenseGeneral layer;
  Shape x, kernel, bias, y;
  const char *of_x, *of_kernel, *of_y;  // a letter per axis; of the bias: those of both last
};

std::vector<Case> cases() {
  return {
      {"one feature axis", {{5}}, {3, 4}, {4, 5}, {5}, {3, 5}, "ak", "kn", "an"},
      {"two feature axes", {{5, 2}}, {3, 4}, {4, 5, 2}, {5, 2}, {3, 5, 2}, "ak", "knm", "anm"},
      {"two axes", {{5}, {-2, -1}}, {2, 3, 4}, {3, 4, 5}, {5}, {2, 5}, "akl", "kln", "an"},
      {"in any order",
       {{5}, {3, 1}},
       {2, 3, 2, 4},
       {3, 4, 5},
       {5},
       {2, 2, 5},
       "akbl",
       "kln",
       "abn"},
      {"a middle axis", {{5}, {1}}, {2, 3, 4}, {3, 5}, {5}, {2, 4, 5}, "akb", "kn", "abn"},
      {"all axes", {{5}, {0, 1}}, {3, 4}, {3, 4, 5}, {5}, {5}, "kl", "kln", "n"},
      {"a batch", {{5}, {-1}, {0}}, {2, 3, 4}, {2, 4, 5}, {2, 5}, {2, 3, 5}, "bak", "bkn", "ban"},
      {"two batches",
       {{5}, {-2}, {1, 0}},
       {2, 3, 4, 2},
       {2, 3, 4, 5},
       {2, 3, 5},
       {2, 3, 2, 5},
       "bcka",
       "bckn",
       "bcan"},
  };
}

// The layer's value by its definition: a sum over all letters, and the bias.
Tensor by_definition(const Case& c, const Tensor& x, const Tensor& kernel, const Tensor& bias) {
  const std::string of_x = c.of_x, of_kernel = c.of_kernel, of_y = c.of_y;
  std::map<char, std::size_t> sizes, index;
  for (std::size_t i = 0; i < of_x.size(); ++i) sizes[of_x[i]] = c.x[i];
  for (std::size_t i = 0; i < of_kernel.size(); ++i) sizes[of_kernel[i]] = c.kernel[i];
  const auto at = [&](const std::string& letters) {
    std::size_t offset = 0;
    for (const char letter : letters) offset = offset * sizes[letter] + index[letter];
    return offset;
  };
  std::string of_bias;  // axes of kernel and result
  for (const char letter : of_kernel) {
    if (of_y.find(letter) != std::string::npos) of_bias += letter;
  }
  std::size_t count = 1;
  for (const auto& [letter, size] : sizes) count *= size;
  const std::vector<double> a = doubles(x), b = doubles(kernel), added = doubles(bias);
  std::vector<float> y(*element_count(c.y));
  for (std::size_t n = 0; n < count; ++n) {
    std::size_t rest = n;
    bool is_first = true;  // of those that are summed
    for (const auto& [letter, size] : sizes) {
      index[letter] = rest % size;
      rest /= size;
      is_first &= of_y.find(letter) != std::string::npos || index[letter] == 0;
    }
    y[at(of_y)] += static_cast<float>(a[at(of_x)] * b[at(of_kernel)]);
    if (is_first) y[at(of_y)] += static_cast<float>(added[at(of_bias)]);
  }
  return Tensor::from(y, c.y);
}

TEST(DenseGeneral, ShapesAndValues) {
  for (Case c : cases()) {
    SCOPED_TRACE(c.name);
    c.layer.kernel_init = integer_init(1);
    c.layer.bias_init = integer_init(2);
    const Tensor x = integers(c.x, 3);
    const Variables variables = c.layer.init(Rng(0), x);
    EXPECT_EQ(shapes_of(variables), (Shapes{{"params/bias", c.bias}, {"params/kernel", c.kernel}}));
    const Tensor y = c.layer.apply(variables, x).value();
    EXPECT_TRUE(same_bits(
        y, by_definition(c, x, variables.value("params/kernel"), variables.value("params/bias"))));
  }
}

TEST(DenseGeneral, GradientsAreCentralDifferences) {
  for (Case c : cases()) {
    SCOPED_TRACE(c.name);
    c.layer.kernel_init = integer_init(1);
    c.layer.bias_init = integer_init(2);
    c.layer.param_dtype = DType::f64;
    const Tensor x = integers(c.x, 3, DType::f64), g = integers(c.y, 4, DType::f64);
    Variables variables = c.layer.init(Rng(0), x);
    variables.set(kX, x);
    expect_gradients([&](const Variables& v) { return dot_with(c.layer.apply(v, v.at(kX)), g); },
                     variables);
  }
}

TEST(DenseGeneral, FansAreThoseOfTheMatrix) {
  Shape kernel_given, bias_given;
  DenseGeneral layer{{5, 2}, {-2, -1}, {0}};
  layer.kernel_init = [&](const Rng&, const Shape& shape, DType dtype) {
    kernel_given = shape;
    return Tensor::zeros(dtype, shape);
  };
  layer.bias_init = [&](const Rng&, const Shape& shape, DType dtype) {
    bias_given = shape;
    return Tensor::zeros(dtype, shape);
  };
  const Variables variables = layer.init(Rng(0), Tensor::zeros(DType::f32, {3, 7, 4, 6}));
  EXPECT_EQ(kernel_given, (Shape{3 * 4 * 6, 5 * 2}));
  EXPECT_EQ(bias_given, (Shape{3 * 5 * 2}));
  EXPECT_EQ(variables.value("params/kernel").shape(), (Shape{3, 4, 6, 5, 2}));
  EXPECT_EQ(variables.value("params/bias").shape(), (Shape{3, 5, 2}));
}

TEST(DenseGeneral, WithOneAxisIsDense) {
  const Tensor x = normal(Rng(1), {2, 3, 8});
  const Variables variables = Dense{.features = 4}.init(Rng(0), x);
  EXPECT_EQ(shapes_of(DenseGeneral{{4}}.init(Rng(0), x)), shapes_of(variables));
  EXPECT_TRUE(same_bits(DenseGeneral{{4}}.init(Rng(0), x).value("params/kernel"),
                        variables.value("params/kernel")));
  EXPECT_TRUE(same_bits(DenseGeneral{{4}}.apply(variables, x).value(),
                        Dense{.features = 4}.apply(variables, x).value()));
}

TEST(DenseGeneral, Refusals) {
  const Tensor x = Tensor::zeros(DType::f32, {2, 3, 4});
  const auto message = [&](const DenseGeneral& layer) -> std::string {
    try {
      layer.init(Rng(0), x);
    } catch (const ContractError& error) {
      return error.what();
    }
    return "was not refused";
  };
  EXPECT_THAT(message({{}}), testing::HasSubstr("given no features"));
  EXPECT_THAT(message({{5}, {3}}), testing::HasSubstr("given axis 3 of x [2, 3, 4]"));
  EXPECT_THAT(message({{5}, {-4}}), testing::HasSubstr("given axis -4 of x [2, 3, 4]"));
  EXPECT_THAT(message({{5}, {-1, 2}}), testing::HasSubstr("expected each once"));
  EXPECT_THAT(message({{5}, {0}, {0}}), testing::HasSubstr("with 1 batch axes"));
  EXPECT_THAT(message({{5}, {-1}, {1}}), testing::HasSubstr("given batch_dims (1)"));
  EXPECT_THAT(message({{5}, {-1}, {0, 2}}), testing::HasSubstr("leading axes 0, 1, ..."));
  constexpr std::size_t kHuge = std::size_t{1} << 33;
  EXPECT_EQ(message({{kHuge, kHuge}}),
            "DenseGeneral: given sizes [8589934592, 8589934592], expected 2^63 elements at most");
}

TEST(ComputeType, PromotesAsFlax) {
  struct Types {
    std::optional<DType> dtype;
    DType param, x, y;
  };
  const std::vector<Types> all = {
      {{}, DType::f32, DType::f32, DType::f32},
      {{}, DType::f32, DType::bf16, DType::f32},
      {{}, DType::bf16, DType::f32, DType::f32},
      {{}, DType::bf16, DType::bf16, DType::bf16},
      {{}, DType::f16, DType::bf16, DType::f32},
      {{}, DType::f32, DType::i32, DType::f32},
      {{}, DType::bf16, DType::i32, DType::bf16},
      {DType::bf16, DType::f32, DType::f32, DType::bf16},
      {DType::f32, DType::bf16, DType::bf16, DType::f32},
      {DType::f16, DType::f32, DType::i32, DType::f16},
  };
  for (const Types& types : all) {
    const DenseGeneral layer{.features = {2}, .dtype = types.dtype, .param_dtype = types.param};
    const Tensor x = types.x == DType::i32
                         ? Tensor::from_ids(std::vector<std::int32_t>{1, 2}, {1, 2})
                         : Tensor::ones(types.x, {1, 2});
    const Variables variables = layer.init(Rng(0), x);
    EXPECT_EQ(variables.at("params/kernel").dtype(), types.param);
    EXPECT_EQ(layer.apply(variables, x).dtype(), types.y)
        << dtype_name(types.param) << " x " << dtype_name(types.x);
  }
}

TEST(ComputeType, RefusesIntegers) {
  const Tensor x = Tensor::ones(DType::f32, {1, 2});
  EXPECT_THROW((Dense{.features = 2, .dtype = DType::i32}.init(Rng(0), x)), ContractError);
  EXPECT_THROW((DenseGeneral{.features = {2}, .dtype = DType::i32}.init(Rng(0), x)), ContractError);
}

}  // namespace
}  // namespace octavo::nn
