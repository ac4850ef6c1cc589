// What must not change a result: the number of threads, recomputation, and the level that
// OCTAVO_CPU names.
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "octavo/autograd/attention.h"
#include "octavo/autograd/checkpoint.h"
#include "octavo/autograd/cross_entropy.h"
#include "octavo/autograd/dropout.h"
#include "octavo/autograd/elementwise.h"
#include "octavo/autograd/fp8_testing.h"
#include "octavo/autograd/norm.h"
#include "octavo/autograd/rope.h"
#include "octavo/autograd/shape.h"
#include "octavo/autograd/softmax.h"
#include "octavo/autograd/take.h"
#include "octavo/base/thread_pool.h"
#include "octavo/kernels/select.h"

namespace octavo::testing {
namespace {

constexpr std::uint64_t kLength = 192, kWidth = 256, kVocabulary = 300;

Tensor some_ids(std::mt19937& random, std::uint64_t below) {
  std::vector<std::int32_t> ids(kLength);
  for (auto& id : ids) id = static_cast<std::int32_t>(random() % below);
  return Tensor::from_ids(ids, {kLength});
}

// A transformer's layer with an FP8 product, on what is large enough to be cut among threads; what
// lies between embedding and logits may be computed again on the way back.
ValueAndGrad layer_gradients(bool is_recomputed = false) {
  std::mt19937 random(1);
  const Tensor ids = some_ids(random, kVocabulary), labels = some_ids(random, kVocabulary);
  const MetaState state;
  const std::string owg = "_overwrite_with_gradient/";
  Variables variables = {
      {"params/embedding", grid(random, {kVocabulary, kWidth}, DType::f32)},
      {"params/kernel", scale(grid(random, {kWidth, kWidth}, DType::f32), 0.0625).value()},
      {"params/norm", grid(random, {kWidth}, DType::f32)},
      {"params/bias", grid(random, {kWidth}, DType::f32)}};
  for (std::size_t i = 0; i < 3; ++i) {
    variables.set(owg + "scale" + std::to_string(i), state.scales[i]);
    variables.set(owg + "history" + std::to_string(i), state.histories[i]);
  }
  std::vector<std::int32_t> positions(kLength);
  for (std::size_t i = 0; i < kLength; ++i) positions[i] = static_cast<std::int32_t>(i);
  const RopeTables tables =
      rope_tables(Tensor::from_ids(positions, {kLength}), rope_frequencies(10000, 64));
  // x, norm, bias, kernel, scales, histories
  const VariableFunction block = [&](std::span<const Variable> in) {
    const Variable h =
        fp8::fp8_scaled_dot_general(layer_norm(in[0], in[1], in[2]), in[3], {{1}, {0}},
                                    {in[4], in[5], in[6], in[7], in[8], in[9]});
    const Variable q = rope(reshape(h, {kLength, 4, 64}), tables);
    const Variable a = dot_product_attention(q, q, reshape(gelu(h), {kLength, 4, 64}),
                                             {.is_causal = true, .window = 64});
    return in[0] + dropout(silu(reshape(a, {kLength, kWidth})), 0.1, Rng(5));
  };
  return value_and_grad([&](const Variables& v) {
    const auto meta = [&](const char* name, int i) { return v.at(owg + name + std::to_string(i)); };
    const std::vector<Variable> in = {take(v.at("params/embedding"), ids),
                                      v.at("params/norm"),
                                      v.at("params/bias"),
                                      v.at("params/kernel"),
                                      meta("scale", 0),
                                      meta("scale", 1),
                                      meta("scale", 2),
                                      meta("history", 0),
                                      meta("history", 1),
                                      meta("history", 2)};
    const Variable y = is_recomputed ? checkpoint(block)(in) : block(in);
    const Variable logits =
        dot_general(rms_norm(y, v.at("params/norm")), v.at("params/embedding"), {{1}, {1}});
    return mean(softmax_cross_entropy_with_integer_labels(logits, labels)) +
           scale(mean(max(log_softmax(logits) * softmax(logits), {1})), 0.5);
  })(variables);
}

TEST(SameBits, OfOneTwoAndThreeThreadsAndOfRecomputation) {
  std::vector<ValueAndGrad> results;
  for (const bool is_recomputed : {false, true}) {
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      const ContextScope scope({&pool});
      results.push_back(layer_gradients(is_recomputed));
    }
  }
  for (std::size_t i = 1; i < results.size(); ++i) {
    expect_bits(results[i].value, results[0].value);
    for (const auto& [path, gradient] : results[0].grads) {
      EXPECT_TRUE(same_bits(results[i].grads.value(path), gradient.value())) << path;
    }
  }
}

// FNV-1a over all bits of a result.
std::uint64_t hash_of(const ValueAndGrad& result) {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325;
  const auto add = [&](const Tensor& x) {
    for (std::size_t i = 0; i < x.bytes(); ++i) {
      hash = (hash ^ static_cast<const std::uint8_t*>(x.data())[i]) * 0x100'0000'01B3;
    }
  };
  add(result.value);
  for (const auto& [path, gradient] : result.grads) add(gradient.value());
  return hash;
}

// No test: what the one below runs, in a process of its own for each level (one is chosen once).
TEST(SameBits, DISABLED_Printed) {
  std::printf("gradient bits %016llx\n",
              static_cast<unsigned long long>(hash_of(layer_gradients())));
}

TEST(SameBits, OfEveryLevel) {
  const std::string program = std::filesystem::canonical("/proc/self/exe");
  const auto printed = [&](const std::string& level) {
    const std::string command =
        "OCTAVO_CPU=" + level + " '" + program +
        "' --gtest_filter=SameBits.DISABLED_Printed --gtest_also_run_disabled_tests";
    FILE* pipe = popen(command.c_str(), "r");
    std::string text;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
    EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 0) << text;
    const auto begin = text.find("gradient bits ");
    return begin == std::string::npos ? text : text.substr(begin, 30);
  };
  const std::string expected = fmt::format("gradient bits {:016x}", hash_of(layer_gradients()));
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512bf16}) {
    if (kernels::is_built(isa) && supports(cpu_features(), isa)) {
      EXPECT_EQ(printed(isa_name(isa)), expected) << isa_name(isa);
    } else {
      std::printf("%s: not on this machine\n", isa_name(isa));
    }
  }
}

}  // namespace
}  // namespace octavo::testing
