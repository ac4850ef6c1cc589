// Values and gradients of octavo/autograd against JAX's, in f32 and f64.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "octavo/autograd/attention.h"
#include "octavo/autograd/cross_entropy.h"
#include "octavo/autograd/dot_general.h"
#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/norm.h"
#include "octavo/autograd/rope.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/softmax.h"
#include "octavo/autograd/take.h"
#include "octavo/autograd/value_and_grad.h"
#include "octavo/tensor/tensor_testing.h"
#include "octavo/train/flax_golden_testing.h"

namespace octavo::testing {
namespace {

using Inputs = std::span<const Variable>;

double largest(const Tensor& x) {
  double result = 0;
  for (const float v : x.to_floats()) result = std::max(result, std::fabs(static_cast<double>(v)));
  return result;
}

// How often an epsilon of the largest value may have been rounded away: each result sums over an
// input at most. An exponential adds epsilons of its argument; a variance that is computed as the
// difference of two means adds those of their ratio to it.
using Arguments = std::function<double(const std::vector<Tensor>& in)>;

double no_argument(const std::vector<Tensor>&) { return 0; }
double logits(const std::vector<Tensor>& in) { return 2 * largest(in[0]); }
double scores(const std::vector<Tensor>& in) {
  return 2 * largest(in[0]) * largest(in[1]) * std::sqrt(static_cast<double>(in[0].shape().back()));
}
double mean_over_variance(const std::vector<Tensor>& in) {
  const std::vector<float> x = in[0].to_floats();
  const std::size_t n = in[0].shape().back();
  double worst = 0;
  for (std::size_t row = 0; row < x.size(); row += n) {
    double mean = 0, squares = 0;
    for (std::size_t i = 0; i < n; ++i) {
      mean += x[row + i] / static_cast<double>(n);
      squares += static_cast<double>(x[row + i]) * x[row + i] / static_cast<double>(n);
    }
    worst = std::max(worst, squares / (squares - mean * mean));
  }
  return worst * static_cast<double>(n);
}
// Epsilons of f32 in those of the operands' type.
double in_f32(const std::vector<Tensor>& in, double epsilons) {
  return in[0].dtype() != DType::f64 ? epsilons
                                     : epsilons * (std::numeric_limits<float>::epsilon() /
                                                   std::numeric_limits<double>::epsilon());
}
// cos and sin are of angles in f32, in f64 too.
double angles(const std::vector<Tensor>& in) { return in_f32(in, largest(in[1])); }
// JAX's attention has scores in f32, of f64 operands too.
double f32_scores(const std::vector<Tensor>& in) { return in_f32(in, scores(in)); }

struct Counterpart {
  VariableFunction f;
  Arguments arguments = no_argument;
};
using Counterparts = std::map<std::string, Counterpart>;

void add_softmax(Counterparts& all) {
  const auto softmax_0 = [](Inputs x) { return softmax(x[0]); };
  const auto log_softmax_0 = [](Inputs x) { return log_softmax(x[0]); };
  const auto loss = [](Inputs x) {
    return softmax_cross_entropy_with_integer_labels(x[0], x[1].value());
  };
  for (const std::string size : {"", "_large"}) {
    all["softmax" + size] = {softmax_0, logits};
    all["log_softmax" + size] = {log_softmax_0, logits};
    all["cross_entropy" + size] = {loss, logits};
  }
  all["cross_entropy_mean"] = {[loss](Inputs x) { return mean(loss(x)); }, logits};
  all["softmax_axis_0"] = {[](Inputs x) { return softmax(x[0], 0); }, logits};
  all["softmax_masked"] = {[](Inputs x) {
                             Tensor mask(DType::u8, {7});
                             const auto seen = mask.mutable_values<std::uint8_t>();
                             for (std::size_t i = 0; i < 7; ++i) seen[i] = i < 5;
                             return masked_softmax(x[0], mask);
                           },
                           logits};
}

void add_norms(Counterparts& all) {
  for (const std::string name : {"rms_norm", "rms_norm_large", "rms_norm_zero"}) {
    all[name] = {[](Inputs x) { return rms_norm(x[0], x[1]); }};
  }
  all["rms_norm_epsilon"] = {[](Inputs x) { return rms_norm(x[0], x[1], {.epsilon = 1e-2}); }};
  for (const std::string name : {"layer_norm", "layer_norm_shifted"}) {
    all[name] = {[](Inputs x) { return layer_norm(x[0], x[1], x[2]); }, mean_over_variance};
  }
  all["layer_norm_slow"] = {
      [](Inputs x) { return layer_norm(x[0], x[1], x[2], {.epsilon = 1e-5}); }, mean_over_variance};
}

void add_elements(Counterparts& all) {
  all["silu"] = {[](Inputs x) { return silu(x[0]); }};
  all["gelu_tanh"] = {[](Inputs x) { return gelu(x[0]); }};
  all["gelu_exact"] = {[](Inputs x) { return gelu(x[0], Gelu::erf); }};
  all["relu"] = {[](Inputs x) { return relu(x[0]); }};
  all["swiglu"] = {[](Inputs x) { return silu(x[0]) * x[1]; }};
  for (const std::string shapes : {"same", "row", "column", "scalar", "outer", "rank"}) {
    all["add_" + shapes] = {[](Inputs x) { return x[0] + x[1]; }};
    all["subtract_" + shapes] = {[](Inputs x) { return x[0] - x[1]; }};
    all["multiply_" + shapes] = {[](Inputs x) { return x[0] * x[1]; }};
  }
}

void add_shapes(Counterparts& all) {
  const std::map<std::string, ops::Axes> axes = {
      {"all", {0, 1, 2}}, {"0", {0}}, {"1", {1}}, {"02", {0, 2}}};
  for (const auto& [name, over] : axes) {
    all["mean_" + name] = {[over](Inputs x) { return mean(x[0], over); }};
    all["sum_" + name] = {[over](Inputs x) { return sum(x[0], over); }};
    all["max_" + name] = {[over](Inputs x) { return max(x[0], over); }};
  }
  all["max_ties_1"] = {[](Inputs x) { return max(x[0], {1}); }};
  all["max_ties_all"] = {[](Inputs x) { return max(x[0], {0, 1}); }};
  all["transpose"] = {[](Inputs x) { return transpose(x[0], {2, 0, 1}); }};
  all["reshape"] = {[](Inputs x) { return reshape(x[0], {4, 6}); }};
  all["broadcast_to"] = {[](Inputs x) { return broadcast_to(x[0], {2, 3, 4}); }};
  all["matmul"] = {[](Inputs x) { return matmul(x[0], x[1]); }};
  all["embedding"] = {[](Inputs x) { return take(x[0], x[1].value()); }};
}

void add_attention(Counterparts& all) {
  for (const std::string kind : {"gqa", "mha", "mqa", "large"}) {
    all["attention_" + kind] = {
        [](Inputs x) { return dot_product_attention(x[0], x[1], x[2], {.is_causal = true}); },
        scores};
  }
  all["attention_full"] = {[](Inputs x) { return dot_product_attention(x[0], x[1], x[2]); },
                           f32_scores};
  const auto turned = [](double theta) {
    return [theta](Inputs x) {
      return rope(x[0], rope_tables(x[1].value(), rope_frequencies(theta, x[0].shape().back())));
    };
  };
  all["rope"] = {turned(10000), angles};
  all["rope_offset"] = {turned(500000), angles};
}

Counterparts all_counterparts() {
  Counterparts all;
  add_softmax(all);
  add_norms(all);
  add_elements(all);
  add_shapes(all);
  add_attention(all);
  return all;
}

// Functions of JAX that Octavo has not.
bool has_no_counterpart(const std::string& name) {
  static const std::set<std::string> kNames = {
      "logsumexp",   "logsumexp_large", "sigmoid", "tanh", "take_axis_1", "sum_keepdims",
      "variance",    "maximum",         "abs",     "exp",  "log",         "sqrt",
      "concatenate", "slice",           "where",   "clip"};
  return kNames.contains(name) || name.starts_with("min_") || name.starts_with("prod_") ||
         name.starts_with("divide_");
}

void expect_within(const Tensor& got, const Tensor& expected, double bound,
                   const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  ASSERT_EQ(got.dtype(), expected.dtype()) << what;
  const std::vector<double> a = doubles(got), b = doubles(expected);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], bound) << what << " element " << i;
  }
}

