#include "compare_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "compare_output.h"
#include "heat_map.h"
#include "octavo/base/file.h"

namespace octavo::app {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTableLines = 50;

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #fbfaf8; --ink: #22252a; --soft: #6a7079; --line: #dcd9d2;
  --card: #ffffff; --same: #d5dde6; --near: #e7ecf1; --bad: #b3123f; --hole: #eeece6; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181c; --ink: #e6e4df; --soft: #9aa1ab; --line: #33373e; --card: #1e2126;
    --same: #3a4654; --near: #2b343e; --bad: #ff5c85; --hole: #1e2126; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1.5rem 1rem 3rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .75rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .5rem; }
h3 { font: 600 .85rem/1.4 ui-monospace, monospace; color: var(--soft); margin: 1rem 0 .25rem;
  overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .1rem .75rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; font-family: ui-monospace, monospace; font-size: .9rem; overflow-wrap: anywhere; }
.counts { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1.25rem 0 .75rem; }
.counts div { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .5rem .9rem; min-width: 6.5rem; }
.counts b { display: block; font-size: 1.5rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
.counts span, .note { color: var(--soft); font-size: .85rem; }
.counts .alarm b { color: var(--bad); }
.wide { overflow-x: auto; }
svg { display: block; }
svg text { font: 11px ui-monospace, "DejaVu Sans Mono", monospace; fill: var(--ink); }
svg .row { text-anchor: end; fill: var(--soft); }
svg .grid { fill: var(--hole); }
.cell text { text-anchor: middle; font-size: 10px; fill: var(--soft); }
.cell rect { fill: var(--same); }
.cell.equal_values rect { fill: var(--near); }
.cell.on-dark text { fill: #fff; }
.cell.on-light text { fill: #1d1d1d; }
.cell.different rect { stroke: var(--bad); stroke-width: 2; }
.cell.missing rect { fill: var(--page); stroke: var(--bad); stroke-width: 1.5;
  stroke-dasharray: 3 2; }
.cell.missing text, .cell.different:not(.on-dark):not(.on-light) text { fill: var(--bad);
  font-weight: 700; }
.legend { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem 1.25rem; font-size: .85rem;
  color: var(--soft); margin: .5rem 0 .75rem; }
.legend span { display: inline-flex; align-items: center; gap: .4rem; }
.ramp { width: 10rem; height: .8rem; border-radius: .2rem; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; white-space: nowrap; vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { text-align: left; font-family: ui-monospace, monospace;
  white-space: normal; overflow-wrap: anywhere; min-width: 18rem; }
.text { text-align: left; }
td.alarm { color: var(--bad); font-weight: 600; }
)";

std::string counts_html(const Comparison& comparison) {
  constexpr std::pair<Verdict, const char*> kCards[] = {
      {Verdict::equal_bits, "equal bits"}, {Verdict::equal_values, "equal values"},
      {Verdict::rounded, "rounded"},       {Verdict::different, "different"},
      {Verdict::missing, "missing"},
  };
  std::string html = "<div class=\"counts\">\n";
  for (const auto& [verdict, words] : kCards) {
    const std::uint64_t count = comparison.counts[static_cast<std::size_t>(verdict)];
    html += fmt::format("<div{}><b>{}</b><span>{}</span></div>\n",
                        verdict < Verdict::rounded && count > 0 ? " class=\"alarm\"" : "", count,
                        words);
  }
  html += "</div>\n";
  const Difference& d = comparison.differing;
  if (d.elements == 0) return html;
  return html + fmt::format(
                    "<p class=\"note\">Over the {:.4g} elements of tensors that differ: SNR "
                    "{} dB, max abs {}, RMS {}, cosine {:.6f}.</p>\n",
                    static_cast<double>(d.elements), decibels(d.snr_db), number_words(d.max_abs),
                    number_words(d.rms), d.cosine);
}

std::string legend_html() {
  std::string stops;
  constexpr int kStops = 8;
  for (int i = 0; i <= kStops; ++i)
    stops += ", " + heat_colour(kHeatLow + (kHeatHigh - kHeatLow) * i / kStops);
  std::string html = fmt::format(
      "<div class=\"legend\">\n<span>{:.0f} dB or less <i class=\"ramp\" "
      "style=\"background:linear-gradient(90deg{})\"></i> {:.0f} dB or more</span>\n",
      kHeatLow, stops, kHeatHigh);
  constexpr std::pair<const char*, const char*> kKinds[] = {
      {"equal_bits", "equal"},
      {"different", "different (red frame)"},
      {"missing", "only in A or in B"},
  };
  constexpr const char* kSigns[] = {"=", "\u2260", "\u00D7"};
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    html += fmt::format(
        "<span><svg width=\"28\" height=\"16\"><g class=\"cell {}\"><rect x=\"1\" y=\"1\" "
        "width=\"26\" height=\"14\" rx=\"3\"/><text x=\"14\" "
        "y=\"12\">{}</text></g></svg>{}</span>\n",
        kKinds[i].first, kSigns[i], kKinds[i].second);
  }
  return html +
         "<span><svg width=\"28\" height=\"16\"><rect class=\"grid\" width=\"28\" "
         "height=\"16\"/></svg>no such tensor in either</span>\n</div>\n";
}

std::string remark(const TensorComparison& tensor) {
  if (!tensor.a) return " in A";
  if (!tensor.b) return " in B";
  if (!tensor.difference) {
    return fmt::format("<br>{} / {}", to_string(tensor.a->shape), to_string(tensor.b->shape));
  }
  const std::uint64_t count = tensor.difference->non_finite;
  return count > 0 ? fmt::format("<br>{} NaN or infinite", count) : "";
}

std::string row_html(const TensorComparison& tensor) {
  const auto cell = [](const std::string& text) { return "<td>" + text + "</td>"; };
  std::string html =
      fmt::format("<tr><td><bdi>{}</bdi></td><td class=\"text{}\">{}{}</td>",
                  html_text(tensor.name), tensor.verdict < Verdict::rounded ? " alarm" : "",
                  verdict_name(tensor.verdict), remark(tensor));
  if (tensor.difference) {
    const Difference& d = *tensor.difference;
    html += cell(decibels(d.snr_db)) + cell(number_words(d.max_abs)) + cell(number_words(d.rms)) +
            cell(fmt::format("{:.6f}", d.cosine)) + cell(fmt::format("{}", d.differing));
  } else {
    for (int i = 0; i < 5; ++i) html += cell("\u2013");
  }
  html += fmt::format("<td class=\"text\">{}</td>",
                      tensor.worst ? html_text(worst_words(*tensor.worst)) : "");
  html += fmt::format("<td class=\"text\">{} / {}</td></tr>\n", format_words(tensor.a),
                      format_words(tensor.b));
  return html;
}

std::string table_html(const Comparison& comparison) {
  std::string rows;
  std::size_t count = 0;
  for (const TensorComparison& tensor : comparison.tensors) {
    if (count == kTableLines || tensor.verdict >= Verdict::equal_values) break;
    rows += row_html(tensor);
    ++count;
  }
  if (count == 0) return "<p>No tensor differs.</p>\n";
  return fmt::format(
      "<h2>The worst {}</h2>\n<div class=\"wide\"><table>\n<tr><th>tensor</th><th "
      "class=\"text\">verdict</th><th>SNR dB</th><th>max abs</th><th>RMS</th><th>cosine</th>"
      "<th>differing</th><th class=\"text\">worst element: A / B</th><th "
      "class=\"text\">formats</th></tr>\n{}</table></div>\n",
      count, rows);
}

// Everything that was read, and what lies beside it.
std::vector<fs::path> files_of(const Checkpoint& checkpoint) {
  std::vector<fs::path> files;
  for (const Shard& shard : checkpoint.shards) files.push_back(shard.file.path());
  for (const std::string& file : checkpoint.side_files)
    files.push_back(checkpoint.directory / file);
  for (const std::string& file : checkpoint.other_weights)
    files.push_back(checkpoint.directory / file);
  files.push_back(checkpoint.directory / "config.json");
  if (!checkpoint.index_name.empty()) files.push_back(checkpoint.directory / checkpoint.index_name);
  return files;
}

}  // namespace

Result<void> check_html_path(const fs::path& path, const std::vector<const Checkpoint*>& inputs) {
  std::error_code ignored;
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::bad_value, fmt::format("--html {}: {}", path.string(), why));
  };
  if (path.filename().empty() || fs::is_directory(path, ignored))
    return refuse("a directory; a file is expected, as in report.html");
  if (path.has_parent_path() && !fs::is_directory(path.parent_path(), ignored))
    return refuse("its directory does not exist");
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored))
    return refuse("not a regular file, and the page would replace it; give another name");
  const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
  for (const Checkpoint* input : inputs) {
    // An index that is not read, a tokenizer: the page must not replace what belongs to a model.
    const fs::path directory = input->directory.empty() ? "." : input->directory;
    if (fs::exists(path, ignored) && fs::equivalent(parent, directory, ignored))
      return refuse("a file of a model that is compared; give another name");
    for (const fs::path& file : files_of(*input)) {
      if (fs::equivalent(path, file, ignored))
        return refuse(fmt::format("is {}, which is compared; give another name", file.string()));
    }
  }
  return {};
}

