// The gradient of every rule against central differences in double.
#include <filesystem>
#include <fstream>
#include <set>

#include "octavo/autograd/attention.h"
#include "octavo/autograd/autograd_testing.h"
#include "octavo/autograd/checkpoint.h"
#include "octavo/autograd/cross_entropy.h"
#include "octavo/autograd/dot_general.h"
#include "octavo/autograd/dropout.h"
#include "octavo/autograd/einsum.h"
#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/norm.h"
#include "octavo/autograd/rope.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/softmax.h"
#include "octavo/autograd/take.h"

namespace octavo::testing {
namespace {

using Inputs = std::span<const Variable>;

struct Rule {
  std::string operation;  // as it is recorded
  std::string detail;
  std::vector<Shape> inputs;
  VariableFunction f;
};

std::vector<Rule> rules_of_elements() {
  return {
      // Exact in f32 too: see grid().
      {"cast",
       "to f32 and back",
       {{2, 3}},
       [](Inputs x) { return cast(cast(x[0], DType::f32), DType::f64); }},
      {"add", "", {{2, 3}, {2, 3}}, [](Inputs x) { return x[0] + x[1]; }},
      {"add", "trailing axes repeat", {{2, 3}, {3}}, [](Inputs x) { return x[0] + x[1]; }},
      {"add", "both repeat", {{2, 1, 3}, {4, 1}}, [](Inputs x) { return x[0] + x[1]; }},
      {"sub", "", {{2, 3}, {2, 3}}, [](Inputs x) { return x[0] - x[1]; }},
      {"sub", "a scalar", {{}, {2, 3}}, [](Inputs x) { return x[0] - x[1]; }},
      {"mul", "", {{2, 3}, {2, 3}}, [](Inputs x) { return x[0] * x[1]; }},
      {"mul", "middle axis repeats", {{2, 3, 2}, {2, 1, 2}}, [](Inputs x) { return x[0] * x[1]; }},
      {"mul", "with itself", {{3}}, [](Inputs x) { return x[0] * x[0]; }},
      {"scale", "", {{3}}, [](Inputs x) { return scale(x[0], -1.75); }},
      {"relu", "", {{8}}, [](Inputs x) { return relu(x[0]); }},
      {"silu", "", {{8}}, [](Inputs x) { return silu(x[0]); }},
      {"gelu", "tanh", {{8}}, [](Inputs x) { return gelu(x[0]); }},
      {"gelu", "erf", {{8}}, [](Inputs x) { return gelu(x[0], Gelu::erf); }},
  };
}

std::vector<Rule> rules_of_shapes() {
  return {
      {"reshape", "", {{2, 3}}, [](Inputs x) { return reshape(x[0], {3, 2}); }},
      {"transpose", "", {{2, 3, 4}}, [](Inputs x) { return transpose(x[0], {2, 0, 1}); }},
      {"diagonal", "", {{2, 3, 2}}, [](Inputs x) { return diagonal(x[0], 0, 2); }},
      {"broadcast_to", "", {{2, 1, 3}}, [](Inputs x) { return broadcast_to(x[0], {4, 2, 5, 3}); }},
      {"broadcast_to", "of a scalar", {{}}, [](Inputs x) { return broadcast_to(x[0], {2, 3}); }},
      {"sum", "", {{2, 3}}, [](Inputs x) { return sum(x[0]); }},
      {"sum", "first", {{2, 3}}, [](Inputs x) { return sum(x[0], {0}); }},
      {"sum", "last", {{2, 3}}, [](Inputs x) { return sum(x[0], {1}); }},
      {"sum", "outer two", {{2, 3, 4}}, [](Inputs x) { return sum(x[0], {2, 0}); }},
      {"mean", "", {{2, 3}}, [](Inputs x) { return mean(x[0]); }},
      {"mean", "middle", {{2, 3, 4}}, [](Inputs x) { return mean(x[0], {1}); }},
      {"max", "last", {{2, 5}}, [](Inputs x) { return max(x[0], {1}); }},
      {"max", "outer two", {{2, 3, 4}}, [](Inputs x) { return max(x[0], {0, 2}); }},
      {"with_accumulation",
       "",
       {{3}},
       [](Inputs x) {
         const Variable y = with_accumulation(x[0], Accumulation::sum);
         return y * y;
       }},
  };
}

Rule dot(std::string detail, Shape lhs, Shape rhs, DotDimensionNumbers dims) {
  return {"dot_general", std::move(detail), {std::move(lhs), std::move(rhs)}, [dims](Inputs x) {
            return dot_general(x[0], x[1], dims);
          }};
}

std::vector<Rule> rules_of_products() {
  return {
      {"dot_general", "matmul", {{2, 3, 4}, {4, 5}}, [](Inputs x) { return matmul(x[0], x[1]); }},
      dot("both transposed", {4, 3}, {5, 4}, {{0}, {1}}),
      dot("two contracted, crossed", {2, 3, 4}, {4, 3, 5}, {{1, 2}, {1, 0}}),
      dot("batch axes inside", {3, 2, 5, 4}, {4, 6, 3, 2}, {{0, 3}, {2, 0}, {1}, {3}}),
      dot("two batch axes, crossed", {2, 3, 4}, {3, 2, 4}, {{2}, {2}, {0, 1}, {1, 0}}),
      dot("outer product", {2, 3}, {4}, {{}, {}}),
      dot("to a scalar", {2, 3}, {2, 3}, {{0, 1}, {0, 1}}),
  };
}

AttentionOptions padded_options() {
  return {.is_causal = true,
          .window = 2,
          .scale = 0.5,
          .positions = Tensor::from_ids(std::vector{0, 1, 2, 2, 3, -1}, {2, 3}),
          .kv_positions = Tensor::from_ids(std::vector{0, 1, 2, -1, 0, 1, 2, 3}, {2, 4})};
}

std::vector<Rule> rules_of_layers() {
  const Tensor ids = Tensor::from_ids(std::vector{2, 0, 2, 1}, {2, 2});
  const Tensor mask = [] {
    Tensor m(DType::u8, {2, 3});
    std::ranges::copy(std::vector<std::uint8_t>{1, 0, 1, 0, 0, 0},
                      m.mutable_values<std::uint8_t>().begin());
    return m;
  }();
  const RopeTables tables =
      rope_tables(Tensor::from_ids(std::vector{3, 4}, {2}), rope_frequencies(10, 4));
  const Rng rng(7);
  return {
      {"softmax", "", {{2, 5}}, [](Inputs x) { return softmax(x[0]); }},
      {"softmax", "middle", {{2, 3, 2}}, [](Inputs x) { return softmax(x[0], 1); }},
      {"log_softmax", "", {{2, 5}}, [](Inputs x) { return log_softmax(x[0]); }},
      {"log_softmax", "first", {{3, 2}}, [](Inputs x) { return log_softmax(x[0], -2); }},
      {"masked_softmax", "", {{2, 2, 3}}, [mask](Inputs x) { return masked_softmax(x[0], mask); }},
      {"softmax_cross_entropy_with_integer_labels",
       "",
       {{2, 2, 3}},
       [ids](Inputs x) { return softmax_cross_entropy_with_integer_labels(x[0], ids); }},
      {"rms_norm", "", {{3, 5}, {5}}, [](Inputs x) { return rms_norm(x[0], x[1]); }},
      {"rms_norm", "without scale", {{2, 5}}, [](Inputs x) { return rms_norm(x[0], {}); }},
      {"layer_norm", "", {{3, 5}, {5}, {5}}, [](Inputs x) { return layer_norm(x[0], x[1], x[2]); }},
      {"layer_norm",
       "bias alone, a large epsilon",
       {{2, 5}, {5}},
       [](Inputs x) { return layer_norm(x[0], {}, x[1], {.epsilon = 0.25}); }},
      {"take", "", {{3, 2}}, [ids](Inputs x) { return take(x[0], ids); }},
      {"rope", "", {{2, 2, 3, 5}}, [tables](Inputs x) { return rope(x[0], tables); }},
      {"dropout", "", {{4, 5}}, [rng](Inputs x) { return dropout(x[0], 0.25, rng); }},
      {"dropout", "broadcast", {{4, 5}}, [rng](Inputs x) { return dropout(x[0], 0.5, rng, {0}); }},
      // Composed: recorded under the names of its parts.
      {"dot_general",
       "attention of two queries a key",
       {{2, 3, 4, 2}, {2, 5, 2, 2}, {2, 5, 2, 3}},
       [](Inputs x) { return dot_product_attention(x[0], x[1], x[2]); }},
      {"masked_softmax",
       "attention",
       {{2, 3, 2, 2}, {2, 4, 1, 2}, {2, 4, 1, 2}},
       [](Inputs x) { return dot_product_attention(x[0], x[1], x[2], padded_options()); }},
      {"checkpoint", "", {{2, 3}, {3, 2}}, checkpoint([](Inputs x) {
         return gelu(matmul(x[0], silu(x[1])));
       })},
  };
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rules = rules_of_elements();
  for (auto* more : {&rules_of_shapes, &rules_of_products, &rules_of_layers}) {
    std::ranges::move(more(), std::back_inserter(rules));
  }
  return rules;
}

// The gradients of these are rounded, or none, by definition: fp8_test.cc holds each against its
// rule.
const std::set<std::string> kFp8Rules = {"in_qdq",
                                         "out_qdq",
                                         "in_q",
                                         "out_dq",
                                         "quantized_dot",
                                         "fp8_scaled_dot_general",
                                         "current_scaled_dot_general",
                                         "block_scaled_dot_general"};

TEST(Gradients, AreCentralDifferences) {
  std::mt19937 random(1);
  for (const Rule& rule : all_rules()) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : rule.inputs) inputs.push_back(grid(random, shape));
    EXPECT_EQ(gradient_difference(rule.f, inputs, random), "")
        << rule.operation << " " << rule.detail;
  }
}

