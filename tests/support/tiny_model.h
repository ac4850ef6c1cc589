// The tiny models that Transformers wrote (tests/golden/models) as directories that commands run.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/tensor_file.h"

namespace octavo::tests {

// A tokenizer of one token for each character, as many as the tiny models know.
inline std::string character_tokenizer() {
  constexpr int kAscii = 95, kVocabulary = 160;
  nlohmann::json vocabulary;
  for (int id = 0; id < kVocabulary; ++id) {
    const int code = id < kAscii ? 0x20 + id : 0xA1 + id - kAscii;
    std::string character;
    if (code >= 0x80) character += static_cast<char>(0xC0 | code >> 6);
    character += static_cast<char>(code < 0x80 ? code : 0x80 | (code & 0x3F));
    vocabulary[character] = id;
  }
  return nlohmann::json{
      {"version", "1.0"},
      {"added_tokens", nlohmann::json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", nullptr},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Fuse"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

struct TinyModel {
  Tensors tensors;
  nlohmann::json config;

  void write(const std::filesystem::path& directory) const {
    write_model(directory, tensors, config.dump());
    write_string(directory / "tokenizer.json", character_tokenizer());
  }
};

inline TinyModel tiny_model(const std::string& name) {
  const std::filesystem::path from = std::filesystem::path(OCTAVO_GOLDEN_DIR "/models") / name;
  return {read_tensor_file(from / "model.safetensors"),
          nlohmann::json::parse(read_string(from / "config.json"))};
}

// The model in FP8, as `quantize` writes it.
inline TinyModel fp8_model(const TinyModel& wide, const std::vector<std::string>& options = {}) {
  const TempDir dir;
  wide.write(dir / "in");
  std::vector<std::string> arguments{"quantize", (dir / "in").string(), (dir / "out").string()};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome run = run_octavo(arguments);
  EXPECT_EQ(run.status, 0) << run.err;
  Model model = read_model(dir / "out");
  return {std::move(model.tensors), std::move(model.config)};
}

// `perplexity --json` on a fixed text: its sum of logarithms depends on every bit of the logits.
struct Quality {
  double negative_log_likelihood = 0;
  std::string err;
};

inline Quality quality(const std::filesystem::path& model,
                       const std::vector<std::string>& options = {}, std::string_view before = "") {
  const TempDir dir;
  std::string text;
  for (unsigned i = 0, state = 1; i < 200; ++i) {
    state = state * 1664525 + 1013904223;
    text += static_cast<char>(' ' + state % 2000 / 21 % 95);
  }
  write_string(dir / "text", text);
  std::vector<std::string> arguments{
      "perplexity", model.string(), "--file", (dir / "text").string(),
      "--ctx-size", "150",          "--json"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome run = run_octavo(arguments, before);
  EXPECT_EQ(run.status, 0) << run.err;
  if (run.status != 0) return {0, run.err};
  return {run.json().at("negative_log_likelihood").get<double>(), run.err};
}

inline Quality quality(const TinyModel& model, const std::vector<std::string>& options = {}) {
  const TempDir dir;
  model.write(dir / "model");
  return quality(dir / "model", options);
}

// How often `part` stands in `text`.
inline std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

// A run of the model that must be refused: one line, status 1.
inline std::string refusal(const TinyModel& model) {
  const TempDir dir;
  model.write(dir / "model");
  const Outcome run = run_octavo({"generate", (dir / "model").string(), "-p", "abc", "-n", "3"});
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  return only_line(run);
}

}  // namespace octavo::tests
