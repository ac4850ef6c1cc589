#include "octavo/checkpoint/config_check.h"
#include "octavo/base/ceil_div.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>

namespace octavo {
namespace {

// Their FP8 weights are ours to read; where none is found, the weights are wide.
constexpr std::array<std::string_view, 5> kMethods = {"fp8", "compressed-tensors", "modelopt",
                                                      "mxfp8", "fbgemm_fp8"};

// Tensors that only packed integer formats have.
constexpr std::array<std::string_view, 3> kPacked = {".qweight", ".weight_packed", ".qzeros"};

bool is_supported(std::string_view method) {
  return std::ranges::find(kMethods, method) != kMethods.end();
}

std::string config_path(const Checkpoint& checkpoint) {
  const std::string& file = checkpoint.quantization.file;
  return (checkpoint.directory / (file.empty() ? "config.json" : file)).string();
}

// What shares a scale of this weight, as compressed-tensors calls it; empty without a scale.
std::string_view strategy_of(const QuantizedWeight& weight) {
  if (!weight.scale) return "";
  const Matrices m = as_matrices(weight.shape);
  const ScaleLayout& layout = weight.layout;
  if (layout.grid_rows == 1 && layout.grid_cols == 1) return "tensor";
  if (layout.grid_rows == m.rows && layout.grid_cols == 1) return "channel";
  return layout.block.rows == 1 ? "group" : "block";
}

// A weight within one block has a single scale either way, and the scale of a block may be one row
// high.
bool may_be(const QuantizedWeight& weight, std::string_view strategy,
            const std::optional<BlockSize>& declared) {
  const std::string_view found = strategy_of(weight);
  if (found == strategy || found.empty()) return true;
  if (found != "tensor" && found != "channel") return false;
  const Matrices m = as_matrices(weight.shape);
  const BlockSize block = declared.value_or(BlockSize{});
  return (strategy == "block" || strategy == "group") &&
         weight.layout.grid_rows == ceil_div(m.rows, block.rows) &&
         weight.layout.grid_cols == ceil_div(m.cols, block.cols);
}

class Facts {
 public:
  Facts(const Checkpoint& checkpoint, const Pairing& pairing)
      : checkpoint_(checkpoint), pairing_(pairing), config_(checkpoint.quantization) {}

  std::vector<ConfigFact> take() {
    check_presence();
    if (config_.present) {
      for (const std::string& note : config_.notes) add(ConfigFact::Kind::config, false, note);
      check_layout();
      check_formats();
      check_activations();
    }
    return std::move(facts_);
  }

 private:
  void add(ConfigFact::Kind kind, bool contradicts, std::string_view text) {
    facts_.push_back(
        {kind, contradicts, printable(fmt::format("{}: {}", config_path(checkpoint_), text))});
  }

  // One line for the weights that `differs` holds for.
  void add_weights(ConfigFact::Kind kind, std::string_view said,
                   const std::function<bool(const QuantizedWeight&)>& differs) {
    std::size_t count = 0;
    const QuantizedWeight* first = nullptr;
    for (const QuantizedWeight& weight : pairing_.weights) {
      if (!differs(weight)) continue;
      if (count++ == 0) first = &weight;
    }
    if (first == nullptr) return;
    const TensorInfo& info = checkpoint_.tensors[first->tensor].info;
    std::string scale;
    if (first->scale) {
      const TensorInfo& scales = checkpoint_.tensors[*first->scale].info;
      scale = fmt::format(" with {} scales {}", dtype_name(scales.dtype), to_string(scales.shape));
    }
    add(kind, true,
        fmt::format("it says {}, but {} of {} quantized weights differ (first: {}, {} {}{}): the "
                    "tensors count",
                    said, count, pairing_.weights.size(), info.name, dtype_name(info.dtype),
                    to_string(info.shape), scale));
  }

  void check_presence() {
    const bool quantized = count_quantized(pairing_) > 0;
    if (config_.present && !quantized) {
      add(ConfigFact::Kind::claims_quantized, true,
          fmt::format("it says quant_method \"{}\", but no tensor is quantized: the tensors count",
                      config_.quant_method));
    }
    if (config_.present && !config_.quant_method.empty() && !pairing_.weights.empty() &&
        !is_supported(config_.quant_method)) {
      add(ConfigFact::Kind::config, true,
          fmt::format("it says quant_method \"{}\", but {} weights are FP8 or packed FP4 with "
                      "scales: loaders that go by the config take their codes for something else",
                      config_.quant_method, pairing_.weights.size()));
    }
    if (!config_.present && quantized) {
      add(ConfigFact::Kind::lacks_quantization, true,
          fmt::format("no quantization_config, but {} weights are quantized: the tensors count; "
                      "engines that go by the config would read their codes as values",
                      count_quantized(pairing_)));
    }
  }

