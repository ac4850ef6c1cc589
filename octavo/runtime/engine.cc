#include "octavo/runtime/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "octavo/base/error.h"

namespace octavo::runtime {

Engine::Engine(const models::Llama& model, const EngineOptions& options)
    : model_(model), options_(options) {
  if (options_.prompt_chunk == 0) {
    throw ContractError("Engine: given prompt_chunk 0, expected at least 1");
  }
}

ops::KvCacheShape Engine::cache_shape(std::size_t capacity) const {
  const models::ModelConfig& c = model_.config;
  return {c.num_hidden_layers, c.num_key_value_heads, c.head_dim, capacity, options_.kv_cache};
}

Sequence Engine::sequence(std::size_t capacity) const {
  return {ops::KvCache(cache_shape(capacity)), 0};
}

nn::Step Engine::step(nn::Arena& arena) const {
  return {arena, options_.activations,
          options_.context != nullptr ? *options_.context : default_context()};
}

Result<void> Engine::check_tokens(std::span<const std::int32_t> tokens) const {
  const std::size_t vocab = model_.config.vocab_size;
  for (const std::int32_t id : tokens) {
    if (id >= 0 && static_cast<std::size_t>(id) < vocab) continue;
    return fail(ErrorCode::bad_model,
                fmt::format("token {} is none of the model's {}: tokenizer.json and config.json do "
                            "not belong together",
                            id, vocab));
  }
  return {};
}

nn::Value Engine::hidden_states(std::span<const Feed> feeds) {
  ids_.clear();
  segments_.clear();
  for (const Feed& feed : feeds) {
    const std::size_t capacity = feed.sequence->cache.shape().capacity;
    if (feed.tokens.empty() || feed.tokens.size() > capacity - feed.sequence->length) {
      throw ContractError(fmt::format(
          "Engine: given {} tokens after {}, expected at least one and at most {} in all",
          feed.tokens.size(), feed.sequence->length, capacity));
    }
    if (const auto known = check_tokens(feed.tokens); !known) {
      throw ContractError("Engine: given " + known.error().message);
    }
    for (const nn::Segment& other : segments_) {
      if (other.cache == &feed.sequence->cache)
        throw ContractError("Engine: given one sequence twice, expected different ones");
    }
    segments_.push_back(
        {&feed.sequence->cache, ids_.size(), feed.tokens.size(), feed.sequence->length});
    ids_.insert(ids_.end(), feed.tokens.begin(), feed.tokens.end());
  }
  arena_.reset();
  const nn::Value hidden = models::hidden_states(step(arena_), model_, ids_, segments_);
  for (const Feed& feed : feeds) feed.sequence->length += feed.tokens.size();
  return hidden;
}

nn::Value Engine::logits(const nn::Value& hidden) {
  logits_arena_.reset();
  return models::logits(step(logits_arena_), model_, hidden);
}

nn::Value Engine::prefill(const Feed& feed, const std::atomic<bool>* interrupt) {
  nn::Value hidden{};
  for (std::size_t at = 0; at < feed.tokens.size(); at += options_.prompt_chunk) {
    if (interrupt != nullptr && interrupt->load()) return {};
    const std::size_t count = std::min(options_.prompt_chunk, feed.tokens.size() - at);
    const Feed piece{feed.sequence, feed.tokens.subspan(at, count)};
    hidden = hidden_states(std::span(&piece, 1));
  }
  if (hidden.rows == 0) throw ContractError("Engine: given no tokens, expected at least one");
  return logits({hidden.row(hidden.rows - 1), 1, hidden.cols});
}

nn::Value Engine::decode(std::span<const Feed> feeds) { return logits(hidden_states(feeds)); }

std::uint64_t Engine::weight_bytes() const {
  std::uint64_t bytes = 0;
  for (const models::NamedLinear& named : models::linear_layers(model_)) {
    bytes += ops::weight_bytes(named.layer->weight);
  }
  return bytes;
}

std::uint64_t Engine::kv_bytes(std::size_t length) const {
  return ops::kv_cache_bytes(cache_shape(std::max<std::size_t>(length, 1)));
}

}  // namespace octavo::runtime
