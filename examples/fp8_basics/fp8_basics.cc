// FP8 training from the ground up, in the order of Flax's guide: a product in FP8, current scaling,
// delayed scaling, layers, the FP8 state and who updates it, and a TrainState that does. It
// computes nothing but sums, products, quotients and roots, so that it prints the same everywhere.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/value_and_grad.h"
#include "octavo/nn/dense.h"
#include "octavo/nn/einsum.h"
#include "octavo/train/train_state.h"

using namespace octavo;

namespace {

const DotDimensionNumbers kMatmul = ops::matmul_dims(2);

void title(const char* text) { fmt::print("\n{}\n", text); }

// The root of the mean square of the error, in percent of that of the exact product.
double error(const Tensor& c, const Tensor& a, const Tensor& b) {
  const std::vector<float> x = c.to_floats(), y = ops::dot_general(a, b, kMatmul).to_floats();
  double difference = 0, whole = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    whole += y[i] * y[i];
  }
  return 100 * std::sqrt(difference / whole);
}

// The state of one tensor: its scale, and the newest entries of its history.
void print_state(const Variables& variables, const std::string& path, const std::string& tensor) {
  const Tensor history = variables.value(path + tensor + "_amax_history");
  fmt::print("  {:<12} scale {:<12.6g} amax history [{:.6g}, ...]\n", tensor,
             variables.value(path + tensor + "_scale").item(), history.values<float>()[0]);
}

// Codes in FP8, multiplied as they are.
void plain_product(const Tensor& a, const Tensor& b) {
  title("1. A product in FP8");
  const Tensor one = Tensor::ones(DType::f32, {1});
  ops::KernelLog log;
  const Tensor c = ops::dot_general(fp8::quantize(a, DType::f8_e4m3, one),
                                    fp8::quantize(b, DType::f8_e4m3, one), kMatmul, DType::f32);
  fmt::print("  operands {} and {} of {}, result {} of {}\n", to_string(a.shape()),
             to_string(b.shape()), dtype_name(DType::f8_e4m3), to_string(c.shape()),
             dtype_name(c.dtype()));
  fmt::print("  FP8 products that ran: {}\n", log.count(Format::e4m3fn, Format::e4m3fn));
  fmt::print("  error without scales: {:.1f} %, half of b is rounded to 0\n", error(c, a, b));
}

// Each operand is scaled to the range of the format by its own largest magnitude.
void current_scaling(const Tensor& a, const Tensor& b) {
  title("2. Current scaling");
  const auto scale_of = [](const Tensor& x) {
    return Tensor::full(DType::f32, {1}, fp8::amax(x) / fp8::get_fp8_max(DType::f8_e4m3));
  };
  const Tensor a_scale = scale_of(a), b_scale = scale_of(b);
  const Tensor product =
      ops::dot_general(fp8::quantize(a, DType::f8_e4m3, a_scale),
                       fp8::quantize(b, DType::f8_e4m3, b_scale), kMatmul, DType::f32);
  const Tensor c = fp8::dequantize(product, DType::f32, mul(a_scale, b_scale).value());
  fmt::print("  scales {:.6g} and {:.6g}\n", a_scale.item(), b_scale.item());
  fmt::print("  error: {:.1f} %\n", error(c, a, b));

  // In one line, and differentiable:
  const Variable same = fp8::current_scaled_dot_general(a, b, kMatmul);
  fmt::print("  current_scaled_dot_general: {:.1f} %\n", error(same.value(), a, b));
}

// The scale comes from the largest magnitudes of earlier steps, so that one pass both quantizes and
// finds the amax for the next. What has grown since is clipped, until its amax is in the history.
void delayed_scaling(const Tensor& a, const Tensor& b) {
  title("3. Delayed scaling");
  const Tensor one = Tensor::ones(DType::f32, {1}), none = Tensor::zeros(DType::f32, {4});
  fp8::Fp8Meta of_x{one, none}, of_b{one, none};
  for (const float factor : {1.0f, 3.0f, 2.0f}) {
    const Tensor x = scale(a, factor).value();
    const Variable c = fp8::fp8_scaled_dot_general(x, b, kMatmul,
                                                   {.lhs_scale = of_x.scale,
                                                    .rhs_scale = of_b.scale,
                                                    .grad_scale = one,
                                                    .lhs_amax_history = of_x.amax_history,
                                                    .rhs_amax_history = of_b.amax_history,
                                                    .grad_amax_history = none});
    of_x = fp8::update_fp8_meta(x, DType::f8_e4m3, of_x.scale, of_x.amax_history);
    of_b = fp8::update_fp8_meta(b, DType::f8_e4m3, of_b.scale, of_b.amax_history);
    fmt::print("  amax {:.6g}: quantized with scale {:.6g}, error {:.1f} %, history {::.4g}\n",
               fp8::amax(x), of_x.scale.item(), error(c.value(), x, b),
               of_x.amax_history.to_floats());
  }
}

