#include "octavo/models/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "octavo/checkpoint/config_check.h"
#include "octavo/checkpoint/names.h"
#include "octavo/checkpoint/skip_list_check.h"
#include "octavo/formats/traits.h"
#include "octavo/models/load_internal.h"

namespace octavo::models {
namespace {

// The index of "model.layers.<index>.", if the name has one.
std::optional<std::size_t> layer_index(std::string_view name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::size_t index = 0;
  const char* begin = name.data() + kPrefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), index);
  if (error != std::errc{} || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return index;
}

Result<nn::Linear> part(ParameterReader& reader, const std::string& parent, const std::string& name,
                        const std::string& fused, RowRange rows, std::size_t k, bool bias) {
  const std::size_t n = rows.end - rows.begin;
  const bool whole =
      reader.has(parent + name + ".weight") || !reader.has(parent + fused + ".weight");
  if (whole) return reader.linear(parent + name, n, k, bias);
  return reader.linear(parent + fused, n, k, bias, &rows);
}

Result<DecoderLayer> read_layer(ParameterReader& reader, const ModelConfig& c,
                                const std::string& prefix) {
  const std::size_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  DecoderLayer layer;
  OCTAVO_TRY(layer.input_layernorm,
             reader.vector(prefix + "input_layernorm.weight", c.hidden_size));
  OCTAVO_TRY(layer.post_attention_layernorm,
             reader.vector(prefix + "post_attention_layernorm.weight", c.hidden_size));
  const auto qkv = [&](const char* name, RowRange rows) {
    return part(reader, attention, name, "qkv_proj", rows, c.hidden_size, c.qkv_bias);
  };
  const std::size_t all = q + 2 * kv;
  OCTAVO_TRY(layer.q_proj, qkv("q_proj", {0, q, all}));
  OCTAVO_TRY(layer.k_proj, qkv("k_proj", {q, q + kv, all}));
  OCTAVO_TRY(layer.v_proj, qkv("v_proj", {q + kv, all, all}));
  OCTAVO_TRY(layer.o_proj, reader.linear(attention + "o_proj", c.hidden_size, q, c.o_bias));
  if (c.qk_norm) {
    OCTAVO_TRY(layer.q_norm, reader.vector(attention + "q_norm.weight", c.head_dim));
    OCTAVO_TRY(layer.k_norm, reader.vector(attention + "k_norm.weight", c.head_dim));
  }
  const std::size_t size = c.intermediate_size;
  const auto gate_up = [&](const char* name, RowRange rows) {
    return part(reader, mlp, name, "gate_up_proj", rows, c.hidden_size, c.mlp_bias);
  };
  OCTAVO_TRY(layer.gate_proj, gate_up("gate_proj", {0, size, 2 * size}));
  OCTAVO_TRY(layer.up_proj, gate_up("up_proj", {size, 2 * size, 2 * size}));
  OCTAVO_TRY(layer.down_proj, reader.linear(mlp + "down_proj", c.hidden_size, size, c.mlp_bias));
  return layer;
}

// Whether a tensor of a layer is a scale of its queries, keys or values, as vLLM (kv_scale in old
// files), compressed-tensors and ModelOpt name them.
bool is_kv_scale(std::string_view name) {
  const std::size_t attention = name.find(".self_attn.");
  if (attention == name.npos) return false;
  name.remove_prefix(attention + std::strlen(".self_attn."));
  for (const std::string_view part : {"attn.", "q_proj.", "k_proj.", "v_proj.", "qkv_proj."}) {
    if (!name.starts_with(part)) continue;
    name.remove_prefix(part.size());
    break;
  }
  return name == "k_scale" || name == "v_scale" || name == "q_scale" || name == "kv_scale";
}

Result<void> add_kv_scale(ParameterReader& reader, const CheckpointTensor& tensor, bool ignore,
                          KvScaleReport& report) {
  if (!ignore) {
    OCTAVO_TRY(const float value,
               reader.positive_number(tensor, "; --ignore-kv-scales does without them all"));
    report.least = report.count == 0 ? value : std::min(report.least, value);
    report.most = std::max(report.most, value);
  }
  ++report.count;
  return {};
}

// What no layer asked for: known extras are counted, all else is an error that names it.
Result<void> check_unread(ParameterReader& reader, const Checkpoint& checkpoint,
                          const ModelConfig& config, const LoadOptions& options,
                          LoadReport& report) {
  std::size_t mtp = 0;
  for (const std::string& name : reader.unread()) {
    const std::optional<std::size_t> layer = layer_index(name);
    if (layer && *layer >= config.num_hidden_layers &&
        *layer < config.num_hidden_layers + config.num_nextn_predict_layers) {
      ++mtp;
      continue;
    }
    if (name.ends_with(".rotary_emb.inv_freq")) continue;  // computed from the config
    const auto i = checkpoint.by_name.find(name)->second;
    if (layer && *layer < config.num_hidden_layers && is_kv_scale(name)) {
      OCTAVO_CHECK(
          add_kv_scale(reader, checkpoint.tensors[i], options.ignore_kv_scales, report.kv_scales));
      continue;
    }
    if (reader.pairing().roles[i] == Pairing::Role::scale) continue;
    return fail(ErrorCode::bad_model,
                fmt::format("{}: {} is in the files, and no part of the {} that config.json "
                            "describes",
                            checkpoint.directory.string(), name, config.architecture));
  }
  if (mtp > 0) {
    report.notes.push_back(fmt::format(
        "{} tensors of {} multi-token prediction layers are left out: generation does without", mtp,
        config.num_nextn_predict_layers));
  }
  return {};
}

void report_layers(const Llama& model, const Checkpoint& checkpoint, LoadReport& report) {
  for (const NamedLinear& named : linear_layers(model)) {
    report.placement.packed_weights += named.layer->weight.rows == nullptr ? 1 : 0;
    report.weight_bytes +=
        ops::weight_bytes(named.layer->weight) + named.layer->bias.size() * sizeof(float);
    (bits_per_element(named.layer->weight.format) == 8 ? report.fp8_layers : report.wide_layers)++;
  }
  if (checkpoint.quantization.activation_scheme == "static") {
    const std::vector<NamedLinear> all = linear_layers(model);
    const auto computed = std::ranges::count_if(all, [](const NamedLinear& named) {
      return bits_per_element(named.layer->weight.format) == 8 && !named.layer->activation_scale;
    });
    if (computed > 0) {
      report.notes.push_back(
          fmt::format("config.json says activation_scheme \"static\", but {} FP8 layers have no "
                      "activation scale: theirs are computed for each token",
                      computed));
    }
  }
  if (model.embed_tokens) {
    report.placement.packed_weights += model.embed_tokens->rows == nullptr ? 1 : 0;
    report.weight_bytes += ops::weight_bytes(*model.embed_tokens);
  }
}

// What the config says of quantization against the tensors, which count; as `verify` finds it.
void note_contradictions(const Checkpoint& checkpoint, const Pairing& pairing,
                         std::vector<std::string>& notes) {
  for (ConfigFact& fact : check_config(checkpoint, pairing)) {
    const bool counted = fact.kind == ConfigFact::Kind::activation_scheme;  // by report_layers()
    if (fact.contradicts && !counted) notes.push_back(std::move(fact.message));
  }
  if (!checkpoint.quantization.present) return;
  const Result<SkipListCheck> list = check_skip_list(checkpoint, pairing);
  if (!list) {
    notes.push_back(list.error().message);
  } else if (auto line = quantized_line(checkpoint, *list)) {
    notes.push_back(*std::move(line));
  }
}

}  // namespace