  void check_layout() {
    const std::optional<BlockSize>& block = config_.weight_block_size;
    if (config_.strategy.empty()) return;
    const bool blocks = config_.strategy == "block" || config_.strategy == "group";
    const std::string said = blocks && block ? "blocks of " + to_string(*block)
                                             : fmt::format("strategy \"{}\"", config_.strategy);
    add_weights(blocks ? ConfigFact::Kind::block_size : ConfigFact::Kind::strategy, said,
                [&](const QuantizedWeight& weight) {
                  const bool packed = weight.format == Format::e2m1fn;  // a group of 32 always
                  return !packed && !may_be(weight, config_.strategy, block);
                });
  }

  void check_formats() {
    const bool e5m2 = config_.fmt == "e5m2";
    if (e5m2 || config_.fmt == "e4m3") {
      add_weights(ConfigFact::Kind::fmt, fmt::format("fmt \"{}\"", config_.fmt),
                  [&](const QuantizedWeight& weight) {
                    const bool found =
                        weight.format == Format::e5m2 || weight.format == Format::e5m2fnuz;
                    return weight.format != Format::e2m1fn && found != e5m2;
                  });
    }
    if (config_.scale_fmt == "float") {
      add_weights(ConfigFact::Kind::scale_fmt, "scale_fmt \"float\"",
                  [&](const QuantizedWeight& weight) {
                    return weight.format != Format::e2m1fn && weight.scale &&
                           checkpoint_.tensors[*weight.scale].info.dtype == DType::f8_e8m0;
                  });
    }
    const bool fp4 = std::ranges::any_of(pairing_.weights, [](const QuantizedWeight& weight) {
      return weight.format == Format::e2m1fn;
    });
    if (config_.expert_dtype == "fp4" && !fp4) {
      add(ConfigFact::Kind::expert_dtype, true,
          "it says expert_dtype \"fp4\", but no tensor holds packed FP4 with scales");
    }
  }

  void check_activations() {
    const auto ends = [&](std::string_view ending) {
      return std::ranges::count_if(checkpoint_.tensors, [&](const CheckpointTensor& tensor) {
        return tensor.info.name.ends_with(ending);
      });
    };
    const bool scales =
        std::ranges::find(pairing_.roles, Pairing::Role::activation_scale) != pairing_.roles.end();
    if (config_.activation_scheme == "static" && !scales && !pairing_.weights.empty()) {
      add(ConfigFact::Kind::activation_scheme, true,
          "it says activation_scheme \"static\", but no tensor is an activation scale "
          "(.input_scale)");
    }
    if (!config_.kv_cache.empty()) {
      add(ConfigFact::Kind::kv_cache, false,
          fmt::format("KV cache: {}, {} k_scale and {} v_scale tensors", config_.kv_cache,
                      ends(".k_scale"), ends(".v_scale")));
    }
  }

  const Checkpoint& checkpoint_;
  const Pairing& pairing_;
  const QuantConfig& config_;
  std::vector<ConfigFact> facts_;
};

}  // namespace

std::vector<ConfigFact> check_config(const Checkpoint& checkpoint, const Pairing& pairing) {
  return Facts(checkpoint, pairing).take();
}

std::string supported_quant_methods() { return fmt::format("{}", fmt::join(kMethods, ", ")); }

Result<void> check_asked_quant_method(const Checkpoint& checkpoint, std::string_view asked) {
  if (asked.empty()) return {};
  const std::string& found = checkpoint.quantization.quant_method;
  if (!found.empty() && found != asked) {
    return fail(ErrorCode::bad_value,
                fmt::format("found quant_method {} in {}, asked for {}; supported: {}", found,
                            config_path(checkpoint), asked, supported_quant_methods()));
  }
  if (!is_supported(asked)) {
    return fail(ErrorCode::bad_value, fmt::format("--quant-method {} is not read; supported: {}",
                                                  asked, supported_quant_methods()));
  }
  return {};
}

std::optional<Defect> foreign_codes(const Checkpoint& checkpoint, const Pairing& pairing) {
  constexpr DefectCode kCode = DefectCode::unsupported_format;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    const std::string& name = tensor.info.name;
    const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
    if (std::ranges::none_of(kPacked, ends)) continue;
    const std::string file =
        (checkpoint.directory / checkpoint.shards[tensor.shard].file_name).string();
    return make_defect(kCode, file, name, tensor.info.offset,
                       fmt::format("{}: {} holds packed integers; FP8, packed FP4 and wide floats "
                                   "are read",
                                   file, name));
  }
  const std::string& method = checkpoint.quantization.quant_method;
  if (!checkpoint.quantization.present || !pairing.weights.empty() || method.empty() ||
      is_supported(method)) {
    return std::nullopt;
  }
  const std::string file = config_path(checkpoint);
  return make_defect(kCode, file, "", {},
                     fmt::format("{}: quant_method \"{}\" is not read; supported with FP8 "
                                 "weights: {}",
                                 file, method, supported_quant_methods()));
}

Result<void> check_quant_method(const Checkpoint& checkpoint, const Pairing& pairing) {
  if (const auto defect = foreign_codes(checkpoint, pairing))
    return std::unexpected(to_error(*defect));
  return {};
}

}  // namespace octavo
