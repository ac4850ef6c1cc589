#include "octavo/checkpoint/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/checkpoint/memory_checkpoint_testing.h"

namespace octavo {
namespace {

using testing::add_fp8;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MemoryTensor;

const std::string kBlocks = R"("quantization_config": {"weight_block_size": [128, 128]})";

TensorParallelPlan plan(const std::vector<MemoryTensor>& tensors, const std::string& members,
                        const std::vector<std::uint64_t>& degrees) {
  const Checkpoint checkpoint = testing::memory_checkpoint(tensors, "{" + members + "}");
  return plan_tensor_parallel(checkpoint, pair_scales(checkpoint, {}), degrees);
}

// The only weight's.
SplitRow row_of(const std::vector<MemoryTensor>& tensors, const std::string& members,
                const std::vector<std::uint64_t>& degrees) {
  const TensorParallelPlan result = plan(tensors, members, degrees);
  EXPECT_EQ(result.rows.size(), 1u);
  return result.rows.at(0);
}

SplitRow row_of_fp8(const std::string& module, std::uint64_t rows, std::uint64_t cols,
                    const std::string& members, const std::vector<std::uint64_t>& degrees) {
  std::vector<MemoryTensor> tensors;
  add_fp8(tensors, module, rows, cols);
  return row_of(tensors, members.empty() ? kBlocks : kBlocks + ", " + members, degrees);
}

std::vector<SplitVerdict> verdicts(const SplitRow& row) {
  std::vector<SplitVerdict> result;
  for (const SplitResult& r : row.results) result.push_back(r.verdict);
  return result;
}

constexpr SplitVerdict kWorks = SplitVerdict::works;
constexpr SplitVerdict kNo = SplitVerdict::does_not_divide;
constexpr SplitVerdict kCut = SplitVerdict::blocks_cut;

struct NameCase {
  const char* module;
  Split split;
};

TEST(TensorParallel, SplitByName) {
  const NameCase cases[] = {
      {"model.layers.0.self_attn.q_proj", Split::column},
      {"model.layers.0.self_attn.o_proj", Split::row},
      {"model.layers.0.self_attn.qkv_proj", Split::column},
      {"model.layers.0.mlp.gate_up_proj", Split::column},
      {"model.layers.0.mlp.down_proj", Split::row},
      {"model.layers.0.mlp.experts.3.w1", Split::column},
      {"model.layers.0.mlp.experts.3.w2", Split::row},
      {"model.layers.0.mlp.shared_experts.up_proj", Split::column},
      {"model.layers.0.mlp.gate", Split::replicated},
      {"model.layers.0.mlp.shared_expert_gate", Split::replicated},
      {"model.layers.0.self_attn.q_a_proj", Split::replicated},
      {"model.layers.0.self_attn.kv_a_proj_with_mqa", Split::replicated},
      {"model.layers.0.self_attn.q_b_proj", Split::column},
      {"model.layers.0.self_attn.kv_b_proj", Split::column},
      {"model.layers.0.self_attn.indexer.wq_b", Split::replicated},
      {"model.layers.0.self_attn.indexer.wk", Split::replicated},
      {"layers.0.attn.wq_a", Split::replicated},
      {"layers.0.attn.wkv", Split::replicated},
      {"layers.0.attn.wq_b", Split::column},
      {"layers.0.attn.wo_a", Split::column},
      {"layers.0.attn.wo_b", Split::row},
      {"layers.0.ffn.experts.0.w3", Split::column},
      {"model.layers.0.linear_attn.in_proj_qkv", Split::column},
      {"model.layers.0.linear_attn.out_proj", Split::row},
      {"model.layers.0.eh_proj", Split::replicated},
      {"model.embed_tokens", Split::vocabulary},
      {"lm_head", Split::vocabulary},
      {"model.visual.blocks.0.attn.q_proj", Split::unknown},
      {"model.layers.0.something", Split::unknown},
  };
  for (const NameCase& c : cases) {
    const SplitRow row = row_of_fp8(c.module, 1024, 1024, "", {2});
    EXPECT_EQ(row.split, c.split) << c.module;
    EXPECT_EQ(row.results[0].verdict, kWorks) << c.module;
  }
}

TEST(TensorParallel, BlocksAlongTheSplitDirection) {
  // 768 rows in blocks of 128: halves are whole blocks, quarters are not.
  const SplitRow column = row_of_fp8("mlp.up_proj", 768, 200, "", {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(verdicts(column), ElementsAre(kWorks, kWorks, kWorks, kCut, kNo, kWorks));
  EXPECT_EQ(column.block, 128u);
  EXPECT_EQ(column.results[3].shard, 192u);
  EXPECT_EQ(column.results[3].reason, "768 / 4 = 192 is no multiple of 128");
  EXPECT_EQ(column.results[4].reason, "768 features do not divide by 5");
  const SplitRow row = row_of_fp8("mlp.down_proj", 200, 768, "", {4});
  EXPECT_THAT(verdicts(row), ElementsAre(kCut));
  // One block is too little for two devices.
  EXPECT_THAT(verdicts(row_of_fp8("mlp.down_proj", 512, 64, "", {2})), ElementsAre(kCut));
}

TEST(TensorParallel, ScalesPerTensorAndPerRowAreNeverCut) {
  for (const Shape& scale : {Shape{}, Shape{1}, Shape{96}, Shape{96, 1}}) {
    for (const char* module : {"mlp.up_proj", "mlp.down_proj"}) {
      const SplitRow row = row_of({{std::string(module) + ".weight", DType::f8_e4m3, {96, 96}},
                                   {std::string(module) + ".weight_scale", DType::f32, scale}},
                                  "", {2, 3, 32});
      EXPECT_THAT(verdicts(row), ElementsAre(kWorks, kWorks, kWorks)) << to_string(scale);
      EXPECT_EQ(row.block, 0u);
    }
  }
}

TEST(TensorParallel, GroupsOfThirtyTwo) {
  const std::vector<MemoryTensor> down = {{"w2.weight", DType::i8, {64, 48}},
                                          {"w2.scale", DType::f8_e8m0, {64, 3}}};
  const SplitRow row = row_of(down, kBlocks, {2, 3});  // 96 values a row
  EXPECT_THAT(verdicts(row), ElementsAre(kCut, kWorks));
  const std::vector<MemoryTensor> up = {{"w1.weight", DType::i8, {64, 48}},
                                        {"w1.scale", DType::f8_e8m0, {64, 3}}};
  EXPECT_THAT(verdicts(row_of(up, kBlocks, {2, 64})), ElementsAre(kWorks, kWorks));
}

TEST(TensorParallel, HeadsOfTheConfig) {
  const std::string heads =
      R"("hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2, "head_dim": 128)";
  const std::vector<std::uint64_t> degrees = {2, 3, 4, 8};
  const SplitRow q = row_of_fp8("self_attn.q_proj", 1536, 1536, heads, degrees);
  EXPECT_THAT(verdicts(q), ElementsAre(kWorks, kWorks, kWorks, kNo));
  EXPECT_EQ(q.results[3].reason, "12 attention heads do not divide by 8");
  // Two key/value heads on four devices: each device holds one.
  const SplitRow k = row_of_fp8("self_attn.k_proj", 256, 1536, heads, degrees);
  EXPECT_THAT(verdicts(k), ElementsAre(kWorks, kNo, kWorks, kWorks));
  EXPECT_EQ(k.results[2].shard, 128u);
  const SplitRow o = row_of_fp8("self_attn.o_proj", 1536, 1536, heads, degrees);
  EXPECT_THAT(verdicts(o), ElementsAre(kWorks, kWorks, kWorks, kNo));
  // The same heads below text_config.
  const SplitRow text =
      row_of_fp8("self_attn.q_proj", 1536, 1536, "\"text_config\": {" + heads + "}", {8});
  EXPECT_THAT(verdicts(text), ElementsAre(kNo));
}

TEST(TensorParallel, OneKeyValueHeadIsWholeEverywhere) {
  const std::string heads =
      R"("hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 64)";
  EXPECT_THAT(verdicts(row_of_fp8("self_attn.k_proj", 64, 512, heads, {2, 8})),
              ElementsAre(kWorks, kWorks));
}

TEST(TensorParallel, EachPartOfAFusedMatrix) {
  const std::string heads =
      R"("hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64)";
  // 512 + 128 + 128 rows: halves of the keys are 64 rows, half a block.
  const SplitRow qkv = row_of_fp8("self_attn.qkv_proj", 768, 512, heads, {1, 2});
  EXPECT_THAT(verdicts(qkv), ElementsAre(kWorks, kCut));
  EXPECT_EQ(qkv.results[1].reason, "128 / 2 = 64 is no multiple of 128");
  EXPECT_THAT(
      verdicts(row_of({{"self_attn.qkv_proj.weight", DType::bf16, {768, 512}}}, heads, {2, 4, 16})),
      ElementsAre(kWorks, kWorks, kNo));
  // 2 x 384: a whole number of blocks of the whole is none of each half.
  const SplitRow gate_up = row_of_fp8("mlp.gate_up_proj", 768, 512, "", {2, 3});
  EXPECT_THAT(verdicts(gate_up), ElementsAre(kCut, kWorks));
  EXPECT_EQ(gate_up.results[0].reason, "384 / 2 = 192 is no multiple of 128");
}

TEST(TensorParallel, FusedExpertsInBothOrders) {
  const std::string hidden = R"("hidden_size": 512)";
  const auto fused = [&](const char* name, Shape shape) {
    return row_of({{name, DType::bf16, std::move(shape)}}, hidden, {3, 4});
  };
  // 2 x 768 features of 512 inputs: 3 and 4 divide 768.
  for (const Shape& shape : {Shape{4, 1536, 512}, Shape{4, 512, 1536}}) {
    const SplitRow row = fused("mlp.experts.gate_up_proj", shape);
    EXPECT_THAT(verdicts(row), ElementsAre(kWorks, kWorks)) << to_string(shape);
    EXPECT_TRUE(row.expert);
  }
  for (const Shape& shape : {Shape{4, 512, 768}, Shape{4, 768, 512}}) {
    EXPECT_THAT(verdicts(fused("mlp.experts.down_proj", shape)), ElementsAre(kWorks, kWorks))
        << to_string(shape);
  }
}

TEST(TensorParallel, AVocabularyIsPadded) {
  const SplitRow row = row_of({{"lm_head.weight", DType::bf16, {1001, 64}}}, "", {2});
  EXPECT_THAT(verdicts(row), ElementsAre(kWorks));
  EXPECT_EQ(row.results[0].shard, 501u);
  EXPECT_THAT(verdicts(row_of_fp8("lm_head", 1024, 128, "", {2, 16})), ElementsAre(kWorks, kCut));
}

TEST(TensorParallel, OutputGroupsOfV4) {
  const std::string config = R"("o_groups": 8, "num_attention_heads": 64)";
  EXPECT_THAT(verdicts(row_of_fp8("layers.0.attn.wo_a", 8192, 4096, config, {8, 16})),
              ElementsAre(kWorks, kNo));
  EXPECT_THAT(verdicts(row_of_fp8("layers.0.attn.wo_b", 4096, 8192, config, {8, 16})),
              ElementsAre(kWorks, kNo));
}

TEST(TensorParallel, DegreesOfAModel) {
  std::vector<MemoryTensor> tensors;
  add_fp8(tensors, "mlp.experts.0.up_proj", 768, 512);
  add_fp8(tensors, "mlp.shared_expert.up_proj", 512, 512);
  tensors.push_back({"mlp.bias", DType::bf16, {512}});
  const TensorParallelPlan result = plan(tensors, kBlocks, {2, 4});
  EXPECT_EQ(result.rows.size(), 2u) << "matrices without their scales";
  EXPECT_THAT(result.working, ElementsAre(1, 2));
  EXPECT_THAT(result.cutting, ElementsAre(4, 8, 16, 32, 64));
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("num_attention_heads")));
  EXPECT_THAT(plan(tensors, kBlocks + R"(, "num_attention_heads": 8)", {}).notes, IsEmpty());
}

}  // namespace
}  // namespace octavo
