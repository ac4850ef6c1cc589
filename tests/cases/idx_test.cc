// IDX cases: shards, and the index that says what is in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/broken.h"
#include "tests/support/command.h"
#include "tests/support/inputs.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr Extent kSquare{128, 128};
const std::string kIndex = "model.safetensors.index.json";

std::string five_digits(int number) {
  const std::string digits = std::to_string(number);
  return std::string(5 - digits.size(), '0') + digits;
}

std::string shard_name(int number, int count, const std::string& stem = "model") {
  return stem + "-" + five_digits(number) + "-of-" + five_digits(count) + ".safetensors";
}

// One BF16 matrix a shard: "model.layers.N.up_proj.weight".
std::map<std::string, Tensors> shards(int count, const std::string& stem = "model") {
  std::map<std::string, Tensors> files;
  for (int i = 1; i <= count; ++i) {
    files[shard_name(i, count, stem)]["model.layers." + std::to_string(i) + ".up_proj.weight"] =
        bf16_weight(kSquare, static_cast<std::uint64_t>(i));
  }
  return files;
}

Json read_index(const fs::path& directory) {
  return Json::parse(read_string(directory / kIndex)).at("weight_map");
}

void write_index(const fs::path& directory, const Json& map) {
  write_string(directory / kIndex, Json{{"weight_map", map}}.dump());
}

std::string message(const Json& report, std::size_t defect = 0) {
  return report.at("defects").at(defect).at("message").get<std::string>();
}

TEST(Idx01, ShardThatIsNotThere) {
  const TempDir dir;
  write_model(dir / "in", shards(4), kPlainConfig);
  fs::remove(dir / "in" / shard_name(3, 4));
  const Json report = expect_refused(dir / "in", "missing-file");
  EXPECT_EQ(report.at("defects").size(), 1u);
  EXPECT_THAT(message(report),
              AllOf(HasSubstr(shard_name(3, 4)), HasSubstr("missing are 1 of 4 files"),
                    HasSubstr("for 1 tensor "), HasSubstr("incomplete download?"),
                    Not(HasSubstr(shard_name(2, 4)))));
  EXPECT_THAT(report.at("fetch_again"), ElementsAre((dir / "in" / shard_name(3, 4)).string()));

  fs::remove(dir / "in" / shard_name(1, 4));
  const Json two = expect_refused(dir / "in", "missing-file");
  EXPECT_THAT(two.at("fetch_again"), ElementsAre((dir / "in" / shard_name(1, 4)).string(),
                                                 (dir / "in" / shard_name(3, 4)).string()));
  EXPECT_THAT(message(two), AllOf(HasSubstr(shard_name(1, 4)), HasSubstr(shard_name(3, 4))));
}

TEST(Idx01, LostShardsAreNoLostScales) {
  // Weights and scales in different files, as a cut download leaves them.
  const TempDir dir;
  std::map<std::string, Tensors> files;
  for (int i = 0; i < 8; ++i) {
    Fp8Weight weight = fp8_weight(kSquare, static_cast<std::uint64_t>(i));
    const std::string module = "model.layers." + std::to_string(i) + ".up_proj";
    files[shard_name(i < 4 ? 1 : 2, 2)][module + ".weight"] = weight.codes;
    files[shard_name(i < 4 ? 2 : 1, 2)][module + ".weight_scale_inv"] = weight.scales;
  }
  write_model(dir / "in", files, kFp8Config);
  EXPECT_EQ(verify_report(dir / "in", 0).at("unpaired"), 0);
  fs::remove(dir / "in" / shard_name(2, 2));
  const Json report = verify_report(dir / "in", 3);
  EXPECT_EQ(codes_of(report.at("defects")), std::vector<std::string>{"missing-file"});
  EXPECT_EQ(report.at("unpaired"), 0);
  // A scale that the index does not know either is a defect of its own.
  write_tensor_file(dir / "in" / shard_name(1, 2), [&] {
    Tensors tensors = files[shard_name(1, 2)];
    tensors["odd.weight"] = fp8_weight(kSquare, 9).codes;
    return tensors;
  }());
  Json map = read_index(dir / "in");
  map["odd.weight"] = shard_name(1, 2);
  write_index(dir / "in", map);
  const Json odd = verify_report(dir / "in", 3);
  EXPECT_EQ(codes_of(odd.at("defects")),
            (std::vector<std::string>{"missing-file", "missing-scale"}));
  EXPECT_EQ(odd.at("unpaired"), 1);
}

