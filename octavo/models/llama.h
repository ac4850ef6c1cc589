// Llama and its relatives (Mistral, Qwen2, Qwen3, SmolLM2): one block, whose options the config
// sets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/file_mapping.h"
#include "octavo/models/config.h"
#include "octavo/models/rope.h"
#include "octavo/nn/layers.h"
#include "octavo/nn/linear.h"

namespace octavo::models {

struct DecoderLayer {
  std::vector<float> input_layernorm;  // (hidden)
  nn::Linear q_proj, k_proj, v_proj, o_proj;
  std::vector<float> q_norm, k_norm;            // (head_dim), or empty: Qwen3 only
  std::vector<float> post_attention_layernorm;  // (hidden)
  nn::Linear gate_proj, up_proj, down_proj;
};

struct Llama {
  ModelConfig config;
  RopeFrequencies rope;                           // for positions up to the original maximum
  std::optional<ops::PackedWeight> embed_tokens;  // none: tied, rows of lm_head
  std::vector<DecoderLayer> layers;
  std::vector<float> norm;
  nn::Linear lm_head;
  std::vector<FileMapping> mapped_files;  // those whose weights are left in them

  const ops::PackedWeight& embedding() const {
    return embed_tokens ? *embed_tokens : lm_head.weight;
  }
};

// Tokens of several sequences, side by side: rows `segments` say whose they are. Their keys and
// values enter the caches. The last hidden states, normed: (ids, hidden). ContractError: an id
// beyond the vocabulary.
nn::Value hidden_states(const nn::Step& step, const Llama& model, std::span<const std::int32_t> ids,
                        std::span<const nn::Segment> segments);

// (rows, vocab_size) of hidden states.
nn::Value logits(const nn::Step& step, const Llama& model, const nn::Value& hidden);

// Linear layers by name in the order in which they run: "model.layers.0.self_attn.q_proj".
struct NamedLinear {
  std::string name;
  const nn::Linear* layer;
};
std::vector<NamedLinear> linear_layers(const Llama& model);

}  // namespace octavo::models
