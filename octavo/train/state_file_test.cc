// Files that are refused, and ones that differ in ways that do not matter.
#include "octavo/train/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "octavo/checkpoint/tensor_file.h"
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

class StateFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "octavo_state_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    file_ = directory_ / "state.safetensors";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_, file_;
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
                                          "hold it as I32: begin to count anew");
    EXPECT_EQ(read_tensor_file(file_)->tensors.at("step").item(), 2147483647) << "stands";
  }
}

}  // namespace
}  // namespace octavo
