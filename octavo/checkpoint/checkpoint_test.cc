#include "octavo/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/checkpoint/checkpoint_testing.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::is_one_line;
using ::testing::IsEmpty;
using testing::safetensors_bytes;

constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

class CheckpointTest : public testing::DirectoryTest {
 protected:
  // Tensors a and b in the first shard, c in the second.
  void write_shards() const {
    write(kFirst, safetensors_bytes({{"a", "U8", {2}, "aa"}, {"b", "U8", {3}, "bbb"}}));
    write(kSecond, safetensors_bytes({{"c", "U8", {4}, "cdef"}}));
  }
  void write_index(const std::string& map) const {
    write(kIndex, R"({"metadata": {"total_size": 9}, "weight_map": )" + map + "}");
  }
  void write_good_index() const { write_index(good_map()); }
  static std::string good_map() {
    return Json({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}}).dump();
  }

  Error error_of_opening() const {
    const Result<Checkpoint> checkpoint = open_checkpoint(directory_);
    EXPECT_FALSE(checkpoint) << "opened";
    if (checkpoint) return {};
    EXPECT_TRUE(is_one_line(checkpoint.error().message)) << checkpoint.error().message;
    EXPECT_THAT(checkpoint.error().message, HasSubstr(directory_.string()));
    return checkpoint.error();
  }
};

TEST_F(CheckpointTest, ShardsByIndex) {
  write_shards();
  write_good_index();
  write("config.json",
        R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 64]}})");
  write("tokenizer.json", "{}");
  write("sub/notes.txt", "x");
  write(".cache/huggingface/x.lock", "x");
  write(".model.safetensors.partial", "x");
  write("notes.partial", "x");
  write("pytorch_model.bin", "x");
  write("original/consolidated.safetensors", "x");
  write("original/consolidated.00.pth", "x");
  const Result<Checkpoint> got = open_checkpoint(directory_);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->index_name, kIndex);
  EXPECT_EQ(got->directory, directory_);
  ASSERT_EQ(got->shards.size(), 2u);
  EXPECT_EQ(got->tensor_bytes, 9u);
  EXPECT_EQ(got->quantization.weight_block_size->cols, 64u);
  EXPECT_THAT(got->side_files,
              ElementsAre("config.json", "notes.partial", "original/consolidated.00.pth",
                          "original/consolidated.safetensors", "sub/notes.txt", "tokenizer.json"));
  EXPECT_THAT(got->other_weights, ElementsAre("pytorch_model.bin"));

  ASSERT_NE(got->find("c"), nullptr);
  EXPECT_EQ(got->shards[got->find("c")->shard].file_name, kSecond);
  EXPECT_EQ(got->find("d"), nullptr);
  std::string bytes(2, '?');
  ASSERT_TRUE(got->read(*got->find("c"), 1, std::as_writable_bytes(std::span(bytes))));
  EXPECT_EQ(bytes, "de");
}

