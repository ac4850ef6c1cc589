#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "octavo/checkpoint/config_check.h"
#include "octavo/checkpoint/name_list.h"
#include "octavo/checkpoint/names.h"
#include "octavo/checkpoint/plan_internal.h"

namespace octavo {
namespace {

// The lists that decide, in this order of precedence.
struct Lists {
  NameList not_convert;  // the user's
  NameList convert;      // the user's
  NameList source_skip;  // the source config's
};

PlannedTensor keep(std::size_t source, std::string reason, bool skipped) {
  return {source, Action::keep, std::move(reason), skipped};
}

// A tensor of wide floats.
PlannedTensor decide_wide(const CheckpointTensor& tensor, std::size_t source, const Lists& lists,
                          const QuantConfig& source_config, const QuantizeOptions& options) {
  const TensorInfo& info = tensor.info;
  if (info.shape.size() < 2) return keep(source, fmt::format("{}-D", info.shape.size()), false);
  if (info.bytes == 0) return keep(source, "empty", false);
  if (const auto match = lists.not_convert.find(info.name)) {
    return keep(source, fmt::format("--modules-to-not-convert {}", *match), true);
  }
  const PlannedTensor quantize{source, Action::quantize,
                               fmt::format("blocks of {}", to_string(options.recipe.block)), false};
  if (lists.convert.find(info.name)) return quantize;
  if (const auto match = lists.source_skip.find(info.name)) {
    return keep(source,
                fmt::format("{} of the source's config: {}", source_config.skip_key, *match), true);
  }
  if (options.default_skips) {
    if (const auto reason = default_skip_reason(info.name))
      return keep(source, std::string(*reason), true);
  }
  if (is_fused_expert(info.name, info.shape)) return quantize;
  if (info.shape.size() == 2 && info.name.ends_with(".weight")) return quantize;
  if (info.shape.size() == 2) return keep(source, "not the weight of a linear layer", true);
  return keep(source, fmt::format("{}-D outside an experts container", info.shape.size()), true);
}

Result<PlannedTensor> decide(const Checkpoint& checkpoint, const Pairing& pairing,
                             std::size_t source, const Lists& lists,
                             const QuantizeOptions& options) {
  using Role = Pairing::Role;
  const CheckpointTensor& tensor = checkpoint.tensors[source];
  if (pairing.roles[source] == Role::scale || pairing.roles[source] == Role::activation_scale) {
    return PlannedTensor{source, Action::drop, "scale of a weight that is quantized anew", false};
  }
  if (pairing.roles[source] == Role::weight) {
    const QuantizedWeight& weight = pairing.weights[pairing.weight_of[source]];
    if (const auto match = lists.not_convert.find(tensor.info.name)) {
      return PlannedTensor{source, Action::dequantize,
                           fmt::format("to BF16: --modules-to-not-convert {}", *match), true};
    }
    if (weight.format == Format::e2m1fn && options.recipe.block.cols % 2 != 0) {
      return fail(
          ErrorCode::unsupported,
          fmt::format(
              "{}: packed FP4 cannot be requantized to blocks {} wide (an even width is needed)",
              tensor.info.name, options.recipe.block.cols));
    }
    return PlannedTensor{source, Action::quantize,
                         fmt::format("requantized, blocks of {}", to_string(options.recipe.block)),
                         false};
  }
  if (is_wide_float(tensor.info.dtype)) {
    return decide_wide(tensor, source, lists, checkpoint.quantization, options);
  }
  return keep(source, fmt::format("dtype {}", dtype_name(tensor.info.dtype)),
              tensor.info.shape.size() >= 2);
}

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kEmbedding = "embed_tokens.weight";

// Where in the config output head and embeddings are declared to be one: at the top, or in
// text_config.
std::optional<std::vector<std::string>> tied_at(const Checkpoint& checkpoint) {
  const auto declared = [](const Json& object) {
    const auto tied = object.find("tie_word_embeddings");
    return tied != object.end() && tied->is_boolean() && tied->get<bool>();
  };
  if (declared(checkpoint.config)) return std::vector<std::string>{};
  const auto text = checkpoint.config.find("text_config");
  if (text != checkpoint.config.end() && text->is_object() && declared(*text)) {
    return std::vector<std::string>{"text_config"};
  }
  return std::nullopt;
}

// The tensor of this name, whatever modules are around it.
const CheckpointTensor* find_by_end(const Checkpoint& checkpoint, std::string_view name) {
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const std::string_view full = tensor.info.name;
    if (full.ends_with(name) &&
        (full.size() == name.size() || full[full.size() - name.size() - 1] == '.')) {
      return &tensor;
    }
  }
  return nullptr;
}

// Modules of the written skip list: what has a weight of rank >= 2 and gets no scale. A tied head
// has no tensor of its own but is a module that loaders would convert, so it is named too.
std::vector<std::string> not_converted_modules(const Checkpoint& checkpoint,
                                               const std::vector<PlannedTensor>& tensors) {
  std::vector<std::string> modules;
  for (const PlannedTensor& planned : tensors) {
    const TensorInfo& info = checkpoint.tensors[planned.source].info;
    const bool matrix = info.shape.size() >= 2 &&
                        (info.name.ends_with(".weight") || is_fused_expert(info.name, info.shape));
    if (planned.action == Action::quantize || planned.action == Action::drop || !matrix) continue;
    modules.emplace_back(module_name(info.name));
  }
  if (tied_at(checkpoint) && find_by_end(checkpoint, kHead) == nullptr)
    modules.emplace_back("lm_head");
  std::ranges::sort(modules);
  modules.erase(std::ranges::unique(modules).begin(), modules.end());
  return modules;
}

// Transformers takes an entry as a regular expression at the beginning of a module's name, and as a
// literal at its end.
std::optional<std::string> captured_module(const Checkpoint& checkpoint,
                                           const std::vector<PlannedTensor>& tensors,
                                           const std::vector<std::string>& entries) {
  std::set<std::string, std::less<>> converted;
  for (const PlannedTensor& planned : tensors) {
    if (planned.action == Action::quantize)
      converted.emplace(module_name(checkpoint.tensors[planned.source].info.name));
  }
  for (const std::string& entry : entries) {
    const auto next = converted.lower_bound(entry);
    if (next == converted.end() || !next->starts_with(entry)) continue;
    return fmt::format(
        "Transformers reads the skip entry {} as the beginning of a name and would leave {} out "
        "too",
        entry, *next);
  }
  return std::nullopt;
}

std::string config_for(const Checkpoint& checkpoint, const QuantizeOptions& options,
                       const ConversionPlan& plan, bool untie) {
  std::string text = checkpoint.config_text.empty() ? "{\n}\n" : checkpoint.config_text;
  if (!plan.pairing.weights.empty()) {  // FP4 experts are FP8 now
    for (const std::vector<std::string>& path : {std::vector<std::string>{}, {"text_config"}}) {
      text = remove_json_member(text, path, "expert_dtype");
    }
  }
  text = remove_json_member(text, {"text_config"}, "quantization_config");
  text = set_json_member(text, {}, "quantization_config",
                         write_quant_config(options.recipe, plan.not_converted));
  if (untie) text = set_json_member(text, *tied_at(checkpoint), "tie_word_embeddings", "false");
  return text;
}

// One line for all quantized weights that are no multiple of their block.
std::optional<std::string> ragged_warning(const Checkpoint& checkpoint, const ConversionPlan& plan,
                                          const BlockSize& block) {
  std::string first;
  std::size_t count = 0;
  for (const PlannedTensor& planned : plan.tensors) {
    if (planned.action != Action::quantize) continue;
    const bool paired = plan.pairing.roles[planned.source] == Pairing::Role::weight;
    const TensorInfo& info = checkpoint.tensors[planned.source].info;
    const Matrices m = as_matrices(
        paired ? plan.pairing.weights[plan.pairing.weight_of[planned.source]].shape : info.shape);
    if (m.rows % block.rows == 0 && m.cols % block.cols == 0) continue;
    if (count++ == 0) first = info.name + " " + to_string(info.shape);
  }
  if (count == 0) return std::nullopt;
  return fmt::format(
      "{} quantized weights are no multiple of {} (first: {}): Transformers' own dequantizing "
      "loader refuses such shapes",
      count, to_string(block), first);
}

Result<void> check_options(const QuantizeOptions& options) {
  if (options.recipe.block.rows == 0 || options.recipe.block.cols == 0) {
    return fail(ErrorCode::bad_value, "--weight-block-size: two numbers above 0 are expected");
  }
  if (options.scale_dtype == DType::f8_e8m0 && options.recipe.scale_fmt != ScaleFormat::ue8m0) {
    return fail(ErrorCode::bad_value,
                "--scale-dtype e8m0 holds powers of two only: add --scale-fmt ue8m0");
  }
  return {};
}

Result<void> check_source(const Checkpoint& checkpoint, const Pairing& pairing,
                          const QuantizeOptions& options) {
  if (!pairing.problems.empty() && (options.requantize || pairing.weights.empty()))
    return std::unexpected(to_error(pairing.problems.front()));
  if (!options.requantize && count_quantized(pairing) > 0) {
    return fail(ErrorCode::bad_model,
                fmt::format("{}: {} weights are quantized already (first: {}); --requantize "
                            "dequantizes and quantizes them anew, "
                            "or run `octavo dequantize` first",
                            checkpoint.directory.string(), count_quantized(pairing),
                            pairing.weights.empty()
                                ? "without a scale"
                                : checkpoint.tensors[pairing.weights[0].tensor].info.name));
  }
  return {};
}

}  // namespace

