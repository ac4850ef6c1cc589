#include "heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "compare_output.h"
#include "octavo/checkpoint/names.h"

namespace octavo::app {
namespace {

// Pixels.
constexpr int kCellWidth = 32;
constexpr int kCellHeight = 18;
constexpr double kCharacter = 6.7;       // of the labels, 11 px monospace
constexpr std::size_t kLabelBytes = 44;  // longer names are cut; the tooltip has all of them

struct Place {
  std::string prefix;  // empty: in no layer
  std::string layer;
  std::string module;
};

bool is_number(std::string_view segment) {
  return !segment.empty() &&
         std::ranges::all_of(segment, [](char c) { return c >= '0' && c <= '9'; });
}

// The first number that something follows is the layer, further ones are experts.
Place place_of(std::string_view tensor) {
  const std::string_view name = module_name(tensor);
  Place place;
  bool found = false;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    const std::string_view segment = name.substr(at, dot - at);
    const bool number = is_number(segment);
    if (!found && number && at > 0 && dot < name.size()) {
      found = true;
      place.prefix = name.substr(0, at - 1);
      place.layer = segment;
      place.module.clear();
    } else {
      if (!place.module.empty()) place.module += '.';
      place.module += found && number ? "*" : segment;
    }
    at = dot + 1;
  }
  return place;
}

struct Entry {  // in the order of Comparison::tensors: worst first
  Place place;
  const TensorComparison* tensor;
};

HeatMap map_of(const std::string& prefix, const std::vector<Entry>& entries) {
  HeatMap map{prefix, {}, {}, {}};
  const auto shorter_first = [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;  // numbers as numbers
  };
  std::set<std::string, decltype(shorter_first)> rows(shorter_first);
  std::set<std::string> columns;
  for (const Entry& entry : entries) {
    rows.insert(entry.place.layer);
    columns.insert(entry.place.module);
  }
  map.rows.assign(rows.begin(), rows.end());
  map.columns.assign(columns.begin(), columns.end());
  for (const Entry& entry : entries) {
    const auto row = std::ranges::lower_bound(map.rows, entry.place.layer, shorter_first);
    const auto column = std::ranges::lower_bound(map.columns, entry.place.module);
    const std::pair<std::size_t, std::size_t> at(row - map.rows.begin(),
                                                 column - map.columns.begin());
    const auto [cell, added] = map.cells.emplace(at, HeatCell{entry.tensor});
    if (!added) ++cell->second.tensors;  // the first is the worst
  }
  return map;
}

// From bad to good; lightness differs too, for eyes that tell the hues apart badly.
struct Colour {
  double red;
  double green;
  double blue;
};
constexpr std::array<Colour, 5> kRamp = {
    {{158, 22, 66}, {221, 89, 60}, {246, 190, 92}, {142, 199, 148}, {34, 130, 140}}};

Colour ramp(double share) {
  const double at = std::clamp(share, 0.0, 1.0) * (kRamp.size() - 1);
  const auto i = std::min<std::size_t>(static_cast<std::size_t>(at), kRamp.size() - 2);
  const double t = at - static_cast<double>(i);
  const auto mix = [t](double a, double b) { return std::round(a + t * (b - a)); };
  return {mix(kRamp[i].red, kRamp[i + 1].red), mix(kRamp[i].green, kRamp[i + 1].green),
          mix(kRamp[i].blue, kRamp[i + 1].blue)};
}

Colour colour_of(double snr_db) { return ramp((snr_db - kHeatLow) / (kHeatHigh - kHeatLow)); }

bool is_dark(const Colour& colour) {
  return 0.299 * colour.red + 0.587 * colour.green + 0.114 * colour.blue < 140;
}

// Cut in its middle, between characters of UTF-8.
std::string label(std::string_view tensor) {
  const std::string name = printable(tensor);
  if (name.size() <= kLabelBytes) return name;
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(name[at]) & 0xC0) == 0x80;
  };
  std::size_t head = kLabelBytes / 2;
  std::size_t tail = name.size() - kLabelBytes / 2 + 1;
  while (head > 0 && continues(head)) --head;
  while (tail < name.size() && continues(tail)) ++tail;
  return name.substr(0, head) + "\u2026" + name.substr(tail);
}