TEST(Idx02, ThreeWaysToBeWrong) {
  const TempDir dir;
  std::map<std::string, Tensors> files = shards(2);
  files[shard_name(1, 2)]["mtp.fc.weight"] = bf16_weight(kSquare, 7);
  files[shard_name(2, 2)]["unmapped.weight"] = bf16_weight(kSquare, 8);
  write_model(dir / "in", files, kPlainConfig);
  Json map = read_index(dir / "in");
  map["mtp.fc.weight"] = shard_name(2, 2);
  map["nowhere.weight"] = shard_name(2, 2);
  map.erase("unmapped.weight");
  write_index(dir / "in", map);
  const Json report = expect_refused(dir / "in", "index-wrong-file");
  EXPECT_THAT(
      codes_of(report.at("defects")),
      UnorderedElementsAre("index-wrong-file", "index-missing-tensor", "index-unlisted-tensor"));
  std::map<std::string, std::string> tensors;
  for (const Json& defect : report.at("defects")) {
    tensors[defect.at("code")] = defect.at("tensor");
    EXPECT_EQ(defect.at("file"), (dir / "in" / kIndex).string());
  }
  EXPECT_EQ(tensors,
            (std::map<std::string, std::string>{{"index-wrong-file", "mtp.fc.weight"},
                                                {"index-missing-tensor", "nowhere.weight"},
                                                {"index-unlisted-tensor", "unmapped.weight"}}));
  EXPECT_THAT(message(report), AllOf(HasSubstr("mtp.fc.weight is in " + shard_name(2, 2)),
                                     HasSubstr("but it is in " + shard_name(1, 2))));
}

TEST(Idx02, AShardThatTheIndexPassesOver) {
  const TempDir dir;
  write_model(dir / "in", shards(3), R"({"num_hidden_layers": 4})");
  Json map = read_index(dir / "in");
  map.erase("model.layers.3.up_proj.weight");
  write_index(dir / "in", map);
  const Json report = expect_refused(dir / "in", "index-unlisted-tensor");
  EXPECT_EQ(report.at("defects").size(), 1u) << "layers that are not read are not counted as lost";
  EXPECT_THAT(message(report), HasSubstr("does not name " + shard_name(3, 3)));
  EXPECT_EQ(run_octavo({"verify", (dir / "in").string(), "--rebuild-index"}).status, 0);
}

TEST(Idx03, StaleIndexAndANewOne) {
  const TempDir dir;
  // The index that quantize writes for these tensors is the one to come back to.
  write_model(dir / "wide", shards(15), kPlainConfig);
  ASSERT_EQ(run_octavo({"quantize", (dir / "wide").string(), (dir / "in").string()}).status, 0);
  const std::string good = read_string(dir / "in" / kIndex);
  Json stale = Json::object();
  const Json fresh = read_index(dir / "in");
  for (const auto& [tensor, file] : fresh.items())
    stale[tensor] = shard_name(static_cast<int>(tensor.size() % 30) + 1, 30);
  write_index(dir / "in", stale);
  const Json report = expect_refused(dir / "in", "index-stale");
  EXPECT_EQ(report.at("defects").size(), 1u) << report;
  EXPECT_THAT(message(report), AllOf(HasSubstr("stale"), HasSubstr("a set of 15 is"),
                                     HasSubstr("octavo verify --rebuild-index")));
  EXPECT_EQ(report.at("fetch_again"), Json::array());

  const Outcome rebuilt = run_octavo({"verify", (dir / "in").string(), "--rebuild-index"});
  EXPECT_EQ(rebuilt.status, 0) << rebuilt.out;
  EXPECT_THAT(rebuilt.err, AllOf(HasSubstr("wrote " + (dir / "in" / kIndex).string()),
                                 HasSubstr("30 tensors in 15 files")));
  EXPECT_EQ(read_string(dir / "in" / kIndex), good);
  EXPECT_EQ(verify_report(dir / "in", 0).at("tensors"), 30);
  EXPECT_EQ(run_octavo({"inspect", (dir / "in").string()}).status, 0);
  read_model(dir / "in");  // holds the index against the files
}

