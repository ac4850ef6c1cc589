// Public failures of other FP8 training, by case id.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "octavo/base/file.h"
#include "octavo/checkpoint/conversion.h"
#include "octavo/checkpoint/tensor_file.h"
#include "octavo/train/state_file.h"
#include "octavo/train/train_testing.h"

namespace octavo {
namespace {

using TrnFiles = testing::FilesTest;
using testing::batch_of;
using testing::expect_same_bits;
using testing::fp8_mlp;
using testing::fp8_path;
using testing::gradients;

using Tensors = std::map<std::string, Tensor>;

const std::string kInputHistory = fp8_path("Dense_0", "input_amax_history");
const std::string kInputScale = fp8_path("Dense_0", "input_scale");

optim::GradientTransformation adam() { return optim::adam({.learning_rate = 0.01}); }

TrainState new_state(const nn::Mlp& model = fp8_mlp()) {
  return TrainState::create(model.init(Rng(0), batch_of(1)), adam());
}

TrainState after_steps(TrainState state, std::int64_t last, const nn::Mlp& model = fp8_mlp()) {
  while (state.step < last) {
    const Tensor x = batch_of(100 + static_cast<std::uint64_t>(state.step));
    state = state.apply_gradients(gradients(model, state.variables, x).grads);
  }
  return state;
}

// All +-1, then one element of that magnitude.
Tensor batch_with_max(float largest) {
  std::vector<float> values(6 * 8, 1.0f);
  values[5] = -largest;
  return Tensor::from(values, {6, 8});
}

float newest(const Variables& variables, const std::string& path) {
  return variables.value(path).values<float>()[0];
}

// Gradient accumulation kept the last microbatch's amax.
TEST(Trn01, MicrobatchesRecordTheLargestAmaxAndShiftTheHistoryOnce) {
  const nn::Mlp model = fp8_mlp();
  const TrainState state = new_state(model);
  std::optional<Variables> sum;
  for (const float largest : {100.0f, 1.0f, 1.0f, 1.0f}) {
    const Variables grads = gradients(model, state.variables, batch_with_max(largest)).grads;
    sum = sum ? optim::accumulate(*sum, grads) : grads;
  }
  const TrainState next = state.apply_gradients(optim::divide(*sum, 4));
  const auto history = next.variables.value(kInputHistory).values<float>();
  EXPECT_EQ(history[0], 100.0f);
  EXPECT_THAT(history.subspan(1), ::testing::Each(0.0f));

  const Variables after = gradients(model, next.variables, batch_with_max(1)).grads;
  EXPECT_EQ(newest(after, kInputScale), 1.0f / (448.0f / 100.0f));
}

// Microbatches that run one of two layers each. The history of the other one must not come in
// between, as it was before the step.
TEST(Trn01, AMicrobatchThatDoesNotRunALayerLeavesItsHistoryToTheOthers) {
  const nn::Dense layer{.features = 8,
                        .dot_general_cls = nn::Fp8DotGeneral{.amax_history_length = 16}};
  const auto model = [&](const nn::Scope& scope, const Variable& x, bool is_first) {
    return layer(scope.named(is_first ? "first" : "second"), x);
  };
  Variables variables =
      nn::init([&](const nn::Scope& scope,
                   const Variable& x) { return model(scope, model(scope, x, true), false); },
               Rng(0), Variable(batch_of(1)));
  const auto history = [](const char* name) { return fp8_path(name, "input_amax_history"); };
  const auto grads_of = [&](bool is_first, float largest) {
    return value_and_grad([&](const Variables& v) {
             return sum(model(nn::Scope::apply(v), batch_with_max(largest), is_first));
           })(variables)
        .grads;
  };
  // Entries of earlier steps, all larger than what comes.
  for (const char* name : {"first", "second"}) {
    variables.set(history(name), Tensor::full(DType::f32, {16}, 1000));
  }
  const TrainState state = TrainState::create(variables, adam());
  const Variables sum = optim::accumulate(grads_of(true, 100), grads_of(false, 10));
  const TrainState next = state.apply_gradients(optim::divide(sum, 2));
  EXPECT_EQ(newest(next.variables, history("first")), 100.0f);
  EXPECT_EQ(newest(next.variables, history("second")), 10.0f);

  // A step that runs the first layer alone.
  const TrainState last = next.apply_gradients(grads_of(true, 50));
  EXPECT_EQ(newest(last.variables, history("first")), 50.0f);
  EXPECT_TRUE(
      same_bits(last.variables.value(history("second")), next.variables.value(history("second"))));
}

// The state after a step was thrown away for the one before it.
TEST(Trn02, StateAfterAStepIsTheInputOfTheNext) {
  const nn::Mlp model = fp8_mlp();
  TrainState state = new_state(model);
  std::vector<float> maxima;
  for (std::uint64_t step = 0; step < 20; ++step) {
    const Tensor x = batch_of(step);
    maxima.push_back(fp8::amax(x));
    const Variables grads = gradients(model, state.variables, x).grads;
    if (step > 0) {
      const auto first = maxima.size() > 17 ? maxima.end() - 17 : maxima.begin();
      const float before = *std::max_element(first, maxima.end() - 1);
      EXPECT_EQ(newest(grads, kInputScale), 1.0f / (448.0f / before)) << step;
    }
    const TrainState next = state.apply_gradients(grads);
    EXPECT_EQ(newest(next.variables, kInputHistory), maxima.back());
    EXPECT_FALSE(
        same_bits(next.variables.value(kInputHistory), state.variables.value(kInputHistory)));
    state = next;
  }
}

using Trn03 = TrnFiles;

constexpr const char* kResumeIn = "OCTAVO_TEST_RESUME_IN";

// No test: what the one below runs in a process of its own.
TEST(Trn03Child, DISABLED_Resumes) {
  const std::filesystem::path directory = std::getenv(kResumeIn);
  const Result<RestoredState> restored =
      load_train_state(directory / "state.safetensors", new_state());
  ASSERT_TRUE(restored) << restored.error().message;
  ASSERT_TRUE(
      save_train_state(directory / "resumed.safetensors", after_steps(restored->state, 10)));
}

// Losses exploded after a resume.
TEST_F(Trn03, ResumedRunHasTheSameBits) {
  const TrainState whole = after_steps(new_state(), 10);
  ASSERT_TRUE(save_train_state(file("state.safetensors"), after_steps(new_state(), 5)));

  const Result<RestoredState> restored = load_train_state(file("state.safetensors"), new_state());
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_THAT(restored->notes, ::testing::IsEmpty());
  EXPECT_EQ(restored->state.step, 5);
  const TrainState resumed = after_steps(restored->state, 10);
  expect_same_bits(resumed.variables, whole.variables);
  expect_same_bits(resumed.opt_state, whole.opt_state);

  const std::string command = fmt::format(
      "{}='{}' '{}' --gtest_filter=Trn03Child.DISABLED_Resumes "
      "--gtest_also_run_disabled_tests >'{}'",
      kResumeIn, directory_.string(), std::filesystem::canonical("/proc/self/exe").string(),
      file("output").string());
  ASSERT_EQ(std::system(command.c_str()), 0) << read_text(file("output")).value_or("");
  const Result<RestoredState> elsewhere =
      load_train_state(file("resumed.safetensors"), new_state());
  ASSERT_TRUE(elsewhere) << elsewhere.error().message;
  EXPECT_EQ(elsewhere->state.step, 10);
  expect_same_bits(elsewhere->state.variables, whole.variables);
  expect_same_bits(elsewhere->state.opt_state, whole.opt_state);
  const Result<TensorFile> written = read_tensor_file(file("state.safetensors"));
  ASSERT_TRUE(written);
  EXPECT_EQ(written->tensors.at("step").dtype(), DType::i32);
  EXPECT_EQ(written->tensors.at(kInputHistory).shape(), (Shape{16}));
  EXPECT_EQ(written->tensors.at(kInputScale).dtype(), DType::f32);
}

// Evaluation changed FP8 state.
TEST(Trn04, EvaluationLeavesTheState) {
  const nn::Mlp model = fp8_mlp();
  const TrainState state = after_steps(new_state(model), 3, model);
  const Variables before = state.variables;
  const TrainState without = after_steps(state, 4, model);
  model.apply(state.variables, batch_of(7));
  std::vector<float> large(6 * 8, 100.0f);
  model.apply(state.variables, Tensor::from(large, {6, 8}));
  expect_same_bits(state.variables, before);
  expect_same_bits(after_steps(state, 4, model).variables, without.variables);
}

// A frozen first layer froze the scales.
TEST(Trn05, HistoriesOfAFrozenLayerAdvance) {
  const nn::Mlp model = fp8_mlp();
  const auto frozen = [](std::string_view path) { return path.starts_with("params/Dense_0/"); };
  TrainState state = TrainState::create(model.init(Rng(0), batch_of(1)),
                                        optim::chain({optim::freeze(frozen), adam()}));
  const TrainState first = state;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const TrainState next =
        state.apply_gradients(gradients(model, state.variables, batch_of(step)).grads);
    for (const auto& [path, history] : state.variables.collection(kOverwriteWithGradient)) {
      if (!path.ends_with("amax_history")) continue;
      EXPECT_FALSE(same_bits(history.value(), next.variables.value(path))) << path;
    }
    state = next;
  }
  EXPECT_TRUE(same_bits(state.variables.value("params/Dense_0/kernel"),
                        first.variables.value("params/Dense_0/kernel")));
  EXPECT_FALSE(same_bits(state.variables.value("params/Dense_1/kernel"),
                         first.variables.value("params/Dense_1/kernel")));
}

// Zeros gave an infinite scale and a NaN loss.
TEST(Trn06, ZerosAreFiniteAndKeepTheScale) {
  const nn::Mlp model = fp8_mlp();
  TrainState state = after_steps(new_state(model), 2, model);
  state.variables.set("params/Dense_1/kernel", Tensor::zeros(DType::f32, {8, 4}));
  for (int step = 0; step < 20; ++step) {
    const ValueAndGrad result =
        gradients(model, state.variables, Tensor::zeros(DType::f32, {6, 8}));
    ASSERT_TRUE(std::isfinite(result.value.item()));
    for (const auto& [path, grad] : result.grads) {
      for (const float x : grad.value().values<float>()) ASSERT_TRUE(std::isfinite(x)) << path;
    }
    for (const auto& [path, scale] : result.grads.collection(kOverwriteWithGradient)) {
      if (path.ends_with("scale")) {
        ASSERT_GT(scale.value().item(), 0) << path;
      }
    }
    state.variables = state.variables.merged(result.grads.collection(kOverwriteWithGradient));
  }
  // The history is all zeros by now: the scale is the last one that data gave.
  EXPECT_EQ(fp8::amax(state.variables.value(kInputHistory)), 0.0f);
  EXPECT_NE(newest(state.variables, kInputScale), 1.0f);
}

// The largest magnitude of one shard alone.
TEST(Trn07, ReplicasTakeTheLargestOfAll) {
  const nn::Mlp model = fp8_mlp();
  const TrainState state = new_state(model);
  const Variables a = gradients(model, state.variables, batch_with_max(1)).grads;
  const Variables b = gradients(model, state.variables, batch_with_max(100)).grads;
  const TrainState one = state.apply_gradients(optim::divide(optim::accumulate(a, b), 2));
  const TrainState other = state.apply_gradients(optim::divide(optim::accumulate(b, a), 2));
  expect_same_bits(one.variables.collection(kOverwriteWithGradient),
                   other.variables.collection(kOverwriteWithGradient));
  EXPECT_EQ(newest(one.variables, kInputHistory), 100.0f);
}

using Trn08 = TrnFiles;

// Checkpoints grew with the number of steps.
TEST_F(Trn08, FilesOfAllStepsHaveOneSize) {
  ASSERT_TRUE(save_train_state(file("1"), after_steps(new_state(), 1)));
  TrainState later = after_steps(new_state(), 3);
  later.step = 1000;
  ASSERT_TRUE(save_train_state(file("1000"), later));
  EXPECT_EQ(std::filesystem::file_size(file("1")), std::filesystem::file_size(file("1000")));
}

using Trn09 = TrnFiles;

// Old checkpoints, and ones without FP8 state.
TEST_F(Trn09, WeightsAloneBeginWithDefaults) {
  const TrainState trained = after_steps(new_state(), 3);
  TensorFile weights;
  for (const auto& [path, value] : trained.variables.collection(kParams)) {
    weights.tensors.emplace(path, value.value());
  }
  ASSERT_TRUE(write_tensor_file(file("weights"), weights));
  const Result<RestoredState> restored = load_train_state(file("weights"), new_state());
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_THAT(restored->notes,
              ::testing::ElementsAre(
                  "no FP8 state for 12 scales and histories: they begin as for a new run",
                  "no state of the optimizer: it begins as for a new run"));
  expect_same_bits(restored->state.variables.collection(kParams),
                   trained.variables.collection(kParams));
  EXPECT_EQ(newest(restored->state.variables, kInputScale), 1.0f);
}

TEST_F(Trn09, NewestEntriesOfAnotherHistoryLengthAreKept) {
  const TrainState trained = after_steps(new_state(fp8_mlp(4)), 6, fp8_mlp(4));
  ASSERT_TRUE(save_train_state(file("short"), trained));
  const Result<RestoredState> restored = load_train_state(file("short"), new_state(fp8_mlp(1024)));
  ASSERT_TRUE(restored) << restored.error().message;
  const auto from = trained.variables.value(kInputHistory).values<float>();
  const auto to = restored->state.variables.value(kInputHistory).values<float>();
  EXPECT_EQ(to[0], from[0]);
  EXPECT_EQ(to[1023], from[3]);
  EXPECT_EQ(to[1022], from[2]);
  EXPECT_EQ(to[1021], from[1]);
  EXPECT_EQ(to[1020], 0.0f);
  EXPECT_THAT(
      restored->notes,
      ::testing::Contains(kInputHistory + ": 4 entries in the file, the newest 4 are kept"));

  ASSERT_TRUE(save_train_state(file("long"), restored->state));
  const Result<RestoredState> back = load_train_state(file("long"), new_state(fp8_mlp(4)));
  ASSERT_TRUE(back);
  EXPECT_TRUE(same_bits(back->state.variables.value(kInputHistory),
                        trained.variables.value(kInputHistory)));
}

TEST_F(Trn09, UnknownVersionIsRefused) {
  ASSERT_TRUE(save_train_state(file("state"), new_state()));
  TensorFile changed = *read_tensor_file(file("state"));
  changed.metadata["version"] = "2";
  ASSERT_TRUE(write_tensor_file(file("state"), changed));
  const Result<RestoredState> restored = load_train_state(file("state"), new_state());
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code, ErrorCode::unsupported);
  EXPECT_THAT(restored.error().message, ::testing::HasSubstr("version '2'"));
}