std::string tooltip(const HeatCell& cell) {
  const TensorComparison& tensor = *cell.worst;
  std::string text = cell.tensors > 1 ? fmt::format("{} tensors, the worst: ", cell.tensors) : "";
  text += fmt::format("{}\n{}, {} / {}", tensor.name, verdict_name(tensor.verdict),
                      format_words(tensor.a), format_words(tensor.b));
  if (tensor.difference && tensor.difference->differing > 0) {
    const Difference& d = *tensor.difference;
    text += fmt::format("\nSNR {} dB, max abs {}, RMS {}, cosine {:.6f}", decibels(d.snr_db),
                        number_words(d.max_abs), number_words(d.rms), d.cosine);
  }
  if (tensor.worst) text += fmt::format("\nworst at {}", worst_words(*tensor.worst));
  std::string escaped;
  for (std::size_t at = 0; at <= text.size();) {  // our own line ends stay
    const std::size_t end = std::min(text.find('\n', at), text.size());
    escaped += (at > 0 ? "\n" : "") + html_text(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  return escaped;
}

std::string cell_svg(const HeatCell& cell, double x, double y) {
  const TensorComparison& tensor = *cell.worst;
  std::string kind(verdict_name(tensor.verdict));
  std::string fill;
  std::string text;
  const bool measured = tensor.difference && tensor.difference->differing > 0;
  if (measured && tensor.difference->non_finite == 0) {
    const double snr = tensor.difference->snr_db;
    const Colour colour = colour_of(snr);
    fill = fmt::format(" style=\"fill:{}\"", heat_colour(snr));
    text = std::isfinite(snr) ? fmt::format("{:.1f}", snr) : "\u2212\u221E";
    kind += is_dark(colour) ? " on-dark" : " on-light";
  } else {
    text = tensor.verdict == Verdict::missing     ? "\u00D7"
           : tensor.verdict == Verdict::different ? "\u2260"
                                                  : "=";
  }
  return fmt::format(
      "<g class=\"cell {}\"><title>{}</title><rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{}\" "
      "height=\"{}\" rx=\"3\"{}/><text x=\"{:.0f}\" y=\"{:.0f}\">{}</text></g>\n",
      kind, tooltip(cell), x + 1, y + 1, kCellWidth - 2, kCellHeight - 2, fill,
      x + kCellWidth / 2.0, y + 13, text);
}

double label_width(const std::vector<std::string>& labels) {
  std::size_t longest = 0;
  for (const std::string& text : labels) longest = std::max(longest, label(text).size());
  return static_cast<double>(longest) * kCharacter;
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '&':
        result += "&amp;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
        break;
    }
  }
  return result;
}

std::vector<HeatMap> heat_maps(const Comparison& comparison) {
  std::map<std::string, std::vector<Entry>> by_prefix;
  for (const TensorComparison& tensor : comparison.tensors) {
    Entry entry{place_of(tensor.name), &tensor};
    std::string prefix = entry.place.prefix;
    by_prefix[std::move(prefix)].push_back(std::move(entry));
  }
  std::vector<HeatMap> maps;
  for (const auto& [prefix, entries] : by_prefix) {
    if (!prefix.empty()) maps.push_back(map_of(prefix, entries));
  }
  if (by_prefix.contains("")) maps.push_back(map_of("", by_prefix[""]));
  return maps;
}

std::string heat_colour(double snr_db) {
  const Colour c = colour_of(snr_db);
  return fmt::format("#{:02x}{:02x}{:02x}", static_cast<int>(c.red), static_cast<int>(c.green),
                     static_cast<int>(c.blue));
}

std::string heat_svg(const HeatMap& map) {
  // Column labels rise to the right at 45 degrees, and need as much room there as above.
  const double rise = label_width(map.columns) * std::sqrt(0.5) + 12;
  const double left = label_width(map.rows) + 10;
  const double grid_width = static_cast<double>(map.columns.size() * kCellWidth);
  const double grid_height = static_cast<double>(map.rows.size() * kCellHeight);
  const double width = left + grid_width + rise;
  const double height = rise + grid_height + 2;
  std::string svg = fmt::format(
      "<svg width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n"
      "<rect class=\"grid\" x=\"{2:.0f}\" y=\"{3:.0f}\" width=\"{4:.0f}\" height=\"{5:.0f}\"/>\n",
      width, height, left, rise, grid_width, grid_height);
  for (std::size_t c = 0; c < map.columns.size(); ++c) {
    svg += fmt::format(
        "<text class=\"column\" transform=\"translate({:.0f} {:.0f}) rotate(-45)\">{}</text>\n",
        left + (static_cast<double>(c) + 0.6) * kCellWidth, rise - 5,
        html_text(label(map.columns[c])));
  }
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    svg += fmt::format("<text class=\"row\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", left - 6,
                       rise + static_cast<double>(r * kCellHeight) + 13,
                       html_text(label(map.rows[r])));
  }
  for (const auto& [at, cell] : map.cells) {
    svg += cell_svg(cell, left + static_cast<double>(at.second * kCellWidth),
                    rise + static_cast<double>(at.first * kCellHeight));
  }
  return svg + "</svg>\n";
}

}  // namespace octavo::app
