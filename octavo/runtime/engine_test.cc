// The engine, perplexity and generation on the tiny models that Transformers wrote. That logits do
// not depend on chunks, batch or threads: octavo/models/golden_test.cc.
#include "octavo/runtime/engine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "octavo/formats/traits.h"
#include "octavo/models/models_testing.h"
#include "octavo/runtime/generate.h"
#include "octavo/runtime/perplexity.h"

namespace {

std::atomic<std::size_t> allocations = 0;

// Not inlined: g++ would see malloc on one side and operator delete on the other.
[[gnu::noinline]] void* allocate(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void release(void* p) noexcept { std::free(p); }

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
void operator delete(void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }

namespace octavo::runtime {
namespace {

using octavo::testing::golden_models;
using octavo::testing::load;
using octavo::testing::must;
using ::testing::HasSubstr;

using Tokens = std::vector<std::int32_t>;

Tokens some_tokens(std::size_t count) {
  Tokens tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<std::int32_t>(i * 37 % 151);
  return tokens;
}

// Token i is the text "<i>".
text::Tokenizer numbers(std::size_t vocab) {
  Json json{{"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}}}};
  for (std::size_t i = 0; i < vocab; ++i) json["model"]["vocab"][fmt::format("<{}>", i)] = i;
  json["decoder"] = {{"type", "Fuse"}};
  return must(text::Tokenizer::parse(json.dump(), "numbers"));
}

TEST(Engine, DecodingAllocatesNothing) {
  QuantizeOptions quantize;
  for (const bool fp8 : {false, true}) {
    const models::LoadedModel loaded =
        load(golden_models() / "qwen3",
             octavo::testing::quantizing(fp8 ? std::optional(quantize) : std::nullopt));
    for (const Format kv : {Format::bf16, Format::e4m3fn}) {
      Engine engine(loaded.model, {.kv_cache = kv});
      Sequence sequence = engine.sequence(64);
      const Tokens tokens = some_tokens(40);
      engine.prefill({&sequence, std::span(tokens).first(8)});
      const auto decode = [&](std::size_t i) {
        const Feed feed{&sequence, std::span(tokens).subspan(i, 1)};
        engine.decode(std::span(&feed, 1));
      };
      for (std::size_t i = 8; i < 16; ++i) decode(i);
      const std::size_t before = allocations;
      for (std::size_t i = 16; i < 40; ++i) decode(i);
      EXPECT_EQ(allocations - before, 0u) << fp8 << " " << format_name(kv);
    }
  }
}

TEST(Engine, RefusesWhatIsOutsideTheContract) {
  const models::LoadedModel loaded = load(golden_models() / "qwen3");
  Engine engine(loaded.model);
  Sequence sequence = engine.sequence(4);
  const Tokens five = some_tokens(5), bad{0, 1000};
  EXPECT_THROW(engine.prefill({&sequence, five}), ContractError);
  EXPECT_THROW(engine.prefill({&sequence, bad}), ContractError);
  EXPECT_THROW(engine.prefill({&sequence, {}}), ContractError);
}

// Against softmax in double of the same logits. A term: the sum of exponentials is within
// (cols / 16 + 5 + 2) * 2^-24 of its value (one addition a lane, the tree, exp2), the difference of
// two logits and log(sum) are rounded in long double.
TEST(Perplexity, IsThatOfTheLogits) {
  const models::LoadedModel loaded = load(golden_models() / "llama3");
  Engine engine(loaded.model, {.prompt_chunk = 7});
  const Tokens tokens = some_tokens(50);
  constexpr std::size_t kWindow = 20;
  double expected = 0, bound = 0;
  std::size_t predicted = 0;
  for (std::size_t at = 0; at < tokens.size(); at += kWindow) {
    const auto window = std::span(tokens).subspan(at, std::min(kWindow, tokens.size() - at));
    Sequence sequence = engine.sequence(kWindow);
    const Feed feed{&sequence, window};
    const nn::Value logits = engine.logits(engine.hidden_states(std::span(&feed, 1)));
    for (std::size_t i = 0; i + 1 < window.size(); ++i, ++predicted) {
      double sum = 0;
      const float* row = logits.row(i);
      const double target = row[static_cast<std::size_t>(window[i + 1])];
      for (std::size_t j = 0; j < logits.cols; ++j) sum += std::exp(row[j] - target);
      expected += std::log(sum);
      bound += (static_cast<double>(logits.cols) / 16 + 7) * 0x1p-24 + 1e-12;
    }
  }
  const Perplexity found = must(perplexity(engine, tokens, {.context = kWindow}));
  EXPECT_EQ(found.predicted, predicted);
  EXPECT_NEAR(found.negative_log_likelihood, expected, bound);
  EXPECT_DOUBLE_EQ(found.perplexity,
                   std::exp(found.negative_log_likelihood / static_cast<double>(predicted)));
}

TEST(Perplexity, PutsTheFirstTokenBeforeEveryWindow) {
  const models::LoadedModel loaded = load(golden_models() / "llama3");
  Engine engine(loaded.model);
  const Tokens tokens = some_tokens(30);
  const Perplexity found = must(perplexity(engine, tokens, {.context = 11, .first_token = 3}));
  EXPECT_EQ(found.predicted, 30u);  // three windows of ten, all of whose tokens are predicted
  EXPECT_FALSE(perplexity(engine, std::span(tokens).first(1)));
}

TEST(Generate, GivesTheSameTokensAloneAndSideBySide) {
  const models::LoadedModel loaded = load(golden_models() / "mistral");
  const text::Tokenizer tokenizer = numbers(loaded.model.config.vocab_size);
  Engine engine(loaded.model);
  const std::vector<Tokens> prompts{some_tokens(5), some_tokens(40), some_tokens(17)};
  GenerateOptions options{.max_new_tokens = 30};
  const GenerateResult together = must(generate(engine, tokenizer, prompts, options));
  ASSERT_EQ(together.sequences.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const GenerateResult alone =
        must(generate(engine, tokenizer, std::span(prompts).subspan(i, 1), options));
    EXPECT_EQ(alone.sequences[0].tokens, together.sequences[i].tokens) << i;
    EXPECT_EQ(alone.sequences[0].tokens.size(), 30u);
    EXPECT_EQ(alone.sequences[0].finish_reason, FinishReason::length);
  }
}

// The rate of a prompt counts what ran.
TEST(Generate, AnInterruptedPromptIsNotCounted) {
  const models::LoadedModel loaded = load(golden_models() / "qwen2");
  const text::Tokenizer tokenizer = numbers(loaded.model.config.vocab_size);
  Engine engine(loaded.model);
  const std::vector<Tokens> prompts{some_tokens(6), some_tokens(9)};
  std::atomic<bool> interrupt = false;
  GenerateOptions options{.max_new_tokens = 20, .interrupt = &interrupt};
  options.on_text = [&](std::size_t, std::string_view) { interrupt = true; };
  const GenerateResult first = must(generate(engine, tokenizer, prompts, options));
  EXPECT_EQ(first.times.prompt_tokens, 6u);
  EXPECT_EQ(first.sequences[1].finish_reason, FinishReason::interrupted);
  const GenerateResult none = must(generate(engine, tokenizer, prompts, options));
  EXPECT_EQ(none.times.prompt_tokens, 0u);
  EXPECT_EQ(none.times.prompt_tps(), 0);
}

TEST(Generate, EndsAtTokensStopStringsAndTheContext) {
  const models::LoadedModel loaded = load(golden_models() / "qwen2");
  const text::Tokenizer tokenizer = numbers(loaded.model.config.vocab_size);
  Engine engine(loaded.model);
  const std::vector<Tokens> prompt{some_tokens(6)};
  GenerateOptions options{.max_new_tokens = 20};
  const Tokens all = must(generate(engine, tokenizer, prompt, options)).sequences[0].tokens;
  ASSERT_EQ(all.size(), 20u);
  const auto first_of = [&](std::int32_t id) {
    return static_cast<std::size_t>(std::ranges::find(all, id) - all.begin());
  };

  options.eos_token_ids = {all[7]};
  const GenerateResult ended = must(generate(engine, tokenizer, prompt, options));
  const auto kept = std::span(all).first(first_of(all[7]));
  EXPECT_EQ(ended.sequences[0].tokens, Tokens(kept.begin(), kept.end()));
  EXPECT_EQ(ended.sequences[0].finish_reason, FinishReason::stop);

  options.eos_token_ids = {};
  options.stop = {fmt::format("<{}>", all[9])};
  std::string shown;
  options.on_text = [&](std::size_t, std::string_view piece) { shown += piece; };
  const GenerateResult stopped = must(generate(engine, tokenizer, prompt, options));
  std::string expected;
  for (std::size_t i = 0; i < first_of(all[9]); ++i) expected += fmt::format("<{}>", all[i]);
  EXPECT_EQ(stopped.sequences[0].text, expected);
  EXPECT_EQ(shown, expected);

  options.stop = {};
  options.context = 10;
  EXPECT_EQ(must(generate(engine, tokenizer, prompt, options)).sequences[0].tokens.size(), 4u);
  options.context = 6;
  const auto refused = generate(engine, tokenizer, prompt, options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("6 tokens"));
}

TEST(Generate, ACacheChangesNothingButTheWork) {
  const models::LoadedModel loaded = load(golden_models() / "llama_tied");
  const text::Tokenizer tokenizer = numbers(loaded.model.config.vocab_size);
  Engine engine(loaded.model);
  PromptCache cache;
  GenerateOptions cached{.max_new_tokens = 12, .context = 200, .cache = &cache};
  const GenerateOptions plain{.max_new_tokens = 12, .context = 200};
  std::vector<Tokens> prompt{some_tokens(20)};
  for (int turn = 0; turn < 3; ++turn) {
    const GenerateResult with = must(generate(engine, tokenizer, prompt, cached));
    const GenerateResult without = must(generate(engine, tokenizer, prompt, plain));
    EXPECT_EQ(with.sequences[0].tokens, without.sequences[0].tokens) << turn;
    EXPECT_EQ(with.times.cached_tokens, turn == 0 ? 0u : turn == 1 ? 31u : 10u) << turn;
    if (turn == 0) {  // what was said, and more
      prompt[0].insert(prompt[0].end(), with.sequences[0].tokens.begin(),
                       with.sequences[0].tokens.end());
      prompt[0].insert(prompt[0].end(), {9, 8, 7});
    } else {  // another conversation after ten tokens
      prompt[0].resize(10);
      prompt[0].insert(prompt[0].end(), {150, 149});
    }
  }
}

}  // namespace
}  // namespace octavo::runtime
