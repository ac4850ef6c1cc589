#include "octavo/models/llama.h"

#include <fmt/format.h>

#include "octavo/base/float_mode.h"

namespace octavo::models {
namespace {

using nn::Step;
using nn::Value;

// cos and sin for the positions of all rows.
nn::Rotation rotation(const Step& step, const Llama& model, std::span<const nn::Segment> segments,
                      std::size_t rows) {
  const DefaultFloatMode mode;
  const std::size_t half = model.rope.inv_freq.size();
  const nn::Rotation angles{step.value(rows, half), step.value(rows, half)};
  const bool dynamic = model.config.rope.type == RopeType::dynamic;
  for (const nn::Segment& segment : segments) {
    for (std::size_t i = 0; i < segment.rows; ++i) {
      const std::size_t position = segment.position + i, row = segment.first_row + i;
      float* cos = angles.cos.row(row);
      float* sin = angles.sin.row(row);
      if (dynamic && position >= model.config.max_position_embeddings) {
        rope_cos_sin(rope_frequencies(model.config, position + 1), position, cos, sin);
      } else {
        rope_cos_sin(model.rope, position, cos, sin);
      }
    }
  }
  return angles;
}

Value self_attention(const Step& step, const ModelConfig& config, const DecoderLayer& layer,
                     std::size_t index, const Value& x, const nn::Rotation& angles,
                     std::span<const nn::Segment> segments) {
  auto [q, k, v] = nn::linears(step, x, layer.q_proj, layer.k_proj, layer.v_proj);
  if (!layer.q_norm.empty()) q = nn::rms_norm(step, q, layer.q_norm, config.rms_norm_eps);
  if (!layer.k_norm.empty()) k = nn::rms_norm(step, k, layer.k_norm, config.rms_norm_eps);
  nn::rope(step, q, angles, config.head_dim);
  nn::rope(step, k, angles, config.head_dim);
  const Value y = nn::attention(step, q, k, v, segments, index, config.sliding_window[index]);
  return nn::linear(step, y, layer.o_proj);
}

Value mlp(const Step& step, const DecoderLayer& layer, const Value& x) {
  const auto [gate, up] = nn::linears(step, x, layer.gate_proj, layer.up_proj);
  return nn::linear(step, nn::silu_mul(step, gate, up), layer.down_proj);
}

}  // namespace

Value hidden_states(const Step& step, const Llama& model, std::span<const std::int32_t> ids,
                    std::span<const nn::Segment> segments) {
  const ModelConfig& config = model.config;
  const float eps = config.rms_norm_eps;
  const nn::Rotation angles = rotation(step, model, segments, ids.size());
  const Value x = nn::embed(step, model.embedding(), ids);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const DecoderLayer& layer = model.layers[i];
    const nn::Arena::Mark mark = step.arena.mark();
    const Value attention_input = nn::rms_norm(step, x, layer.input_layernorm, eps);
    nn::add(step, x, self_attention(step, config, layer, i, attention_input, angles, segments));
    nn::add(step, x, mlp(step, layer, nn::rms_norm(step, x, layer.post_attention_layernorm, eps)));
    step.arena.rewind(mark);
  }
  return nn::rms_norm(step, x, model.norm, eps);
}

Value logits(const Step& step, const Llama& model, const Value& hidden) {
  return nn::linear(step, hidden, model.lm_head);
}

std::vector<NamedLinear> linear_layers(const Llama& model) {
  std::vector<NamedLinear> all;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const DecoderLayer& layer = model.layers[i];
    const std::string prefix = fmt::format("model.layers.{}.", i);
    all.push_back({prefix + "self_attn.q_proj", &layer.q_proj});
    all.push_back({prefix + "self_attn.k_proj", &layer.k_proj});
    all.push_back({prefix + "self_attn.v_proj", &layer.v_proj});
    all.push_back({prefix + "self_attn.o_proj", &layer.o_proj});
    all.push_back({prefix + "mlp.gate_proj", &layer.gate_proj});
    all.push_back({prefix + "mlp.up_proj", &layer.up_proj});
    all.push_back({prefix + "mlp.down_proj", &layer.down_proj});
  }
  all.push_back({"lm_head", &model.lm_head});
  return all;
}

}  // namespace octavo::models