std::string comparison_html(const Comparison& comparison, const std::string& a,
                            const std::string& b) {
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{1} / "
      "{2}</title>\n<style>{0}</style>\n</head>\n<body>\n<h1>Two checkpoints compared</h1>\n"
      "<dl><dt>A</dt><dd>{1}</dd><dt>B</dt><dd>{2}</dd></dl>\n",
      kStyle, html_text(a), html_text(b));
  html += counts_html(comparison);
  html += "<h2>Signal to noise by layer and module</h2>\n" + legend_html();
  for (const HeatMap& map : heat_maps(comparison)) {
    html += fmt::format("<h3>{}</h3>\n<div class=\"wide\">{}</div>\n",
                        map.prefix.empty() ? "outside of the layers" : html_text(map.prefix) + ".*",
                        heat_svg(map));
  }
  html += table_html(comparison);
  for (const std::string& warning : comparison.warnings)
    html += fmt::format("<p class=\"note\">Warning: {}</p>\n", html_text(warning));
  return html +
         fmt::format("<p class=\"note\">octavo {}. A is the reference.</p>\n</body>\n</html>\n",
                     OCTAVO_VERSION);
}

Result<void> write_html(const fs::path& path, const std::string& page) {
  std::error_code error;  // a link stays: /dev/stdout is one
  const fs::path target = fs::canonical(path, error);
  return write_text(error ? path : target, page);
}

}  // namespace octavo::app