nn::Dense fp8_dense() {
  return {
      .features = 32, .kernel_init = nn::glorot_uniform(), .dot_general_cls = nn::Fp8DotGeneral{}};
}

// A layer with FP8 products is the layer with one more argument.
void dense_layer(const Tensor& x) {
  title("4. Dense");
  const nn::Dense layer = fp8_dense();
  const Variables variables = layer.init(Rng{0}, x);
  for (const auto& [path, value] : variables) {
    fmt::print("  {:<74} {}\n", path, to_string(value.shape()));
  }
  ops::KernelLog log;
  value_and_grad([&](const Variables& v) { return mean(layer.apply(v, x)); })(variables);
  fmt::print("  products: {} E4M3 x E4M3 forward, {} E4M3 x E5M2 backward (x needs no gradient)\n",
             log.count(Format::e4m3fn, Format::e4m3fn), log.count(Format::e4m3fn, Format::e5m2));
}

void einsum_layer(const Tensor& a, const Tensor& b) {
  title("5. Einsum");
  const nn::Fp8Einsum layer;
  const Variables variables = layer.init(Rng{0}, "mk,kn->nm", a, b);
  const Variable c = layer.apply(variables, "mk,kn->nm", a, b);
  fmt::print("  mk,kn->nm: {} x {} -> {}, {} variables of state\n", to_string(a.shape()),
             to_string(b.shape()), to_string(c.shape()), variables.size());
}

// New scales and histories come back as gradients of the old ones; whoever trains stores them.
void state_by_hand(const Tensor& x) {
  title("6. The FP8 state, updated by hand");
  const nn::Dense layer = fp8_dense();
  const std::string path = "_overwrite_with_gradient/Fp8DirectDotGeneralOp_0/";
  Variables variables = layer.init(Rng{0}, x);
  for (int step = 1; step <= 2; ++step) {
    const auto [loss, grads] = value_and_grad([&](const Variables& v) {
      const Variable y = layer.apply(v, x);
      return mean(y * y);
    })(variables);
    for (const auto& [name, grad] : grads) {
      const bool is_state = collection_of(name) == kOverwriteWithGradient;
      variables.set(name, is_state ? grad : variables.at(name) - scale(grad, 0.1));
    }
    fmt::print("  step {}, loss {:.6f}\n", step, loss.item());
    for (const char* tensor : {"input", "kernel", "output_grad"}) {
      print_state(variables, path, tensor);
    }
  }
}

// One state, two uses: the larger amax counts.
void accumulating_by_maximum() {
  title("7. fp32_max_grad");
  const Variables variables{{"x", Tensor::from({2}, {1})},
                            {"y", Tensor::from({3}, {1})},
                            {"scale", Tensor::ones(DType::f32, {1})},
                            {"history", Tensor::zeros(DType::f32, {4})}};
  for (const bool by_maximum : {false, true}) {
    const auto [value, grads] = value_and_grad([&](const Variables& v) {
      const auto state = [&](const char* name) {
        return by_maximum ? as_fp32_max_grad(v.at(name)) : v.at(name);
      };
      const Variable s = state("scale"), h = state("history");
      const fp8::Quantized a = fp8::in_q(DType::f32, DType::f8_e4m3, v.at("x"), s, h);
      const fp8::Quantized b = fp8::in_q(DType::f32, DType::f8_e4m3, v.at("y"), s, h);
      return sum(
          fp8::out_dq(DType::f32, a.scale, b.scale, cast(a.q, DType::f32) * cast(b.q, DType::f32)));
    })(variables);
    fmt::print("  {:<8} new scale {}, new history {}\n",
               by_maximum ? "maximum:" : "sum:", grads.value("scale").item(),
               grads.value("history").to_floats());
  }
}

void train_state(const Tensor& x) {
  title("8. TrainState");
  const nn::Dense layer = fp8_dense();
  auto state =
      TrainState::create(layer.init(Rng{0}, x), optim::sgd({.learning_rate = 4, .momentum = 0.5}));
  for (int step = 0; step < 5; ++step) {
    const auto [loss, grads] = value_and_grad([&](const Variables& v) {
      const Variable y = layer.apply(v, x);
      return mean(y * y);
    })(state.variables);
    state = state.apply_gradients(grads);
    fmt::print("  step {}, loss {:.6f}\n", state.step, loss.item());
  }
  print_state(state.variables, "_overwrite_with_gradient/Fp8DirectDotGeneralOp_0/", "input");
}

}  // namespace

int main() {
  const Tensor a = uniform(Rng{1}, {16, 64}, -1, 1);
  const Tensor b = uniform(Rng{2}, {64, 32}, -0x1p-9f, 0x1p-9f);
  plain_product(a, b);
  current_scaling(a, b);
  delayed_scaling(a, b);
  dense_layer(a);
  einsum_layer(a, b);
  state_by_hand(a);
  accumulating_by_maximum();
  train_state(a);
}
