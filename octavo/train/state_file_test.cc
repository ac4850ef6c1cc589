// Files that are refused, and ones that differ in ways that do not matter.
#include "octavo/train/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "octavo/checkpoint/tensor_file.h"
#include "octavo/nn/einsum.h"
#include "octavo/train/train_testing.h"

namespace octavo {
namespace {

using testing::batch_of;
using testing::expect_same_bits;
using testing::gradients;

const nn::Dense kLayer{.features = 4,
                       .dot_general_cls = nn::Fp8DotGeneral{.amax_history_length = 4}};

TrainState new_state() {
  return TrainState::create(kLayer.init(Rng(0), batch_of(1)), optim::adam({.learning_rate = 0.01}));
}

TrainState trained() {
  const TrainState state = new_state();
  return state.apply_gradients(gradients(kLayer, state.variables, batch_of(2)).grads);
}

Tensor i64_scalar(std::int64_t value) {
  Tensor result(DType::i64, {});
  std::memcpy(const_cast<void*>(result.data()), &value, sizeof(value));
  return result;
}

class StateFile : public testing::FilesTest {
 protected:
  void SetUp() override {
    FilesTest::SetUp();
    file_ = file("state.safetensors");
  }

  std::filesystem::path file_;
};

Result<void> save_flax(const std::filesystem::path& path, const TrainState& state) {
  return export_flax_state(path, state);
}
Result<RestoredState> load_flax(const std::filesystem::path& path, const TrainState& initial) {
  return import_flax_state(path, initial);
}

using Save = Result<void> (*)(const std::filesystem::path&, const TrainState&);
using Load = Result<RestoredState> (*)(const std::filesystem::path&, const TrainState&);

struct Mismatch {
  const char* what;
  std::function<void(std::map<std::string, Tensor>&)> change;
  const char* message;  // behind "FILE: "
};

void expect_refused(const std::filesystem::path& file, Save save, Load load,
                    const std::vector<Mismatch>& table) {
  for (const Mismatch& mismatch : table) {
    SCOPED_TRACE(mismatch.what);
    ASSERT_TRUE(save(file, trained()));
    TensorFile changed = *read_tensor_file(file);
    mismatch.change(changed.tensors);
    ASSERT_TRUE(write_tensor_file(file, changed));
    const Result<RestoredState> restored = load(file, new_state());
    ASSERT_FALSE(restored);
    EXPECT_EQ(restored.error().code, ErrorCode::bad_file);
    EXPECT_EQ(restored.error().message, file.string() + ": " + mismatch.message);
  }
}

std::function<void(std::map<std::string, Tensor>&)> with(const char* name, Tensor tensor) {
  return [=](std::map<std::string, Tensor>& tensors) { tensors.insert_or_assign(name, tensor); };
}

std::function<void(std::map<std::string, Tensor>&)> without(const char* name) {
  return [=](std::map<std::string, Tensor>& tensors) { ASSERT_EQ(tensors.erase(name), 1u); };
}

TEST_F(StateFile, OfAnotherRunIsRefused) {
  const auto zeros = [](Shape shape, DType dtype = DType::f32) {
    return Tensor::zeros(dtype, std::move(shape));
  };
  const char* scale = "_overwrite_with_gradient/Fp8DirectDotGeneralOp_0/input_scale";
  const char* history = "_overwrite_with_gradient/Fp8DirectDotGeneralOp_0/input_amax_history";
  expect_refused(
      file_, save_train_state, load_train_state,
      {{"no parameter", without("params/kernel"), "no tensor 'params/kernel', which this run has"},
       {"another shape", with("params/kernel", zeros({8, 5})),
        "tensor 'params/kernel' is F32 [8, 5], this run has F32 [8, 4]"},
       {"another type", with("params/kernel", zeros({8, 4}, DType::bf16)),
        "tensor 'params/kernel' is BF16 [8, 4], this run has F32 [8, 4]"},
       {"a scale of another shape", with(scale, zeros({2})),
        "tensor '_overwrite_with_gradient/Fp8DirectDotGeneralOp_0/input_scale' is F32 [2], this "
        "run has F32 [1]"},
       {"an empty history", with(history, zeros({0})),
        "tensor '_overwrite_with_gradient/Fp8DirectDotGeneralOp_0/input_amax_history' is F32 [0], "
        "this run has F32 [4]"},
       {"no moments", without("opt_state/0/mu/kernel"),
        "no tensor 'opt_state/0/mu/kernel', which the optimizer of this run has"},
       {"moments of another shape", with("opt_state/0/nu/bias", zeros({5})),
        "tensor 'opt_state/0/nu/bias' is F32 [5], this run has F32 [4]"},
       {"another layer", with("params/Dense_1/kernel", zeros({4, 4})),
        "tensor 'params/Dense_1/kernel' has no place in this run (another model, or another "
        "optimizer)"},
       {"another optimizer", with("opt_state/0/trace/kernel", zeros({8, 4})),
        "tensor 'opt_state/0/trace/kernel' has no place in this run (another model, or another "
        "optimizer)"}});
}

TEST_F(StateFile, WithAStepThatIsNoneIsRefused) {
  const std::int32_t minus = -1;
  const std::vector<Mismatch> table = {
      {"a negative step", with("step", Tensor::from_ids(std::span(&minus, 1), {})),
       "step is -1, expected 0 or more"},
      {"a negative i64", with("step", i64_scalar(-7)), "step is -7, expected 0 or more"},
      {"two steps", with("step", Tensor::from_ids(std::vector{1, 2}, {2})),
       "tensor 'step' is I32 [2], this run has I32 []"},
      {"a float", with("step", Tensor::scalar(1)), "tensor 'step' is F32 [], this run has I32 []"}};
  expect_refused(file_, save_train_state, load_train_state, table);
  expect_refused(file_, save_flax, load_flax, table);
}

TEST_F(StateFile, OfFlaxFromAnotherRunIsRefused) {
  expect_refused(
      file_, save_flax, load_flax,
      {{"no parameter", without("params/params/kernel"),
        "no tensor 'params/params/kernel', which this run has"},
       {"another layer", with("params/params/Dense_1/kernel", Tensor::zeros(DType::f32, {4, 4})),
        "tensor 'params/params/Dense_1/kernel' has no place in this run (another model, or another "
        "optimizer)"}});
}

TEST_F(StateFile, ThatIsNoWholeSafetensorsFileIsRefused) {
  ASSERT_TRUE(save_train_state(file_, trained()));
  const std::uint64_t whole = std::filesystem::file_size(file_);
  for (const std::uint64_t bytes : {whole - 1, whole / 2, std::uint64_t{9}, std::uint64_t{0}}) {
    SCOPED_TRACE(bytes);
    std::filesystem::resize_file(file_, bytes);
    for (const Load load : {load_train_state, load_flax}) {
      const Result<RestoredState> restored = load(file_, new_state());
      ASSERT_FALSE(restored);
      EXPECT_EQ(restored.error().code, ErrorCode::bad_file);
      EXPECT_THAT(restored.error().message, ::testing::StartsWith(file_.string() + ": "));
    }
  }
  std::filesystem::remove(file_);
  const Result<RestoredState> restored = load_train_state(file_, new_state());
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code, ErrorCode::io);
}

// JAX counts in i64 where x64 is enabled.
TEST_F(StateFile, StepMayBeI64) {
  constexpr std::int64_t kStep = 3'000'000'000;
  ASSERT_TRUE(export_flax_state(file_, trained()));
  TensorFile changed = *read_tensor_file(file_);
  changed.tensors.insert_or_assign("step", i64_scalar(kStep));
  ASSERT_TRUE(write_tensor_file(file_, changed));
  const Result<RestoredState> restored = import_flax_state(file_, new_state());
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(restored->state.step, kStep);
  expect_same_bits(restored->state.variables, trained().variables);
}

TEST_F(StateFile, ANegativeStepIsNotWritten) {
  TrainState state = trained();
  state.step = -5;
  const Result<void> status = save_train_state(file_, state);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("step -5 is not written"));
}

