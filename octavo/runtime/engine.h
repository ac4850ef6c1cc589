// Runs a model over sequences that it remembers: prompts in chunks, then token by token, alone or
// several sequences side by side. Logits have the same bits whichever way it is done.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "octavo/base/error.h"
#include "octavo/models/llama.h"
#include "octavo/nn/arena.h"
#include "octavo/ops/kv_cache.h"

namespace octavo::runtime {

struct EngineOptions {
  nn::ActivationType activations = nn::ActivationType::fp8;
  Format kv_cache = Format::bf16;    // bf16, e4m3fn, f32
  std::size_t prompt_chunk = 512;    // tokens that run together
  const Context* context = nullptr;  // null: default_context()
};

// A sequence: the keys and values of its first `length` tokens.
struct Sequence {
  ops::KvCache cache;
  std::size_t length = 0;
};

// Tokens that follow on a sequence.
struct Feed {
  Sequence* sequence;
  std::span<const std::int32_t> tokens;  // at least one
};

// Not for several threads at once. The model outlives it.
class Engine {
 public:
  explicit Engine(const models::Llama& model, const EngineOptions& options = {});

  const models::Llama& model() const { return model_; }
  const EngineOptions& options() const { return options_; }

  // Room for `capacity` tokens.
  Sequence sequence(std::size_t capacity) const;
  ops::KvCacheShape cache_shape(std::size_t capacity) const;

  // bad_model: an id that the model does not have, which a tokenizer of another model gives.
  Result<void> check_tokens(std::span<const std::int32_t> tokens) const;

  // Hidden states of all tokens, feed by feed; valid until the next call. ContractError: more
  // tokens than a sequence has room for, a sequence twice, an id beyond the vocabulary.
  nn::Value hidden_states(std::span<const Feed> feeds);

  // (rows, vocab_size) of hidden states; valid until the next call of this or any other.
  nn::Value logits(const nn::Value& hidden);

  // Feeds all tokens, in chunks; the logits of the last one, (1, vocab_size). No rows where
  // `interrupt` was set before the last chunk.
  nn::Value prefill(const Feed& feed, const std::atomic<bool>* interrupt = nullptr);

  // The next token of each sequence: (feeds, vocab_size), each feed having one token.
  nn::Value decode(std::span<const Feed> feeds);

  // What a step of decoding reads: the weights once, and the keys and values of each sequence.
  std::uint64_t weight_bytes() const;
  std::uint64_t kv_bytes(std::size_t length) const;

 private:
  nn::Step step(nn::Arena& arena) const;

  const models::Llama& model_;
  EngineOptions options_;
  nn::Arena arena_, logits_arena_;
  std::vector<std::int32_t> ids_;
  std::vector<nn::Segment> segments_;
};

}  // namespace octavo::runtime
