#include "octavo/runtime/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "octavo/base/steady_seconds.h"
#include "octavo/runtime/stop.h"

namespace octavo::runtime {
namespace {

// One prompt on its way to text.
struct Run {
  std::size_t index;
  std::unique_ptr<Sequence> own;  // or the cache's
  Sequence* sequence;
  Sampler sampler;
  StopStrings stop;
  text::DecodeStream stream;
  std::vector<std::int32_t> history;  // prompt and what came
  std::size_t room;                   // tokens that may still come
  std::int32_t next = 0;              // chosen, not yet run
  bool ended = false;
};

class Generation {
 public:
  Generation(Engine& engine, const text::Tokenizer& tokenizer, const GenerateOptions& options)
      : engine_(engine), tokenizer_(tokenizer), options_(options) {}

  Result<void> add(std::span<const std::int32_t> prompt) {
    const std::size_t index = runs_.size();
    const std::size_t most =
        options_.context != 0 ? options_.context : prompt.size() + options_.max_new_tokens;
    if (prompt.empty()) {
      return fail(ErrorCode::bad_value, fmt::format("prompt {} has no tokens", index + 1));
    }
    if (prompt.size() >= most) {
      return fail(ErrorCode::bad_value,
                  fmt::format("prompt {} has {} tokens, which leave no room in a context of {}{}",
                              index + 1, prompt.size(), most,
                              most < engine_.model().config.max_position_embeddings
                                  ? ": a shorter prompt, or a larger --ctx-size"
                                  : ", all that the model knows: a shorter prompt is needed"));
    }
    OCTAVO_CHECK(engine_.check_tokens(prompt));
    const std::size_t room = std::min(options_.max_new_tokens, most - prompt.size());
    SamplingOptions sampling = options_.sampling;
    sampling.seed += index;
    OCTAVO_CHECK(check_sampling(sampling));
    OCTAVO_TRY(StopStrings stop, StopStrings::create(options_.stop));
    std::unique_ptr<Sequence> own;
    if (options_.cache == nullptr) {
      own = std::make_unique<Sequence>(engine_.sequence(prompt.size() + room));
    }
    Sequence* sequence = own ? own.get() : reused(prompt);
    runs_.push_back({index,
                     std::move(own),
                     sequence,
                     Sampler(sampling),
                     std::move(stop),
                     text::DecodeStream(tokenizer_, {.skip_special = true}),
                     {prompt.begin(), prompt.end()},
                     room});
    result_.sequences.emplace_back();
    return {};
  }

  Result<GenerateResult> run() {
    const double start = steady_seconds();
    for (Run& run : runs_) {
      if (stopped()) break;
      const std::size_t cached = run.sequence->length;
      const auto fresh = std::span<const std::int32_t>(run.history).subspan(cached);
      const nn::Value logits = engine_.prefill({run.sequence, fresh}, options_.interrupt);
      if (logits.rows == 0) break;
      result_.times.prompt_tokens += run.history.size();
      result_.times.cached_tokens += cached;
      OCTAVO_CHECK(choose(run, {logits.data, logits.cols}));
    }
    result_.times.prompt_seconds = steady_seconds() - start;
    const double decode_start = steady_seconds();
    while (!stopped() && collect()) {
      const nn::Value logits = engine_.decode(feeds_);
      for (std::size_t i = 0; i < fed_.size(); ++i) {
        OCTAVO_CHECK(choose(*fed_[i], {logits.row(i), logits.cols}));
      }
      result_.times.decoded_tokens += fed_.size();
      ++result_.times.steps;
    }
    result_.times.generate_seconds = steady_seconds() - decode_start;
    for (Run& run : runs_) {
      if (!run.ended) finish(run, FinishReason::interrupted);
    }
    if (options_.cache != nullptr && !runs_.empty()) {
      options_.cache->tokens = std::move(runs_[0].history);
      options_.cache->tokens.resize(runs_[0].sequence->length);
    }
    return std::move(result_);
  }