TEST_F(StateFile, OfAnotherFormatIsRefused) {
  ASSERT_TRUE(save_train_state(file_, trained()));
  TensorFile other = *read_tensor_file(file_);
  other.metadata["format"] = "octavo.train_stata";
  ASSERT_TRUE(write_tensor_file(file_, other));
  const Result<RestoredState> restored = load_train_state(file_, new_state());
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code, ErrorCode::bad_file);
  EXPECT_EQ(restored.error().message,
            file_.string() + ": no training state, its format is 'octavo.train_stata'");
}

// Written beside and renamed: a device would be replaced.
TEST_F(StateFile, WhatIsNoRegularFileIsNotReplaced) {
  const std::filesystem::path pipe = file_.parent_path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::filesystem::path& path : {pipe, file_.parent_path()}) {
    const Result<void> status = save_train_state(path, trained());
    ASSERT_FALSE(status) << path;
    EXPECT_EQ(status.error().message,
              path.string() + ": not a regular file, which this would replace");
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(StateFile, StepBeyondI32IsNotWritten) {
  TrainState state = trained();
  for (const Save save : {save_train_state, save_flax}) {
    state.step = std::numeric_limits<std::int32_t>::max();
    ASSERT_TRUE(save(file_, state));
    EXPECT_EQ(read_tensor_file(file_)->tensors.at("step").item(), 2147483647);
    ++state.step;
    const Result<void> status = save(file_, state);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::unsupported);
    EXPECT_EQ(status.error().message, file_.string() +
                                          ": step 2147483648 is not written, files "
                                          "hold it as I32 from 0: begin to count anew");
    EXPECT_EQ(read_tensor_file(file_)->tensors.at("step").item(), 2147483647) << "stands";
  }
}

