// Greedy text of Transformers, all in f32: tests/golden/models/make_greedy.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "octavo/models/models_testing.h"
#include "octavo/runtime/engine.h"

namespace octavo::runtime {
namespace {

using octavo::testing::golden_models;
using octavo::testing::load;
using octavo::testing::must;

using Tokens = std::vector<std::int32_t>;

Json read_golden() {
  std::ifstream file(golden_models() / "expected" / "greedy.json");
  return Json::parse(file);
}

std::int32_t best_of(const nn::Value& logits, std::size_t row) {
  const float* first = logits.row(row);
  return static_cast<std::int32_t>(std::max_element(first, first + logits.cols) - first);
}

struct Text {
  Tokens prompt, greedy;
};

class GreedyText {
 public:
  GreedyText(const std::filesystem::path& directory, const Json& golden)
      : loaded_(load(directory)),
        engine_(loaded_.model, {.activations = nn::ActivationType::f32, .kv_cache = Format::f32}),
        golden_(golden) {
    for (std::size_t i = 0; i < golden.at("prompts").size(); ++i) {
      texts_.push_back({golden["prompts"][i], golden.at("greedy").at(i)});
    }
  }

  void expect_same() {
    ASSERT_EQ(texts_.size(), 20u);
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      SCOPED_TRACE("prompt " + std::to_string(i));
      ASSERT_EQ(texts_[i].greedy.size(), 200u);
      expect_same_fed(i);
    }
    expect_same_free();
  }

 private:
  // Transformers' own f32 run does not decide a step whose two best logits are nearer in f64 than
  // its largest error.
  bool undecided(std::size_t text, std::size_t step) const {
    return std::ranges::any_of(golden_.at("near"), [&](const Json& near) {
      return near.at(0) == text && near.at(1) == step && near.at(2) < golden_.at("f32_error");
    });
  }

  // What comes next after each token of Transformers' text.
  void expect_same_fed(std::size_t i) {
    const Text& text = texts_[i];
    Tokens fed = text.prompt;
    fed.insert(fed.end(), text.greedy.begin(), text.greedy.end() - 1);
    Sequence sequence = engine_.sequence(fed.size());
    const Feed feed{&sequence, fed};
    const nn::Value hidden = engine_.hidden_states(std::span(&feed, 1));
    const std::size_t first = text.prompt.size() - 1;
    const nn::Value logits = engine_.logits({hidden.row(first), hidden.rows - first, hidden.cols});
    ASSERT_EQ(logits.rows, text.greedy.size());
    for (std::size_t step = 0; step < logits.rows; ++step) {
      EXPECT_TRUE(best_of(logits, step) == text.greedy[step] || undecided(i, step)) << step;
    }
  }

  // All texts side by side, each feeding itself, as far as it may not part from Transformers'.
  void expect_same_free() {
    std::vector<Sequence> sequences;
    Tokens next(texts_.size());
    std::vector<bool> parted(texts_.size());
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const Text& text = texts_[i];
      sequences.push_back(engine_.sequence(text.prompt.size() + text.greedy.size()));
      next[i] = best_of(engine_.prefill({&sequences[i], text.prompt}), 0);
    }
    for (std::size_t step = 0; step < texts_[0].greedy.size(); ++step) {
      std::vector<Feed> feeds;
      for (std::size_t i = 0; i < texts_.size(); ++i) {
        const bool same = next[i] == texts_[i].greedy[step];
        if (!same && undecided(i, step)) parted[i] = true;
        ASSERT_TRUE(same || parted[i]) << "prompt " << i << ", step " << step;
        feeds.push_back({&sequences[i], std::span(&next[i], 1)});
      }
      const nn::Value logits = engine_.decode(feeds);
      for (std::size_t i = 0; i < texts_.size(); ++i) next[i] = best_of(logits, i);
    }
  }

  models::LoadedModel loaded_;
  Engine engine_;
  Json golden_;
  std::vector<Text> texts_;
};

TEST(GreedyGolden, TinyModelsSayWhatTransformersSays) {
  const Json golden = read_golden();
  for (const char* name : octavo::testing::kTinyModels) {
    SCOPED_TRACE(name);
    GreedyText(golden_models() / name, golden.at(name)).expect_same();
  }
}

// Size, and the sum of the 64-bit words, of the file that the golden text is of.
bool has_weights(const std::filesystem::path& file, const Json& weights) {
  std::ifstream stream(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  std::uint64_t sum = 0, word = 0;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::memcpy(&word, bytes.data() + at, 8);
    sum += word;
  }
  return bytes.size() == weights.at(0) &&
         sum == std::stoull(weights.at(1).get<std::string>(), nullptr, 16);
}

TEST(GreedyGoldenSlow, SmolLm2SaysWhatTransformersSays) {
  const char* directory = std::getenv("OCTAVO_SMOLLM2");
  if (directory == nullptr) GTEST_SKIP() << "OCTAVO_SMOLLM2 names no SmolLM2-135M-Instruct";
  const Json golden = read_golden().at("smollm2");
  const std::filesystem::path file = std::filesystem::path(directory) / "model.safetensors";
  if (!has_weights(file, golden.at("weights"))) {
    GTEST_SKIP() << file << ": not the weights that the golden text is of";
  }
  GreedyText(directory, golden).expect_same();
}

}  // namespace
}  // namespace octavo::runtime
