// What `verify` says of skip lists: CFG-01, CFG-02, CFG-08, and DEQ-18's missing entry.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Extent kSquare{128, 128};

// The notes, "CODE: MESSAGE", of a model that must be sound: two wide matrices and one FP8.
std::vector<std::string> notes(const std::vector<std::string>& list) {
  const TempDir dir;
  const Fp8Weight weight = fp8_weight(kSquare, 3);
  nlohmann::json config = nlohmann::json::parse(kFp8Config);
  config["quantization_config"]["modules_to_not_convert"] = list;
  write_model(dir / "in",
              {{"model.layers.0.linear_attn.in_proj_qkv.weight", bf16_weight(kSquare, 1)},
               {"model.layers.0.mlp.up_proj.weight", bf16_weight(kSquare, 2)},
               {"model.layers.0.mlp.gate_proj.weight", weight.codes},
               {"model.layers.0.mlp.gate_proj.weight_scale_inv", weight.scales}},
              config.dump());
  const Outcome run = run_octavo({"verify", (dir / "in").string(), "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  std::vector<std::string> found;
  const nlohmann::json report = run.json();
  for (const auto& note : report.at("notes")) {
    found.push_back(note.at("code").get<std::string>() + ": " +
                    note.at("message").get<std::string>());
  }
  return found;
}

TEST(Cfg01, VerifyListsEntriesThatMatchNothing) {
  EXPECT_THAT(notes({"linear_attn.in_proj_qkv", "up_proj"}), IsEmpty());
  EXPECT_THAT(notes({"linear_attn.in_proj_qkv", "mlp.up_proj", "in_proj"}),
              ElementsAre(AllOf(HasSubstr("skip-entry-unused: "),
                                HasSubstr("config.json: modules_to_not_convert names "
                                          "\"in_proj\", which is no module"))));
}

TEST(Cfg02, VerifyKnowsWrappersAndTheNearestName) {
  EXPECT_THAT(notes({"model.language_model.layers.0.linear_attn.in_proj_qkv",
                     "language_model.model.layers.0.mlp.up_proj"}),
              IsEmpty());
  EXPECT_THAT(notes({"linear_attn.in_proj_qkv", "mlp.up_proj", "mlp.gate_prj", "mlp.other"}),
              ElementsAre(HasSubstr("\"mlp.gate_prj\", which is no module; nearest: "
                                    "model.layers.0.mlp.gate_proj"),
                          HasSubstr("\"mlp.other\"")));
}

TEST(Cfg08, VerifyNamesAListedTensorThatIsFp8) {
  EXPECT_THAT(notes({"linear_attn.in_proj_qkv", "up_proj", "gate_proj"}),
              ElementsAre(AllOf(HasSubstr("skip-entry-quantized: "),
                                HasSubstr("model.layers.0.mlp.gate_proj"))));
}

TEST(Deq18, VerifyNamesAWideMatrixThatIsNotListed) {
  EXPECT_THAT(notes({"linear_attn.in_proj_qkv"}),
              ElementsAre(AllOf(HasSubstr("skip-list-incomplete: "),
                                HasSubstr("model.layers.0.mlp.up_proj"))));
}

}  // namespace
}  // namespace octavo::tests