TEST_F(StateFile, WithTwoPartsOfOneNameIsNotWritten) {
  const auto words = [&](Save save, const Variables& variables) -> std::string {
    TrainState state = trained();
    state.variables = state.variables.merged(variables);
    const Result<void> status = save(file_, state);
    if (status) return "written";
    EXPECT_EQ(status.error().code, ErrorCode::unsupported);
    EXPECT_FALSE(std::filesystem::exists(file_));
    return status.error().message;
  };
  const auto twice = [&](const std::string& name) {
    return file_.string() + ": two parts of the state are '" + name +
           "' in the file: rename a collection or a module";
  };
  const Tensor one = Tensor::scalar(1);
  EXPECT_EQ(words(save_train_state, {{"opt_state/0/mu/kernel", one}}),
            twice("opt_state/0/mu/kernel"));
  EXPECT_EQ(words(save_train_state, {{"step", one}}), twice("step"));
  EXPECT_EQ(words(save_flax, {{"batch_stats/mean", one}, {"params/batch_stats/mean", one}}),
            "written");
  std::filesystem::remove(file_);

  // Flax's field holds the parameters alone, and beside them the other collections.
  TrainState plain = trained();
  plain.variables = {{"batch_stats/mean", one}, {"params/batch_stats/mean", one}};
  const Result<void> status = export_flax_state(file_, plain);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, twice("params/batch_stats/mean"));
}

// Collections that the step does not know.
TEST_F(StateFile, KeepsBatchStats) {
  const std::string path = "batch_stats/mean";
  const auto with_stats = [&](TrainState state, float value) {
    state.variables.set(path, Tensor::from({value, 2}, {2}));
    return state;
  };
  const TrainState before = with_stats(new_state(), 7);
  const TrainState after =
      before.apply_gradients(gradients(kLayer, before.variables, batch_of(2)).grads);
  EXPECT_TRUE(same_bits(after.variables.value(path), before.variables.value(path)));
  for (const auto& [save, load] : {std::pair<Save, Load>(save_train_state, load_train_state),
                                   std::pair<Save, Load>(save_flax, load_flax)}) {
    ASSERT_TRUE(save(file_, after));
    const Result<RestoredState> restored = load(file_, with_stats(new_state(), 1));
    ASSERT_TRUE(restored) << restored.error().message;
    EXPECT_THAT(restored->notes, ::testing::IsEmpty());
    expect_same_bits(restored->state.variables, after.variables);
  }
}

// Which operand input_* is of, a file of Flax does not tell.
TEST_F(StateFile, OfFlaxNotesWhatItAssumesOfEinsums) {
  const nn::Einsum layer{.shape = {8, 4},
                         .equation = "mk,kn->nm",
                         .use_bias = false,
                         .einsum_cls = nn::Fp8Einsum{.amax_history_length = 4}};
  const TrainState state =
      TrainState::create(layer.init(Rng(0), batch_of(1)), optim::sgd({.learning_rate = 0.1}));
  const auto notes_of = [&](const std::vector<std::string>& exchanged) {
    const Result<RestoredState> restored = import_flax_state(file_, state, exchanged);
    EXPECT_TRUE(restored);
    return restored ? restored->notes : std::vector<std::string>();
  };
  ASSERT_TRUE(export_flax_state(file_, state));
  EXPECT_THAT(notes_of({}), ::testing::ElementsAre(::testing::StartsWith(
                                "FP8 state of Fp8Einsum: read as if JAX exchanged the operands")));
  EXPECT_THAT(notes_of({"Fp8Einsum_0"}), ::testing::IsEmpty());

  // A file without such state, and a model without such a module.
  TrainState weights = state;
  weights.variables = state.variables.collection(kParams);
  ASSERT_TRUE(export_flax_state(file_, weights));
  EXPECT_THAT(notes_of({}), ::testing::ElementsAre(::testing::StartsWith("no FP8 state for 6")));
  ASSERT_TRUE(export_flax_state(file_, trained()));
  EXPECT_THAT(import_flax_state(file_, new_state())->notes, ::testing::IsEmpty());
}

}  // namespace
}  // namespace octavo
