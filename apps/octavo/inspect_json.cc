// `inspect --json`.
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

OrderedJson tensors_json(const Inspection& inspection) {
  const Checkpoint& checkpoint = inspection.checkpoint;
  const Pairing& pairing = inspection.pairing;
  OrderedJson tensors = OrderedJson::array();
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
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
    tensors.push_back(std::move(entry));
  }
  return tensors;
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
  summary["fp8_weights"] = pairing.weights.size() + pairing.unpaired_weights;
  summary["scales"] = scale_count(pairing);
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

OrderedJson tensor_parallel_json(const Checkpoint& checkpoint, const TensorParallelPlan& plan) {
  OrderedJson rows = OrderedJson::array();
  std::vector<std::size_t> refused(plan.degrees.size(), 0);
  for (const SplitRow& row : plan.rows) {
    OrderedJson results = OrderedJson::array();
    for (std::size_t d = 0; d < plan.degrees.size(); ++d) {
      const SplitResult& result = row.results[d];
      if (result.verdict != SplitVerdict::works) ++refused[d];
      results.push_back({{"degree", plan.degrees[d]},
                         {"verdict", to_string(result.verdict)},
                         {"shard", result.shard},
                         {"reason", result.reason}});
    }
    rows.push_back({{"name", checkpoint.tensors[row.tensor].info.name},
                    {"split", to_string(row.split)},
                    {"expert", row.expert},
                    {"block", row.block},
                    {"results", std::move(results)}});
  }
  OrderedJson degrees = OrderedJson::array();
  for (std::size_t d = 0; d < plan.degrees.size(); ++d) {
    degrees.push_back(
        {{"degree", plan.degrees[d]}, {"works", refused[d] == 0}, {"refused", refused[d]}});
  }
  return {{"degrees", std::move(degrees)},
          {"rows", std::move(rows)},
          {"working_degrees", plan.working},
          {"block_cutting_degrees", plan.cutting},
          {"notes", plan.notes}};
}

}  // namespace

OrderedJson inspection_json(const Inspection& inspection) {
  OrderedJson json;
  json["tensors"] = tensors_json(inspection);
  json["summary"] = summary_json(inspection);
  if (inspection.tensor_parallel) {
    json["tensor_parallel"] =
        tensor_parallel_json(inspection.checkpoint, *inspection.tensor_parallel);
  }
  return json;
}

}  // namespace octavo::app
