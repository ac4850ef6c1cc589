#include "octavo/checkpoint/tensor_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "octavo/base/ceil_div.h"
#include "octavo/checkpoint/names.h"

namespace octavo {
namespace {

// What must stay whole on a device.
enum class Unit : std::uint8_t {
  feature,
  query_head,
  kv_head,  // fewer than devices: each device holds one
  output_group,
  linear_key_head,
  linear_value_head,
};

enum class Fusion : std::uint8_t { none, halves, qkv, linear_qkv };

struct Rule {
  std::string_view name;  // last segment of a module
  Split split;
  Unit unit = Unit::feature;
  Fusion fusion = Fusion::none;
};

// Llama, Qwen, Mistral, Phi, Mixtral, DeepSeek (MLA, both spellings, V4), Qwen's linear attention.
constexpr std::array kRules = {
    Rule{"q_proj", Split::column, Unit::query_head},
    Rule{"k_proj", Split::column, Unit::kv_head},
    Rule{"v_proj", Split::column, Unit::kv_head},
    Rule{"o_proj", Split::row, Unit::query_head},
    Rule{"qkv_proj", Split::column, Unit::feature, Fusion::qkv},
    Rule{"wq", Split::column, Unit::query_head},
    Rule{"wk", Split::column, Unit::kv_head},
    Rule{"wv", Split::column, Unit::kv_head},
    Rule{"wo", Split::row, Unit::query_head},
    Rule{"q_a_proj", Split::replicated},
    Rule{"kv_a_proj_with_mqa", Split::replicated},
    Rule{"q_b_proj", Split::column, Unit::query_head},
    Rule{"kv_b_proj", Split::column, Unit::query_head},
    Rule{"wq_a", Split::replicated},
    Rule{"wkv_a", Split::replicated},
    Rule{"wkv", Split::replicated},
    Rule{"wq_b", Split::column, Unit::query_head},
    Rule{"wkv_b", Split::column, Unit::query_head},
    Rule{"wo_a", Split::column, Unit::output_group},
    Rule{"wo_b", Split::row, Unit::output_group},
    Rule{"in_proj_qkv", Split::column, Unit::feature, Fusion::linear_qkv},
    Rule{"in_proj_qkvz", Split::column, Unit::linear_key_head},  // by key head, not by part
    Rule{"in_proj_ba", Split::column, Unit::linear_key_head},
    Rule{"in_proj_z", Split::column, Unit::linear_value_head},
    Rule{"in_proj_a", Split::column, Unit::linear_value_head},
    Rule{"in_proj_b", Split::column, Unit::linear_value_head},
    Rule{"out_proj", Split::row, Unit::query_head},
    Rule{"gate_proj", Split::column},
    Rule{"up_proj", Split::column},
    Rule{"gate_up_proj", Split::column, Unit::feature, Fusion::halves},
    Rule{"down_proj", Split::row},
    Rule{"w1", Split::column},
    Rule{"w3", Split::column},
    Rule{"w2", Split::row},
    Rule{"fc1", Split::column},
    Rule{"fc2", Split::row},
    Rule{"eh_proj", Split::replicated},
    Rule{"e_proj", Split::replicated},
    Rule{"h_proj", Split::replicated},
};

// The numbers of a config that a split depends on; 0: not given.
struct Config {
  std::uint64_t hidden = 0;
  std::uint64_t query_heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t output_groups = 0;
  std::uint64_t linear_key_heads = 0;
  std::uint64_t linear_value_heads = 0;
  std::uint64_t linear_key_dim = 0;  // of a head
  std::uint64_t linear_value_dim = 0;
};

Config read_config(const Json& config) {
  const auto text = config.find("text_config");
  const auto number = [&](std::initializer_list<const char*> keys) -> std::uint64_t {
    for (const Json* object :
         {text != config.end() && text->is_object() ? &*text : &config, &config}) {
      for (const char* key : keys) {
        const auto found = object->find(key);
        if (found != object->end() && found->is_number_unsigned())
          return found->get<std::uint64_t>();
      }
    }
    return 0;
  };
  Config result;
  result.hidden = number({"hidden_size", "dim"});
  result.query_heads = number({"num_attention_heads", "n_heads"});
  result.kv_heads = number({"num_key_value_heads", "n_kv_heads"});
  if (result.kv_heads == 0) result.kv_heads = result.query_heads;
  result.head_dim = number({"head_dim"});
  if (result.head_dim == 0 && result.query_heads > 0)
    result.head_dim = result.hidden / result.query_heads;
  result.output_groups = number({"o_groups"});
  result.linear_key_heads = number({"linear_num_key_heads"});
  result.linear_value_heads = number({"linear_num_value_heads"});
  result.linear_key_dim = number({"linear_key_head_dim"});
  result.linear_value_dim = number({"linear_value_head_dim"});
  return result;
}

std::uint64_t units_of(const Config& config, Unit unit) {
  switch (unit) {
    case Unit::query_head:
      return config.query_heads;
    case Unit::kv_head:
      return config.kv_heads;
    case Unit::output_group:
      return config.output_groups;
    case Unit::linear_key_head:
      return config.linear_key_heads;
    case Unit::linear_value_head:
      return config.linear_value_heads;
    case Unit::feature:
      break;
  }
  return 0;
}

std::string_view unit_words(Unit unit) {
  switch (unit) {
    case Unit::query_head:
      return "attention heads";
    case Unit::kv_head:
      return "key/value heads";
    case Unit::output_group:
      return "output groups";
    case Unit::linear_key_head:
      return "linear key heads";
    case Unit::linear_value_head:
      return "linear value heads";
    case Unit::feature:
      break;
  }
  return "features";
}

// A run of features that is divided by itself.
struct Part {
  std::uint64_t features;
  Unit unit;
  std::uint64_t units;  // 0: features are only counted
};

// How one weight is split, whatever the degree.
struct Plan {
  Split split = Split::unknown;
  bool expert = false;
  std::uint64_t block = 0;
  std::vector<Part> parts;
};

constexpr std::array<std::string_view, 5> kVisionSegments = {
    "visual", "vision_tower", "vision_model", "vision_encoder", "audio_tower"};

Rule rule_for(std::string_view tensor) {
  constexpr Rule kReplicated{"", Split::replicated};
  const std::string_view module = module_name(tensor);
  const std::string_view last = last_segment(module);
  // Encoders have heads of their own, and are often not split at all.
  for (const std::string_view segment : kVisionSegments) {
    if (has_segment(module, segment)) return {"", Split::unknown};
  }
  for (const std::string_view segment : {"indexer", "compressor"}) {
    if (has_segment(module, segment)) return kReplicated;
  }
  const std::string_view role = tensor_role(tensor);
  if (role == "head") return {"", Split::vocabulary};
  if (role == "embedding") {
    const bool tokens = last != "wpe" && !last.starts_with("embed_pos") &&
                        !last.starts_with("position") && !last.starts_with("token_type");
    return tokens ? Rule{"", Split::vocabulary} : kReplicated;
  }
  if (role == "norm" || role == "router") return kReplicated;
  const auto found = std::ranges::find(kRules, last, &Rule::name);
  if (found == kRules.end()) return {"", Split::unknown};
  Rule rule = *found;
  if (last == "out_proj" && has_segment(module, "linear_attn")) rule.unit = Unit::linear_value_head;
  return rule;
}

std::vector<Part> parts_of(const Rule& rule, const Config& config, std::uint64_t features) {
  const auto part = [&](std::uint64_t size, Unit unit) {
    const std::uint64_t units = units_of(config, unit);
    return Part{size, unit, units > 0 && size % units == 0 ? units : 0};
  };
  std::vector<Part> parts;
  if (rule.fusion == Fusion::halves && features % 2 == 0) {
    parts = {part(features / 2, Unit::feature), part(features / 2, Unit::feature)};
  } else if (rule.fusion == Fusion::qkv) {
    parts = {part(config.query_heads * config.head_dim, Unit::query_head),
             part(config.kv_heads * config.head_dim, Unit::kv_head),
             part(config.kv_heads * config.head_dim, Unit::kv_head)};
  } else if (rule.fusion == Fusion::linear_qkv) {
    const std::uint64_t key = config.linear_key_heads * config.linear_key_dim;
    parts = {part(key, Unit::linear_key_head), part(key, Unit::linear_key_head),
             part(config.linear_value_heads * config.linear_value_dim, Unit::linear_value_head)};
  }
  std::uint64_t sum = 0;
  for (const Part& p : parts) sum += p.features;
  if (sum != features || features == 0) parts = {part(features, rule.unit)};
  return parts;
}

// The extent of a block of scales along rows or columns; 0: one scale for all, or each row its own.
std::uint64_t block_along(const Checkpoint& checkpoint, const QuantizedWeight& weight, bool rows) {
  if (!weight.scale) return 0;
  const Matrices m = as_matrices(weight.shape);
  const ScaleLayout& layout = weight.layout;
  const std::optional<BlockSize>& declared = checkpoint.quantization.weight_block_size;
  // A matrix within one block still has to be a whole number of blocks on every device.
  const bool is_grid = checkpoint.tensors[*weight.scale].info.shape.size() >= 2;
  if (declared && is_grid && weight.format != Format::e2m1fn &&
      layout.grid_rows == ceil_div(m.rows, declared->rows) &&
      layout.grid_cols == ceil_div(m.cols, declared->cols)) {
    return rows ? declared->rows : declared->cols;
  }
  if (layout.grid_cols == 1 && (layout.grid_rows == 1 || layout.grid_rows == m.rows)) return 0;
  return rows ? layout.block.rows : layout.block.cols;
}

Plan plan_of(const Checkpoint& checkpoint, const Pairing& pairing, const Config& config,
             std::size_t tensor) {
  const TensorInfo& info = checkpoint.tensors[tensor].info;
  const QuantizedWeight* const quantized = pairing.roles[tensor] == Pairing::Role::weight
                                               ? &pairing.weights[pairing.weight_of[tensor]]
                                               : nullptr;
  const Matrices m = as_matrices(quantized != nullptr ? quantized->shape : info.shape);
  const Rule rule = rule_for(info.name);
  Plan plan;
  plan.split = rule.split;
  plan.expert = has_segment(info.name, "experts");
  if (rule.split == Split::replicated || rule.split == Split::unknown) return plan;
  // Fused experts are stored (out, in) or (in, out); the side that is the hidden size tells.
  bool rows = rule.split != Split::row;
  if (is_fused_expert(info.name, info.shape) && m.rows != m.cols &&
      config.hidden == (rows ? m.rows : m.cols)) {
    rows = !rows;
  }
  plan.parts = parts_of(rule, config, rows ? m.rows : m.cols);
  if (quantized != nullptr) plan.block = block_along(checkpoint, *quantized, rows);
  return plan;
}

struct Judged {
  SplitVerdict verdict = SplitVerdict::works;
  std::uint64_t shard = 0;
  std::uint64_t divisor = 1;
  const Part* part = nullptr;  // that decides
};

Judged judge(const Plan& plan, std::uint64_t degree) {
  Judged result;
  for (const Part& part : plan.parts) {
    Judged here{SplitVerdict::works, 0, degree, &part};
    const std::uint64_t count = part.units > 0 ? part.units : part.features;
    if (plan.split == Split::vocabulary) {
      here.shard = ceil_div(part.features, degree);
    } else if (count % degree == 0) {
      here.shard = part.features / degree;
    } else if (part.unit == Unit::kv_head && part.units > 0 && degree % part.units == 0) {
      here.divisor = part.units;
      here.shard = part.features / part.units;
    } else {
      here.verdict = SplitVerdict::does_not_divide;
      return here;
    }
    const bool whole = degree == 1 || (plan.parts.size() == 1 && here.shard == part.features);
    if (plan.block > 1 && !whole && here.shard % plan.block != 0)
      here.verdict = SplitVerdict::blocks_cut;
    if (result.part == nullptr ||
        (result.verdict == SplitVerdict::works && here.verdict != SplitVerdict::works)) {
      result = here;
    }
  }
  return result;
}

SplitResult describe(const Plan& plan, const Judged& judged, std::uint64_t degree) {
  SplitResult result{judged.verdict, judged.shard, ""};
  if (judged.verdict == SplitVerdict::does_not_divide) {
    const Part& part = *judged.part;
    result.reason =
        fmt::format("{} {} do not divide by {}", part.units > 0 ? part.units : part.features,
                    unit_words(part.units > 0 ? part.unit : Unit::feature), degree);
  } else if (judged.verdict == SplitVerdict::blocks_cut) {
    result.reason = fmt::format("{} / {} = {} is no multiple of {}", judged.part->features,
                                judged.divisor, judged.shard, plan.block);
  }
  return result;
}

bool is_split_weight(const Pairing& pairing, std::size_t tensor, const TensorInfo& info) {
  using Role = Pairing::Role;
  if (pairing.roles[tensor] == Role::scale || pairing.roles[tensor] == Role::activation_scale)
    return false;
  return info.shape.size() >= 2 && info.bytes > 0;
}

}  // namespace

std::string_view to_string(Split split) {
  constexpr std::array<std::string_view, 5> kNames = {"replicated", "column", "row", "vocabulary",
                                                      "unknown"};
  return kNames[static_cast<std::size_t>(split)];
}

std::string_view to_string(SplitVerdict verdict) {
  constexpr std::array<std::string_view, 3> kNames = {"works", "does not divide", "blocks cut"};
  return kNames[static_cast<std::size_t>(verdict)];
}

TensorParallelPlan plan_tensor_parallel(const Checkpoint& checkpoint, const Pairing& pairing,
                                        std::span<const std::uint64_t> degrees) {
  const Config config = read_config(checkpoint.config);
  TensorParallelPlan result;
  result.degrees.assign(degrees.begin(), degrees.end());
  if (config.query_heads == 0) {
    result.notes.emplace_back(
        "no num_attention_heads in config.json: attention is only checked by its features");
  }
  std::array<SplitVerdict, kMaxListedDegree + 1> worst{};
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    if (!is_split_weight(pairing, i, checkpoint.tensors[i].info)) continue;
    const Plan plan = plan_of(checkpoint, pairing, config, i);
    SplitRow row{i, plan.split, plan.expert, plan.block, {}};
    for (const std::uint64_t degree : degrees)
      row.results.push_back(describe(plan, judge(plan, degree), degree));
    for (std::uint64_t degree = 1; degree <= kMaxListedDegree; ++degree) {
      const SplitVerdict verdict = judge(plan, degree).verdict;
      // Not dividing is worse than cutting blocks.
      if (worst[degree] != SplitVerdict::does_not_divide && verdict != SplitVerdict::works)
        worst[degree] = verdict;
    }
    result.rows.push_back(std::move(row));
  }
  for (std::uint64_t degree = 1; degree <= kMaxListedDegree; ++degree) {
    if (worst[degree] == SplitVerdict::works) result.working.push_back(degree);
    if (worst[degree] == SplitVerdict::blocks_cut) result.cutting.push_back(degree);
  }
  return result;
}

}  // namespace octavo