void expect_golden(const FlaxGolden& golden, const Json& of, const std::string& name,
                   const Counterpart& counterpart, double epsilon) {
  std::vector<Tensor> in;
  std::size_t elements = 0;
  for (std::size_t i = 0; golden.contains(fmt::format("{}.in.{}", name, i)); ++i) {
    in.push_back(golden.at(fmt::format("{}.in.{}", name, i)));
    elements = std::max(elements, in.back().size());
  }
  const Tensor &g = golden.at(name + ".g"), &out = golden.at(name + ".out");
  double magnitude = std::max(largest(g), largest(out));
  for (const Json& i : of) {
    magnitude =
        std::max(magnitude, largest(golden.at(fmt::format("{}.grads.{}", name, i.get<int>()))));
  }
  // Both sides round; a rule has fewer than 16 functions of at most 4 units in the last place.
  const double roundings = 2 * (static_cast<double>(elements) + 4 * counterpart.arguments(in) + 64);
  const double bound = roundings * epsilon * magnitude;
  const ValueAndVjp result = value_and_vjp(counterpart.f, in, g);
  expect_within(result.value, out, bound, name);
  for (const Json& i : of) {
    const std::string gradient = fmt::format("{}.grads.{}", name, i.get<int>());
    expect_within(result.grads[i.get<std::size_t>()], golden.at(gradient), bound, gradient);
  }
}

void expect_goldens(const std::string& file, double epsilon) {
  const FlaxGolden golden(file);
  Counterparts counterparts = all_counterparts();
  for (const Json& c : golden.cases()) {
    const std::string name = c.at("name");
    if (has_no_counterpart(name)) continue;
    ASSERT_TRUE(counterparts.contains(name)) << name;
    expect_golden(golden, c.at("of"), name, counterparts.at(name), epsilon);
    counterparts.erase(name);
  }
  for (const auto& [name, f] : counterparts) ADD_FAILURE() << name << " is no golden case";
}

TEST(FunctionsGolden, InF32) {
  expect_goldens("functions_f32", std::numeric_limits<float>::epsilon());
}

TEST(FunctionsGolden, InF64) {
  expect_goldens("functions_f64", std::numeric_limits<double>::epsilon());
}

}  // namespace
}  // namespace octavo::testing
