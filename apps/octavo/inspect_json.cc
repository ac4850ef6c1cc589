// `inspect --json`.
#include <algorithm>

#include "inspect.h"

namespace octavo::app {
namespace {

OrderedJson scale_json(const Checkpoint& checkpoint, const QuantizedWeight& weight) {
  if (!weight.scale) return nullptr;
  const TensorInfo& scale = checkpoint.tensors[*weight.scale].info;
  const ScaleLayout& layout = weight.layout;
  const BlockSize edge = edge_block(weight);
  return {{"name", scale.name},
          {"dtype", dtype_name(scale.dtype)},
          {"shape", scale.shape},
          {"block", {layout.block.rows, layout.block.cols}},
          {"grid", {layout.grid_rows, layout.grid_cols}},
          {"edge", {edge.rows, edge.cols}}};
}

OrderedJson tensor_json(const Inspection& inspection, std::size_t i) {
  const Checkpoint& checkpoint = inspection.checkpoint;
  const Pairing& pairing = inspection.pairing;
  const CheckpointTensor& tensor = checkpoint.tensors[i];
  OrderedJson entry = {{"name", tensor.info.name},
                       {"dtype", dtype_name(tensor.info.dtype)},
                       {"shape", tensor.info.shape},
                       {"bytes", tensor.info.bytes},
                       {"file", checkpoint.shards[tensor.shard].file_name},
                       {"role", role_of(inspection, i)},
                       {"scale", nullptr}};
  if (pairing.roles[i] == Pairing::Role::weight)
    entry["scale"] = scale_json(checkpoint, pairing.weights[pairing.weight_of[i]]);
  return entry;
}

OrderedJson config_json(const QuantConfig& config) {
  if (!config.present) return nullptr;
  OrderedJson json = {{"file", config.file},
                      {"quant_method", config.quant_method},
                      {"quant_algo", config.quant_algo},
                      {"format", config.format},
                      {"strategy", config.strategy},
                      {"weight_block_size", nullptr},
                      {"fmt", config.fmt},
                      {"scale_fmt", config.scale_fmt},
                      {"activation_scheme", config.activation_scheme},
                      {"expert_dtype", config.expert_dtype},
                      {"kv_cache", config.kv_cache}};
  if (const auto& block = config.weight_block_size)
    json["weight_block_size"] = {block->rows, block->cols};
  return json;
}

OrderedJson skip_list_json(const Inspection& inspection) {
  const SkipListCheck& check = inspection.skip_list;
  const auto names = [&](const std::vector<std::size_t>& tensors) {
    OrderedJson list = OrderedJson::array();
    for (const std::size_t i : tensors) list.push_back(inspection.checkpoint.tensors[i].info.name);
    return list;
  };
  OrderedJson entries = OrderedJson::array();
  for (const SkipEntry& entry : check.entries) {
    entries.push_back({{"entry", entry.entry},
                       {"normalized", entry.normalized},
                       {"tensors", entry.tensors},
                       {"nearest", entry.nearest}});
  }
  return {{"key", inspection.checkpoint.quantization.skip_key},
          {"file", inspection.checkpoint.quantization.file},
          {"entries", std::move(entries)},
          {"unused", check.unused},
          {"quantized", names(check.quantized)},
          {"unlisted", names(check.unlisted)}};
}

OrderedJson summary_json(const Inspection& inspection) {
  const Checkpoint& checkpoint = inspection.checkpoint;
  const Pairing& pairing = inspection.pairing;
  OrderedJson summary;
  summary["tensors"] = checkpoint.tensors.size();
  summary["files"] = checkpoint.shards.size();
  summary["bytes"] = checkpoint.tensor_bytes;
  summary["dtypes"] = OrderedJson::object();
  for (const DTypeTotal& total : dtype_totals(inspection))
    summary["dtypes"][total.name] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  summary["fp8_weights"] = count_quantized(pairing);
  summary["scales"] = count_scales(pairing);
  summary["unpaired"] = pairing.unpaired_weights + pairing.unpaired_scales;
  summary["config"] = config_json(checkpoint.quantization);
  summary["modules_to_not_convert"] = checkpoint.quantization.skip;
  summary["modules_to_not_convert_key"] = checkpoint.quantization.skip_key;
  summary["skip_list"] = skip_list_json(inspection);
  summary["config_facts"] = OrderedJson::array();
  for (const ConfigFact& fact : inspection.facts) {
    summary["config_facts"].push_back(
        {{"contradicts", fact.contradicts}, {"message", fact.message}});
  }
  summary["problems"] = inspection.problems;
  return summary;
}

OrderedJson split_json(const Inspection& inspection, const SplitRow& row) {
  const std::vector<std::uint64_t>& degrees = inspection.tensor_parallel->degrees;
  OrderedJson results = OrderedJson::array();
  for (std::size_t d = 0; d < degrees.size(); ++d) {
    const SplitResult& result = row.results[d];
    results.push_back({{"degree", degrees[d]},
                       {"verdict", to_string(result.verdict)},
                       {"shard", result.shard},
                       {"reason", result.reason}});
  }
  return {{"name", inspection.checkpoint.tensors[row.tensor].info.name},
          {"split", to_string(row.split)},
          {"expert", row.expert},
          {"block", row.block},
          {"results", std::move(results)}};
}

OrderedJson degrees_json(const TensorParallelPlan& plan) {
  OrderedJson degrees = OrderedJson::array();
  for (std::size_t d = 0; d < plan.degrees.size(); ++d) {
    const auto refused = std::ranges::count_if(plan.rows, [&](const SplitRow& row) {
      return row.results[d].verdict != SplitVerdict::works;
    });
    degrees.push_back({{"degree", plan.degrees[d]}, {"works", refused == 0}, {"refused", refused}});
  }
  return degrees;
}

std::string text_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// An element a line, each made when it is printed: a model may have a hundred thousand tensors.
template <class Element>
void print_array(std::size_t size, Element element) {
  print_out("[");
  for (std::size_t i = 0; i < size; ++i)
    print_out("{}\n{}", i == 0 ? "" : ",", text_of(element(i)));
  print_out("\n]");
}

}  // namespace

void print_inspection_json(const Inspection& inspection) {
  print_out("{{\n\"tensors\": ");
  print_array(inspection.checkpoint.tensors.size(),
              [&](std::size_t i) { return tensor_json(inspection, i); });
  print_out(",\n\"summary\": {}", text_of(summary_json(inspection)));
  if (inspection.tensor_parallel) {
    const TensorParallelPlan& plan = *inspection.tensor_parallel;
    print_out(",\n\"tensor_parallel\": {{\n\"degrees\": {},\n\"rows\": ",
              text_of(degrees_json(plan)));
    print_array(plan.rows.size(),
                [&](std::size_t i) { return split_json(inspection, plan.rows[i]); });
    print_out(",\n\"working_degrees\": {},\n\"block_cutting_degrees\": {},\n\"notes\": {}\n}}",
              text_of(plan.working), text_of(plan.cutting), text_of(plan.notes));
  }
  print_out("\n}}\n");
}

}  // namespace octavo::app