TEST(Idx03, NoIndexFromAnIncompleteSet) {
  const TempDir dir;
  write_model(dir / "in", shards(4), kPlainConfig);
  fs::remove(dir / "in" / shard_name(2, 4));
  const auto state = state_of(dir / "in");
  const Outcome run = run_octavo({"verify", (dir / "in").string(), "--rebuild-index"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(only_line(run),
              AllOf(StartsWith((dir / "in").string()), HasSubstr("no index was written"),
                    HasSubstr("3 of 4 shards model-*")));
  EXPECT_EQ(state_of(dir / "in"), state);
}

TEST(Idx04, TwoSetsOfWeights) {
  const TempDir dir;
  write_model(dir / "in", shards(2), kPlainConfig);
  write_tensor_file(dir / "in" / "consolidated.safetensors",
                    {{"layers.1.feed_forward.w1.weight", bf16_weight(kSquare, 1)}});
  write_model(dir / "single", {{"model.layers.1.up_proj.weight", bf16_weight(kSquare, 1)}},
              kPlainConfig);
  fs::copy_file(dir / "in" / "consolidated.safetensors",
                dir / "single" / "consolidated.safetensors");
  for (const char* name : {"in", "single"}) {
    const Json report = verify_report(dir / name, 0);
    EXPECT_EQ(codes_of(report.at("notes")), std::vector<std::string>{"other-weights"});
    EXPECT_THAT(report.at("notes").at(0).at("message").get<std::string>(),
                HasSubstr("consolidated.safetensors not read"));
    const Outcome text = run_octavo({"verify", (dir / name).string()});
    EXPECT_THAT(text.out,
                AllOf(StartsWith("note "), HasSubstr("consolidated.safetensors not read")));
    const Outcome run =
        run_octavo({"quantize", (dir / name).string(), (dir / "out").string(), "--overwrite"});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_FALSE(fs::exists(dir / "out" / "consolidated.safetensors"));
    EXPECT_FALSE(read_model(dir / "out").tensors.contains("layers.1.feed_forward.w1.weight"));
    EXPECT_THAT(run.err, HasSubstr("consolidated.safetensors"));
  }
}

TEST(Idx05, IndexOfAnotherForm) {
  struct Case {
    std::string text;
    std::string words;
  };
  const std::string good =
      R"({"weight_map":{"model.layers.1.up_proj.weight":")" + shard_name(1, 1) + "\"}}";
  for (const Case& c :
       {Case{"[]", "not a JSON object"}, Case{"null", "not a JSON object"},
        Case{"{}", "no weight_map"}, Case{R"({"weight_map": []})", "weight_map is not an object"},
        Case{R"({"weight_map": {}})", "weight_map names no tensor"},
        Case{R"({"weight_map": {"a.weight": 3}})", "weight_map[\"a.weight\"] is not a file name"},
        Case{"", "not valid JSON"}, Case{good.substr(0, 20), "not valid JSON"},
        Case{R"({"weight_map": {}, "weight_map": {}})", "more than one weight_map"},
        Case{"\xEF\xBB\xBF[]", "not a JSON object"}, Case{"\xEF\xBB\xBF", "not valid JSON"}}) {
    const TempDir dir;
    write_model(dir / "in", shards(1), kPlainConfig);
    write_string(dir / "in" / kIndex, c.text);
    const Json report = expect_refused(dir / "in", "index-syntax");
    EXPECT_EQ(report.at("defects").size(), 1u);
    EXPECT_THAT(message(report),
                AllOf(StartsWith((dir / "in" / kIndex).string() + ": "), HasSubstr(c.words)));
    EXPECT_THAT(report.at("fetch_again"), ElementsAre((dir / "in" / kIndex).string()));
  }
  const TempDir dir;
  write_model(dir / "in", shards(1), kPlainConfig);
  write_string(dir / "in" / kIndex, "\xEF\xBB\xBF" + good);
  EXPECT_EQ(verify_report(dir / "in", 0).at("tensors"), 1) << "a byte order mark is passed over";
}

TEST(Idx06, TheIndexDecidesWhateverShardsAreCalled) {
  const TempDir dir;
  write_model(dir / "in", shards(3, "consolidated"), kPlainConfig);
  EXPECT_EQ(verify_report(dir / "in", 0).at("files"), 3);
  for (const char* command : {"quantize", "dequantize"}) {
    const Outcome run = run_octavo({command, (dir / "in").string(), (dir / command).string()});
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(read_model(dir / command).files.size(), 3u);
  }
}

TEST(Idx06, WithoutAnIndex) {
  const TempDir dir;
  write_tensor_file(dir / "in" / "odd name.safetensors", {{"a.weight", bf16_weight(kSquare, 1)}});
  EXPECT_EQ(verify_report(dir / "in", 0).at("tensors"), 1);
  EXPECT_EQ(run_octavo({"quantize", (dir / "in").string(), (dir / "one").string()}).status, 0);

  write_tensor_file(dir / "in" / "other.safetensors",
                    {{"b.weight", bf16_weight(kSquare, 2)}, {"c.weight", bf16_weight(kSquare, 2)}});
  const Json report = expect_refused(dir / "in", "ambiguous-weights");
  EXPECT_THAT(message(report), AllOf(HasSubstr("odd name.safetensors"),
                                     HasSubstr("other.safetensors"), HasSubstr("name one file")));
  // The choice is made by naming the file.
  const fs::path chosen = dir / "in" / "other.safetensors";
  EXPECT_EQ(verify_report(chosen, 0).at("tensors"), 2);
  EXPECT_EQ(run_octavo({"inspect", chosen.string()}).status, 0);
  const Outcome run = run_octavo({"quantize", chosen.string(), (dir / "two").string()});
  ASSERT_EQ(run.status, 0) << run.err;
  const Tensors out = read_model(dir / "two").tensors;
  EXPECT_TRUE(out.contains("b.weight") && out.contains("c.weight") && !out.contains("a.weight"));
}

TEST(Idx03, AnIndexInOrderStays) {
  const TempDir dir;
  // A new one would know the numbered files only.
  write_model(dir / "in",
              std::map<std::string, Tensors>{
                  {"model-00001-of-00001.safetensors", {{"a", bf16_weight({2, 2}, 1)}}},
                  {"model_extra_tensors.safetensors", {{"b", bf16_weight({2, 2}, 2)}}}},
              kPlainConfig);
  const std::string index = read_string(dir / "in" / "model.safetensors.index.json");
  const Outcome run = run_octavo({"verify", (dir / "in").string(), "--rebuild-index"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(only_line(run), ::testing::HasSubstr("it is in order; no index was written"));
  EXPECT_EQ(read_string(dir / "in" / "model.safetensors.index.json"), index);
}

TEST(Idx01, TooManyOpenFilesAreNoDefect) {
  const TempDir dir;
  std::map<std::string, Tensors> files;
  for (int i = 10; i < 50; ++i) {
    files["s" + std::to_string(i) + ".safetensors"] = {
        {"t" + std::to_string(i), bf16_weight({2, 2}, 1)}};
  }
  write_model(dir / "in", files, kPlainConfig);
  const Outcome run = run_octavo({"verify", (dir / "in").string()}, "ulimit -n 24; ");
  EXPECT_EQ(run.status, 1) << run.out;
  EXPECT_THAT(only_line(run), ::testing::HasSubstr("Too many open files; raise the limit"));
}

}  // namespace
}  // namespace octavo::tests