Result<bool> head_differs(const Checkpoint& checkpoint) {
  if (!tied_at(checkpoint)) return false;
  const CheckpointTensor* head = find_by_end(checkpoint, kHead);
  const CheckpointTensor* embedding = find_by_end(checkpoint, kEmbedding);
  if (head == nullptr || embedding == nullptr) return false;
  if (head->info.dtype != embedding->info.dtype || head->info.shape != embedding->info.shape)
    return true;
  constexpr std::uint64_t kPart = 4 << 20;
  std::vector<std::byte> left(std::min(kPart, head->info.bytes));
  std::vector<std::byte> right(left.size());
  for (std::uint64_t at = 0; at < head->info.bytes; at += kPart) {
    const std::uint64_t part = std::min(kPart, head->info.bytes - at);
    OCTAVO_CHECK(checkpoint.read(*head, at, std::span(left).first(part)));
    OCTAVO_CHECK(checkpoint.read(*embedding, at, std::span(right).first(part)));
    if (!std::equal(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(part), right.begin()))
      return true;
  }
  return false;
}

Result<ConversionPlan> plan_quantize(const Checkpoint& checkpoint, const QuantizeOptions& options) {
  OCTAVO_CHECK(check_options(options));
  ConversionPlan plan;
  plan.pairing = pair_scales(checkpoint, options.pairing);
  OCTAVO_CHECK(check_source(checkpoint, plan.pairing, options));
  OCTAVO_CHECK(check_quant_method(checkpoint, plan.pairing));
  if (checkpoint.quantization.present && plan.pairing.weights.empty()) {
    plan.warnings.push_back(fmt::format(
        "the source's config says quant_method \"{}\", but no tensor of it is quantized: "
        "the tensors count, the config is replaced",
        checkpoint.quantization.quant_method));
  }
  std::vector<std::string> names;
  for (const CheckpointTensor& tensor : checkpoint.tensors) names.push_back(tensor.info.name);
  Lists lists;
  OCTAVO_TRY(lists.not_convert, NameList::parse(options.not_convert, names));
  OCTAVO_TRY(lists.convert, NameList::parse(options.convert, names));
  OCTAVO_TRY(const std::vector<std::string> skip_list,
             skip_list_warnings(checkpoint, plan.pairing));
  std::ranges::copy(skip_list, std::back_inserter(plan.warnings));
  OCTAVO_TRY(lists.source_skip, NameList::parse(checkpoint.quantization.skip, names));

  std::size_t quantized = 0;
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    OCTAVO_TRY(PlannedTensor planned, decide(checkpoint, plan.pairing, i, lists, options));
    const std::string& name = checkpoint.tensors[i].info.name;
    if (planned.action == Action::quantize) {
      ++quantized;
      const CheckpointTensor* taken = checkpoint.find(scale_name(name));
      if (taken != nullptr &&
          plan.pairing.roles[static_cast<std::size_t>(taken - checkpoint.tensors.data())] ==
              Pairing::Role::plain) {
        return fail(ErrorCode::bad_model,
                    fmt::format("{} is there already, and is the name for the scales of {}",
                                taken->info.name, name));
      }
      if (const auto reason = default_skip_reason(name); reason && options.default_skips) {
        plan.warnings.push_back(
            fmt::format("{} ({}) is quantized as asked; few loaders expect that", name, *reason));
      }
    }
    plan.tensors.push_back(std::move(planned));
  }
  if (quantized == 0)
    plan.warnings.emplace_back("nothing in it is quantized: no matrix qualifies (see --plan)");
  const auto warn_unused = [&](const NameList& list, std::string_view flag) {
    for (const std::string& entry : list.unused())
      plan.warnings.push_back(fmt::format("{} {} matches no tensor", flag, entry));
  };
  warn_unused(lists.not_convert, "--modules-to-not-convert");
  warn_unused(lists.convert, "--modules-to-convert");

  plan.not_converted = not_converted_modules(checkpoint, plan.tensors);
  if (auto captured = captured_module(checkpoint, plan.tensors, plan.not_converted))
    plan.warnings.push_back(std::move(*captured));
  if (auto ragged = ragged_warning(checkpoint, plan, options.recipe.block))
    plan.warnings.push_back(std::move(*ragged));
  OCTAVO_TRY(const bool untie, head_differs(checkpoint));
  if (untie) {
    plan.warnings.emplace_back(
        "tie_word_embeddings is true, but lm_head differs from embed_tokens: both are kept and the "
        "written config says false");
  }
  if (checkpoint.config_text.empty())
    plan.warnings.emplace_back(
        "no config.json in the source: one with quantization_config alone is written");
  plan.config_text = config_for(checkpoint, options, plan, untie);
  leave_out_stale_files(checkpoint, plan);
  return plan;
}

}  // namespace octavo