TEST_F(CheckpointTest, ShardsAreNeverSideFiles) {
  // In a folder, without the suffix, and spelled in another way than the directory lists them.
  write("sub/a.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}}));
  write("weights/b.data", safetensors_bytes({{"b", "U8", {3}, "bbb"}}));
  write("c", safetensors_bytes({{"c", "U8", {4}, "cdef"}}));
  write("sub/README", "x");
  write_index(R"({"a": "./sub//a.safetensors", "b": "weights/./b.data", "c": "./c"})");
  const Result<Checkpoint> got = open_checkpoint(directory_);
  ASSERT_TRUE(got) << got.error().message;
  std::vector<std::string> shards;
  for (const Shard& shard : got->shards) shards.push_back(shard.file_name);
  EXPECT_THAT(shards, ElementsAre("c", "sub/a.safetensors", "weights/b.data"));
  EXPECT_THAT(got->side_files, ElementsAre("sub/README"));
  EXPECT_THAT(got->other_weights, IsEmpty());
}

TEST_F(CheckpointTest, TwoSpellingsOfOneShard) {
  write("a.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}, {"b", "U8", {1}, "b"}}));
  write_index(R"({"a": "a.safetensors", "b": "./a.safetensors"})");
  const Result<Checkpoint> got = open_checkpoint(directory_);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->shards.size(), 1u);
}

TEST_F(CheckpointTest, ReadingBeyondATensorIsABrokenContract) {
  write("model.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}, {"b", "U8", {3}, "bbb"}}));
  const Result<Checkpoint> got = open_checkpoint(directory_);
  ASSERT_TRUE(got);
  std::string bytes(3, '?');
  const auto to = std::as_writable_bytes(std::span(bytes));
  EXPECT_THROW((void)got->read(*got->find("a"), 0, to), ContractError);
  EXPECT_THROW((void)got->read(*got->find("a"), ~std::uint64_t{0}, to), ContractError);
  EXPECT_TRUE(got->read(*got->find("a"), 2, to.first(0)));
}

TEST_F(CheckpointTest, OneFile) {
  const fs::path path = write("some.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}}));
  for (const fs::path& given : {path, directory_}) {
    const Result<Checkpoint> got = open_checkpoint(given);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->index_name, "");
    ASSERT_EQ(got->shards.size(), 1u);
    EXPECT_EQ(got->shards[0].file_name, "some.safetensors");
    EXPECT_TRUE(got->config.is_object());
    EXPECT_FALSE(got->quantization.present);
  }
}

TEST_F(CheckpointTest, TheConfigBesideOneFile) {
  const fs::path path = write("some.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}}));
  const std::string config = R"({"quantization_config": {"weight_block_size": [96, 128]}})";
  write("config.json", config);
  write("tokenizer.json", "{}");
  write("other.safetensors", "x");
  const Result<Checkpoint> got = open_checkpoint(path);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->config_text, config);
  EXPECT_EQ(got->config, Json::parse(config));
  ASSERT_TRUE(got->quantization.weight_block_size);
  EXPECT_EQ(got->quantization.weight_block_size->rows, 96u);
  EXPECT_THAT(got->side_files, IsEmpty());
  EXPECT_THAT(got->other_weights, IsEmpty());

  fs::remove(directory_ / "config.json");
  write("hf_quant_config.json", R"({"quantization": {"exclude_modules": ["x"]}})");
  EXPECT_THAT(open_checkpoint(path)->quantization.skip, ElementsAre("x"));
  write("config.json", "[");
  EXPECT_EQ(open_checkpoint(path).error().code, ErrorCode::bad_file);
}

TEST_F(CheckpointTest, OneFileOfSeveralAndNoIndex) {
  const fs::path file =
      write("model-00001-of-00030.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}}));
  const Error error = error_of_opening();
  EXPECT_EQ(error.code, ErrorCode::bad_model);
  EXPECT_THAT(error.message, HasSubstr("1 of 30 files"));
  EXPECT_THAT(error.message, HasSubstr(kIndex));
  EXPECT_TRUE(open_checkpoint(file)) << "asked for by name";
  for (const char* whole : {"model-00001-of-00001.safetensors", "best-of-30.safetensors",
                            "one-1-of-many.safetensors"}) {
    fs::remove_all(directory_);
    write(whole, safetensors_bytes({{"a", "U8", {2}, "aa"}}));
    EXPECT_TRUE(open_checkpoint(directory_)) << whole;
  }
}

TEST_F(CheckpointTest, LinkedFilesAsInADownloadCache) {
  write("blobs/1234", safetensors_bytes({{"a", "U8", {2}, "aa"}}));
  write("blobs/5678", "{}");
  fs::create_directory(directory_ / "snapshot");
  fs::create_symlink("../blobs/1234", directory_ / "snapshot" / "model.safetensors");
  fs::create_symlink("../blobs/5678", directory_ / "snapshot" / "config.json");
  const Result<Checkpoint> got = open_checkpoint(directory_ / "snapshot");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_NE(got->find("a"), nullptr);
  EXPECT_THAT(got->side_files, ElementsAre("config.json"));
}

TEST_F(CheckpointTest, ModelSafetensorsIsTakenAmongSeveral) {
  write("model.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}}));
  write("consolidated.safetensors", safetensors_bytes({{"x", "U8", {2}, "xx"}}));
  const Result<Checkpoint> got = open_checkpoint(directory_);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_NE(got->find("a"), nullptr);
  EXPECT_EQ(got->find("x"), nullptr);
  EXPECT_THAT(got->other_weights, ElementsAre("consolidated.safetensors"));
}

TEST_F(CheckpointTest, NothingThere) {
  EXPECT_THAT(error_of_opening().message, HasSubstr("no .safetensors file"));
  directory_ /= "none";
  EXPECT_EQ(error_of_opening().code, ErrorCode::io);
}

TEST_F(CheckpointTest, SeveralFilesAndNoIndex) {
  write_shards();
  const Error error = error_of_opening();
  EXPECT_EQ(error.code, ErrorCode::bad_model);
  EXPECT_THAT(error.message, HasSubstr(kIndex));
}

TEST_F(CheckpointTest, FilesThatAreMissing) {
  write_shards();
  write_good_index();
  fs::remove(directory_ / kSecond);
  const Error error = error_of_opening();
  EXPECT_EQ(error.code, ErrorCode::bad_model);
  EXPECT_THAT(error.message, HasSubstr("1 of 2"));
  EXPECT_THAT(error.message, HasSubstr(kSecond));
  EXPECT_THAT(error.message, ::testing::Not(HasSubstr(kFirst)));
}

TEST_F(CheckpointTest, AnIndexThatDoesNotFitTheFiles) {
  write_shards();
  write_index(Json({{"a", kFirst}, {"b", kSecond}, {"c", kSecond}}).dump());
  EXPECT_THAT(error_of_opening().message, HasSubstr(std::string("says that b is in ") + kSecond));
  write_index(Json({{"a", kFirst}, {"b", kFirst}, {"c", kSecond}, {"d", kSecond}}).dump());
  EXPECT_THAT(error_of_opening().message, HasSubstr("d is in"));
  write_index(Json({{"a", kFirst}, {"c", kSecond}}).dump());
  const Error unnamed = error_of_opening();
  EXPECT_EQ(unnamed.code, ErrorCode::bad_model);
  EXPECT_THAT(unnamed.message, HasSubstr("b is in"));
}

TEST_F(CheckpointTest, ATensorTwiceInTheIndex) {
  write_shards();
  const std::string first(kFirst), second(kSecond);
  // As many entries as tensors, but b is not among them.
  write_index(R"({"a": ")" + first + R"(", "a": ")" + first + R"(", "c": ")" + second + R"("})");
  EXPECT_THAT(error_of_opening().message, HasSubstr("b is in"));
  write_index(R"({"a": ")" + first + R"(", "b": ")" + first + R"(", "c": ")" + first +
              R"(", "c": ")" + second + R"("})");
  const Error error = error_of_opening();
  EXPECT_EQ(error.code, ErrorCode::bad_file);
  EXPECT_THAT(error.message, HasSubstr("\"c\" twice"));
}

TEST_F(CheckpointTest, FilesOfAbsurdSizeAreNotRead) {
  write_shards();
  write_good_index();
  for (const auto& [name, bytes] : {std::pair{"config.json", (16u << 20) + 1},
                                    {"hf_quant_config.json", (16u << 20) + 1},
                                    {kIndex, (256u << 20) + 1}}) {
    const fs::path path = directory_ / name;
    const bool there = fs::exists(path);
    if (!there) write(name, "{}");
    const auto size = fs::file_size(path);
    EXPECT_TRUE(open_checkpoint(directory_)) << name;
    fs::resize_file(path, bytes);  // sparse
    const Error error = error_of_opening();
    EXPECT_EQ(error.code, ErrorCode::bad_file);
    EXPECT_THAT(error.message, HasSubstr(std::to_string(bytes) + " bytes")) << name;
    fs::resize_file(path, size);
  }
}

TEST_F(CheckpointTest, ATensorInTwoShards) {
  write(kFirst, safetensors_bytes({{"a", "U8", {2}, "aa"}}));
  write(kSecond, safetensors_bytes({{"a", "U8", {2}, "aa"}, {"c", "U8", {1}, "c"}}));
  write_index(Json({{"a", kFirst}, {"c", kSecond}}).dump());
  const Error error = error_of_opening();
  EXPECT_EQ(error.code, ErrorCode::bad_model);
  EXPECT_THAT(error.message, HasSubstr(kFirst));
  EXPECT_THAT(error.message, HasSubstr(kSecond));
}

TEST_F(CheckpointTest, AnIndexThatLeadsOutOfTheDirectory) {
  write("model/x.json", "");
  write("outside.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}}));
  const fs::path outside = directory_ / "outside.safetensors";
  directory_ /= "model";
  for (const std::string& path : {std::string("../outside.safetensors"), outside.string(),
                                  std::string("x/../../outside.safetensors"),
                                  std::string("./../outside.safetensors"), std::string("..")}) {
    write_index(Json({{"a", path}}).dump());
    const Error error = error_of_opening();
    EXPECT_EQ(error.code, ErrorCode::bad_file) << path;
    EXPECT_THAT(error.message, HasSubstr(path));
  }
  directory_ = directory_.parent_path();
}

TEST_F(CheckpointTest, MalformedIndices) {
  write_shards();
  for (const char* text :
       {"", "{", "[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": 3}})",
        R"({"weight_map": {"a": ""}})", R"({"weight_map": {"a": null}})"}) {
    write(kIndex, text);
    EXPECT_EQ(error_of_opening().code, ErrorCode::bad_file) << text;
  }
  write(kIndex, R"({"weight_map": {}})");
  EXPECT_THAT(error_of_opening().message, HasSubstr(kIndex)) << "an index that names nothing";
  write(kIndex, "\xEF\xBB\xBF{\"weight_map\": " + good_map() + "}");
  EXPECT_TRUE(open_checkpoint(directory_)) << "a byte order mark is skipped";
}

TEST_F(CheckpointTest, ABadShardIsNamed) {
  write_shards();
  write_good_index();
  write(kSecond, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4976698672\n");
  const Error error = error_of_opening();
  EXPECT_EQ(error.code, ErrorCode::bad_file);
  EXPECT_THAT(error.message, HasSubstr(kSecond));
}

TEST_F(CheckpointTest, ABadConfig) {
  write("model.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}}));
  for (const char* text : {"", "[]", "{\"a\": }"}) {
    write("config.json", text);
    EXPECT_EQ(error_of_opening().code, ErrorCode::bad_file) << text;
  }
  write("config.json", R"({"quantization_config": {"weight_block_size": [0, 1]}})");
  EXPECT_EQ(error_of_opening().code, ErrorCode::bad_model);
}

TEST_F(CheckpointTest, ModelOptsConfigWhereThereIsNoOther) {
  write("model.safetensors", safetensors_bytes({{"a", "U8", {2}, "aa"}}));
  write("hf_quant_config.json", R"({"quantization": {"exclude_modules": ["lm_head"]}})");
  write("config.json", "{}");
  EXPECT_THAT(open_checkpoint(directory_)->quantization.skip, ElementsAre("lm_head"));
  write("config.json", R"({"quantization_config": {"ignore": ["x"]}})");
  EXPECT_THAT(open_checkpoint(directory_)->quantization.skip, ElementsAre("x"));
}

}  // namespace
}  // namespace octavo