using Trn10 = TrnFiles;

// A reciprocal that was not computed anew on load. There is one scale here, and nothing derived.
TEST_F(Trn10, FirstForwardAfterALoadEqualsTheOneBeforeTheSave) {
  const nn::Mlp model = fp8_mlp();
  const TrainState state = after_steps(new_state(model), 4, model);
  ASSERT_TRUE(save_train_state(file("state"), state));
  const Result<RestoredState> restored = load_train_state(file("state"), new_state(model));
  ASSERT_TRUE(restored);
  EXPECT_TRUE(same_bits(model.apply(restored->state.variables, batch_of(9)).value(),
                        model.apply(state.variables, batch_of(9)).value()));
}

using Trn11 = TrnFiles;

// Scales were absent from a checkpoint that was saved before any step.
TEST_F(Trn11, StateOfStepZeroIsWholeAndTrains) {
  ASSERT_TRUE(save_train_state(file("state"), new_state()));
  const Result<RestoredState> restored = load_train_state(file("state"), new_state());
  ASSERT_TRUE(restored);
  EXPECT_THAT(restored->notes, ::testing::IsEmpty());
  EXPECT_EQ(newest(restored->state.variables, kInputScale), 1.0f);
  expect_same_bits(after_steps(restored->state, 3).variables,
                   after_steps(new_state(), 3).variables);
}

