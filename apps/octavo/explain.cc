#include "explain.h"

#include <map>

#include "octavo/formats/traits.h"
#include "octavo/kernels/select.h"

namespace octavo::app {
namespace {

struct Choice {
  std::string kernel, why;
  bool operator==(const Choice&) const = default;
};

struct Explanation {
  std::string weight;  // "e4m3fn, 128 columns share a scale"
  std::string activations;
  std::size_t n, k;
  Choice decode, prompt;
  bool operator==(const Explanation&) const = default;
};

using NamedExplanation = std::pair<std::string, Explanation>;

Choice choose(const nn::Linear& layer, Format activations, std::size_t rows, int threads) {
  const kernels::GemmProblem problem{rows, layer.weight.n, layer.weight.k, layer.weight.format,
                                     activations};
  const kernels::GemmMachine machine = kernels::gemm_machine(*kernels::selected_isa(), threads);
  const kernels::GemmPlan plan = kernels::plan_gemm(problem, machine);
  return {kernels::kernel_name(plan), kernels::explain(plan, problem, machine)};
}

Explanation explain(const nn::Linear& layer, nn::ActivationType type, int threads,
                    std::size_t prompt_rows) {
  const ops::PackedWeight& w = layer.weight;
  const Format activations = nn::operand_format(layer, type);
  const std::string scales = bits_per_element(w.format) != 8 ? ""
                             : w.scale.width != 0
                                 ? fmt::format(", scale per {} inputs", w.scale.width)
                             : w.scale.per_strip ? ", scale per output"
                                                 : ", scale per tensor";
  return {format_name(w.format) + scales + (w.rows != nullptr ? ", mapped" : ""),
          nn::activation_format(layer, type),
          w.n,
          w.k,
          choose(layer, activations, 1, threads),
          choose(layer, activations, prompt_rows, threads)};
}

// "model.layers.7.mlp.up_proj" is "model.layers.*.mlp.up_proj".
std::string without_index(const std::string& name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return name;
  return std::string(kLayers) + "*" + name.substr(name.find('.', kLayers.size()));
}

void print_table(const std::vector<NamedExplanation>& layers) {
  struct Group {
    std::string name;
    Explanation explanation;
    std::size_t count;
  };
  std::vector<Group> groups;
  for (const auto& [full_name, e] : layers) {
    const std::string name = without_index(full_name);
    const auto same = std::ranges::find_if(
        groups, [&](const Group& g) { return g.name == name && g.explanation == e; });
    if (same != groups.end()) {
      ++same->count;
    } else {
      groups.push_back({name, e, 1});
    }
  }
  std::map<std::string, std::size_t> reasons;  // each is told once
  const auto footnote = [&](const Choice& choice) {
    return reasons.try_emplace(choice.why, reasons.size() + 1).first->second;
  };
  print_out("{:<6} {:<34} {:>13}  {:<33} {:<22}\n", "layers", "name", "out x in", "weight",
            "activations");
  for (const Group& g : groups) {
    const Explanation& e = g.explanation;
    print_out("{:>6} {:<34} {:>13}  {:<33} {:<22}\n", g.count, printable(g.name),
              fmt::format("{}x{}", e.n, e.k), e.weight, e.activations);
    print_out("       {:<34} token {} ({}), prompt {} ({})\n", "", e.decode.kernel,
              footnote(e.decode), e.prompt.kernel, footnote(e.prompt));
  }
  print_out("\n");
  std::vector<std::string> told(reasons.size());
  for (const auto& [why, number] : reasons) told[number - 1] = why;
  for (std::size_t i = 0; i < told.size(); ++i) print_out("({}) {}\n", i + 1, told[i]);
}

OrderedJson to_json(const std::vector<NamedExplanation>& layers) {
  OrderedJson json = OrderedJson::array();
  for (const auto& [name, e] : layers) {
    json.push_back({{"name", name},
                    {"n", e.n},
                    {"k", e.k},
                    {"weight", e.weight},
                    {"activations", e.activations},
                    {"decode", {{"kernel", e.decode.kernel}, {"why", e.decode.why}}},
                    {"prompt", {{"kernel", e.prompt.kernel}, {"why", e.prompt.why}}}});
  }
  return {{"layers", std::move(json)}};
}

}  // namespace

void print_explanation(const RunningModel& running, bool as_json) {
  const runtime::EngineOptions& options = running.engine->options();
  std::vector<NamedExplanation> layers;
  for (const models::NamedLinear& named : models::linear_layers(running.loaded.model)) {
    layers.emplace_back(named.name, explain(*named.layer, options.activations,
                                            running.pool->threads(), options.prompt_chunk));
  }
  if (as_json) {
    print_json(to_json(layers));
  } else {
    print_table(layers);
  }
}

}  // namespace octavo::app