Result<LoadedModel> load_model(const Checkpoint& checkpoint, const LoadOptions& options) {
  if (checkpoint.config_text.empty()) {
    return fail(ErrorCode::bad_model, fmt::format("{}: no config.json, which says what model it is",
                                                  checkpoint.directory.string()));
  }
  OCTAVO_TRY(ModelConfig config, read_model_config(checkpoint.config));
  ParameterReader reader(checkpoint, options);
  OCTAVO_CHECK(reader.prepare());
  OCTAVO_CHECK(reader.place(config));
  LoadedModel loaded;
  for (const std::string& warning : reader.warnings()) {
    // What the lists missed; the rest is of files that are not written.
    if (warning.starts_with("--modules-to-")) loaded.report.notes.push_back(warning);
  }
  Llama& model = loaded.model;
  const std::size_t vocab = config.vocab_size, hidden = config.hidden_size;
  OCTAVO_TRY(const bool differs, head_differs(checkpoint));
  if (differs) {
    loaded.report.notes.emplace_back(
        "config.json says tie_word_embeddings, but lm_head differs from embed_tokens: both are "
        "used");
  }
  const bool tied = (config.tie_word_embeddings && !differs) || !reader.has("lm_head.weight");
  if (tied && !config.tie_word_embeddings) {
    return fail(ErrorCode::bad_model,
                fmt::format("{}: TensorNotFound: lm_head.weight, and config.json does not say "
                            "tie_word_embeddings",
                            checkpoint.directory.string()));
  }
  if (tied) {
    OCTAVO_TRY(model.lm_head.weight, reader.weight("model.embed_tokens.weight", vocab, hidden));
    reader.mark_read("lm_head.weight");
  } else {
    OCTAVO_TRY(model.embed_tokens, reader.weight("model.embed_tokens.weight", vocab, hidden));
  }
  for (std::size_t i = 0; i < config.num_hidden_layers; ++i) {
    OCTAVO_TRY(DecoderLayer layer, read_layer(reader, config, fmt::format("model.layers.{}.", i)));
    model.layers.push_back(std::move(layer));
  }
  OCTAVO_TRY(model.norm, reader.vector("model.norm.weight", hidden));
  if (!tied) {
    OCTAVO_TRY(model.lm_head, reader.linear("lm_head", vocab, hidden, false));
  }
  OCTAVO_CHECK(check_unread(reader, checkpoint, config, options, loaded.report));
  model.rope = rope_frequencies(config, config.max_position_embeddings);
  model.config = std::move(config);
  model.mapped_files = reader.take_mappings();
  loaded.report.buffer_bytes = reader.largest_buffer();
  loaded.report.placement = reader.placement();
  report_layers(model, checkpoint, loaded.report);
  note_contradictions(checkpoint, reader.pairing(), loaded.report.notes);
  if (options.dequantize && reader.pairing().weights.empty())
    loaded.report.notes.emplace_back("--dequantize: no weight is in FP8, nothing is dequantized");
  return loaded;
}

}  // namespace octavo::models