// Weights of the state, (out, in) as checkpoints of models have them.
Tensors exported_weights(const Variables& variables) {
  Tensors weights;
  for (const char* layer : {"Dense_0", "Dense_1"}) {
    const Tensor& kernel = variables.value(std::string("params/") + layer + "/kernel");
    weights.emplace(std::string("model.") + layer + ".weight", ops::transpose(kernel, {1, 0}));
  }
  return weights;
}

// The state's own scales, 1 at step 0, have no part in it.
TEST_F(Trn11, ExportAfterALoadOfStepZeroScalesByTheWeights) {
  ASSERT_TRUE(save_train_state(file("state"), new_state()));
  const Result<RestoredState> restored = load_train_state(file("state"), new_state());
  ASSERT_TRUE(restored);
  const Tensors weights = exported_weights(restored->state.variables);
  std::filesystem::create_directory(file("weights"));
  ASSERT_TRUE(write_tensor_file(file("weights") / "model.safetensors", {weights, {}}));
  std::ofstream(file("weights") / "config.json") << "{}";

  QuantizeOptions options;
  options.recipe = {.block = {4, 4}, .rule = ScaleRule::deepseek};
  const Result<Checkpoint> checkpoint = open_checkpoint(file("weights"));
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const Result<ConversionPlan> plan = plan_quantize(*checkpoint, options);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto report = quantize_checkpoint(*checkpoint, *plan, options, {}, file("fp8"));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->quantized, 2u);
  const Result<TensorFile> written = read_tensor_file(file("fp8") / "model.safetensors");
  ASSERT_TRUE(written) << written.error().message;
  for (const auto& [name, weight] : weights) {
    const Tensor& scales = written->tensors.at(name + "_scale_inv");
    const std::size_t rows = weight.shape()[0], cols = weight.shape()[1];
    ASSERT_EQ(scales.shape(), (Shape{rows / 4, cols / 4}));
    const auto w = weight.values<float>();
    std::vector<float> largest(scales.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      float& of_block = largest[i / cols / 4 * (cols / 4) + i % cols / 4];
      of_block = std::max(of_block, std::fabs(w[i]));
    }
    for (float& x : largest) x /= 448.0f;
    EXPECT_THAT(scales.to_floats(), ::testing::ElementsAreArray(largest)) << name;
  }
}

}  // namespace
}  // namespace octavo