TEST(Gradients, WrongOnesAreSeen) {
  std::mt19937 random(1);
  const std::vector<Tensor> inputs = {grid(random, {4})};
  const VariableFunction wrong = [](Inputs x) {
    return record("wrong", gelu(x[0]).value(), x,
                  [](const Tensor& g) { return std::vector<Cotangent>{g}; });
  };
  EXPECT_NE(gradient_difference(wrong, inputs, random), "");
  const VariableFunction slightly_wrong = [](Inputs x) {
    return record("wrong", x[0].value(), x, [](const Tensor& g) {
      return std::vector<Cotangent>{scale(g, 1 + 1e-7).value()};
    });
  };
  EXPECT_NE(gradient_difference(slightly_wrong, inputs, random), "");
}

// Names that operations record under stand in the sources as first arguments, ("name", or in
// kOperation = "name".
std::set<std::string> names_in(const std::string& text) {
  std::set<std::string> names;
  for (std::size_t quote = text.find('"'); quote != std::string::npos;
       quote = text.find('"', quote + 1)) {
    const std::size_t before = text.find_last_not_of(" \n", quote - 1);
    const std::size_t end =
        text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789", quote + 1);
    const bool is_argument = text[before] == '(' && text.compare(end, 2, "\",") == 0;
    const bool is_constant = text.substr(0, before + 1).ends_with("kOperation =");
    if (is_argument || is_constant) names.insert(text.substr(quote + 1, end - quote - 1));
  }
  return names;
}

TEST(Gradients, EveryRuleOfTheSourcesIsChecked) {
  const auto root = std::filesystem::path(OCTAVO_GOLDEN_DIR) / "../../octavo/autograd";
  std::set<std::string> recorded;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const std::string file = entry.path().filename();
    if (!file.ends_with(".cc") || file.ends_with("_test.cc")) continue;
    std::ifstream stream(entry.path());
    recorded.merge(names_in(std::string(std::istreambuf_iterator<char>(stream), {})));
  }
  std::set<std::string> checked = kFp8Rules;
  for (const Rule& rule : all_rules()) checked.insert(rule.operation);
  EXPECT_EQ(checked, recorded);
}

}  // namespace
}  // namespace octavo::testing