 private:
  bool stopped() const { return options_.interrupt != nullptr && options_.interrupt->load(); }

  // The cache's sequence, cut down to what it has in common with the prompt; the last token of the
  // prompt is run in any case.
  Sequence* reused(std::span<const std::int32_t> prompt) {
    PromptCache& cache = *options_.cache;
    if (!cache.sequence || cache.sequence->cache.shape().capacity < options_.context) {
      cache.sequence.emplace(engine_.sequence(options_.context));
      cache.tokens.clear();
    }
    const auto [mismatch, unused] = std::ranges::mismatch(prompt, cache.tokens);
    const auto common = static_cast<std::size_t>(mismatch - prompt.begin());
    cache.sequence->length = std::min(common, prompt.size() - 1);
    cache.tokens.resize(cache.sequence->length);
    return &*cache.sequence;
  }

  // The sequences that go on, and their last tokens.
  bool collect() {
    feeds_.clear();
    fed_.clear();
    for (Run& run : runs_) {
      if (run.ended) continue;
      feeds_.push_back({run.sequence, std::span(&run.next, 1)});
      fed_.push_back(&run);
      result_.times.bytes_read += static_cast<double>(engine_.kv_bytes(run.sequence->length));
    }
    if (!feeds_.empty()) result_.times.bytes_read += static_cast<double>(engine_.weight_bytes());
    return !feeds_.empty();
  }

  Result<void> choose(Run& run, std::span<float> logits) {
    Generated& generated = result_.sequences[run.index];
    OCTAVO_TRY(run.next, run.sampler.sample(logits, run.history, generated.tokens.size()));
    if (std::ranges::find(options_.eos_token_ids, run.next) != options_.eos_token_ids.end()) {
      finish(run, FinishReason::stop);
      return {};
    }
    generated.tokens.push_back(run.next);
    ++result_.times.generated_tokens;
    run.history.push_back(run.next);
    show(run, run.stop.push(run.stream.push(static_cast<text::TokenId>(run.next))));
    if (!run.stop.found().empty()) {
      finish(run, FinishReason::stop);
    } else if (generated.tokens.size() >= run.room) {
      finish(run, FinishReason::length);
    }
    return {};
  }

  void finish(Run& run, FinishReason reason) {
    show(run, run.stop.push(run.stream.finish()));
    show(run, run.stop.finish());
    if (!run.stop.found().empty()) reason = FinishReason::stop;
    result_.sequences[run.index].finish_reason = reason;
    run.ended = true;
  }

  void show(const Run& run, const std::string& piece) {
    if (piece.empty()) return;
    result_.sequences[run.index].text += piece;
    if (options_.on_text) options_.on_text(run.index, piece);
  }

  Engine& engine_;
  const text::Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  std::vector<Run> runs_;
  std::vector<Feed> feeds_;
  std::vector<Run*> fed_;
  GenerateResult result_;
};

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::interrupted:
      break;
  }
  return "interrupted";
}

double GenerateTimes::prompt_tps() const {
  return prompt_seconds > 0 ? static_cast<double>(prompt_tokens - cached_tokens) / prompt_seconds
                            : 0;
}

double GenerateTimes::generate_tps() const {
  return generate_seconds > 0 ? static_cast<double>(decoded_tokens) / generate_seconds : 0;
}

Result<GenerateResult> generate(Engine& engine, const text::Tokenizer& tokenizer,
                                std::span<const std::vector<std::int32_t>> prompts,
                                const GenerateOptions& options) {
  if (options.cache != nullptr && (prompts.size() != 1 || options.context == 0)) {
    throw ContractError("generate: given a cache, expected one prompt and a context");
  }
  Generation generation(engine, tokenizer, options);
  for (const std::vector<std::int32_t>& prompt : prompts) OCTAVO_CHECK(generation.add(prompt));
  return generation.run();
}

}  // namespace octavo::runtime
