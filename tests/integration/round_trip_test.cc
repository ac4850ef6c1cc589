// Loading and saving: what Octavo wrote comes back to the byte; of any other file, every tensor's
// bytes and all metadata.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "octavo/checkpoint/safetensors.h"
#include "tests/support/command.h"
#include "tests/support/inputs.h"
#include "tests/support/kill.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

void convert(const char* command, const fs::path& from, const fs::path& to,
             std::vector<std::string> more = {}) {
  more.insert(more.begin(), {command, from.string(), to.string()});
  const Outcome run = run_octavo(more);
  ASSERT_EQ(run.status, 0) << run.err;
}

Tensors mixed_tensors() {
  Tensors tensors;
  tensors["model.layers.0.mlp.down_proj.weight"] = bf16_weight({192, 320}, 1);
  tensors["model.norm.weight"] = {"F32", {5}, Bytes(20, 0x3F)};
  tensors["ids"] = {"I64", {3}, Bytes(24, 7)};
  tensors["mask"] = {"BOOL", {3}, Bytes(3, 1)};
  tensors["none"] = {"F16", {2, 0}, {}};
  tensors["one"] = {"F32", {}, Bytes(4, 0x40)};
  tensors["caf\xC3\xA9 \"quoted\" \\ \n"] = {"U8", {1}, Bytes(1, 9)};
  return tensors;
}

// `dequantize` of a model without quantized tensors loads and saves it.
TEST(RoundTrip, WhatOctavoWroteComesBackToTheByte) {
  const TempDir dir;
  write_model(dir / "source", mixed_tensors(), kPlainConfig);
  for (const std::vector<std::string>& shards :
       {std::vector<std::string>{}, {"--max-shard-size", "50kB"}}) {
    const std::string name = "sharded" + std::to_string(shards.size());
    convert("quantize", dir / "source", dir / (name + "-fp8"), shards);
    convert("dequantize", dir / (name + "-fp8"), dir / name);
    convert("dequantize", dir / name, dir / (name + "-again"));
    EXPECT_EQ(contents(dir / name), contents(dir / (name + "-again")));
  }
}

TEST(RoundTrip, TheSameHeaderForTheSameTensors) {
  const TempDir dir;
  write_model(dir / "source", mixed_tensors(), kPlainConfig);
  convert("quantize", dir / "source", dir / "fp8");
  const fs::path path = dir / "fp8" / "model.safetensors";
  const Result<File> file = File::open(path);
  ASSERT_TRUE(file) << file.error().message;
  const Result<SafetensorsHeader> header = read_safetensors_header(*file);
  ASSERT_TRUE(header) << header.error().message;
  const SafetensorsLayout layout = layout_safetensors(header->tensors, header->metadata);
  EXPECT_EQ(layout.head, read_string(path).substr(0, layout.head.size()));
  EXPECT_EQ(layout.file_bytes, fs::file_size(path));
}

// Header text as others write it: another order of keys and bytes, white space, metadata, data that
// begins at an odd offset.
TEST(RoundTrip, AnyOtherFileKeepsBytesAndMetadata) {
  const TempDir dir;
  const std::string header = R"({ "b" : {"data_offsets":[0,3],"shape":[3],"dtype":"U8"}, )"
                             R"("__metadata__":{"made by":"someone \u00e9","format":"np"}, )"
                             R"("a":{"dtype":"F32","shape":[1,1],"data_offsets":[3,7]}}  )"
                             "\n ";
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  ASSERT_NE(bytes.size() % 8 + header.size() % 8, 0u);
  write_string(dir / "source" / "model.safetensors", bytes + header + "xyz1234");
  convert("dequantize", dir / "source", dir / "copy");
  const Result<File> file = File::open(dir / "copy" / "model.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  const Result<SafetensorsHeader> got = read_safetensors_header(*file);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->metadata, (std::map<std::string, std::string>{{"made by", "someone \xC3\xA9"},
                                                               {"format", "np"}}));
  std::map<std::string, std::string> data;
  for (const TensorInfo& tensor : got->tensors) {
    std::string& value = data[tensor.name];
    value.resize(tensor.bytes);
    ASSERT_TRUE(file->read_at(tensor.offset, std::as_writable_bytes(std::span(value))));
  }
  EXPECT_EQ(data, (std::map<std::string, std::string>{{"a", "1234"}, {"b", "xyz"}}));
}

}  // namespace
}  // namespace octavo::tests
