// A comparison by layer and module, and its drawing as SVG.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/compare.h"

namespace octavo::app {

// Text for HTML and SVG, in elements and in quoted attributes. Control characters become \xNN.
std::string html_text(std::string_view text);

// The tensors of one module in one layer; several where they are experts.
struct HeatCell {
  const TensorComparison* worst;
  std::size_t tensors = 1;
};

// Layers whose names begin alike: "model.layers". Tensors outside of layers are a map of one row.
struct HeatMap {
  std::string prefix;
  std::vector<std::string> rows;     // numbers of the layers
  std::vector<std::string> columns;  // modules: "self_attn.q_proj", "mlp.experts.*.up_proj"
  std::map<std::pair<std::size_t, std::size_t>, HeatCell> cells;  // by row and column
};

// "model.layers.3.mlp.up_proj.weight" is layer 3 of "model.layers", module "mlp.up_proj". The map
// of what is in no layer, prefix empty, comes last.
std::vector<HeatMap> heat_maps(const Comparison& comparison);

// Decibels at the two ends of the colours, the same on every page: rounding to E4M3 leaves about
// 31.5, to packed FP4 about 19.
inline constexpr double kHeatLow = 0;
inline constexpr double kHeatHigh = 40;
std::string heat_colour(double snr_db);  // "#a1b2c3"

std::string heat_svg(const HeatMap& map);

}  // namespace octavo::app
