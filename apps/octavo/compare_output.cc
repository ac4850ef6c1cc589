#include "compare_output.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "command.h"
#include "octavo/quant/scale_layout.h"

namespace octavo::app {
namespace {

struct Row {
  std::string verdict;
  std::string snr;
  std::string max_abs;
  std::string rms;
  std::string cosine;
  std::string differing;  // share of the elements
  std::string formats;
  std::string name;
};

std::string format_pair(const TensorComparison& tensor) {
  const std::string a = format_words(tensor.a);
  const std::string b = format_words(tensor.b);
  return a == b ? a : fmt::format("{} / {}", a, b);
}

Row row_of(const TensorComparison& tensor) {
  Row row{std::string(verdict_name(tensor.verdict)),
          "",
          "",
          "",
          "",
          "",
          format_pair(tensor),
          printable(tensor.name)};
  if (!tensor.a || !tensor.b) {
    row.name += tensor.a ? "  (not in B)" : "  (not in A)";
  } else if (!tensor.difference) {
    row.name += fmt::format("  ({} / {})", to_string(tensor.a->shape), to_string(tensor.b->shape));
  } else if (tensor.verdict < Verdict::equal_values) {
    const Difference& d = *tensor.difference;
    row.snr = decibels(d.snr_db);
    row.max_abs = number_words(d.max_abs);
    row.rms = number_words(d.rms);
    row.cosine = fmt::format("{:.6f}", d.cosine);
    row.differing = fmt::format(
        "{:.3g} %", 100 * static_cast<double>(d.differing) / static_cast<double>(d.elements));
    if (d.non_finite > 0)
      row.name += fmt::format("  ({} NaN or infinite on one side)", d.non_finite);
  }
  return row;
}

// Names that differ in numbers alone become one: "model.layers.*.input_layernorm.weight".
std::string without_numbers(std::string_view name) {
  std::string result;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    const std::string_view segment = name.substr(at, dot - at);
    const bool number = !segment.empty() &&
                        std::ranges::all_of(segment, [](char c) { return c >= '0' && c <= '9'; });
    result += number ? "*" : segment;
    if (dot < name.size()) result += '.';
    at = dot + 1;
  }
  return result;
}

// Equal tensors, by verdict, name without numbers, and formats.
void add_equal_rows(const Comparison& comparison, std::vector<Row>& rows) {
  struct Group {
    std::size_t count = 0;
    Row row;
  };
  std::vector<Group> groups;
  std::map<std::string, std::size_t> by_key;
  for (const TensorComparison& tensor : comparison.tensors) {
    if (tensor.verdict < Verdict::equal_values) continue;
    Row row = row_of(tensor);
    const std::string pattern = without_numbers(row.name);
    const auto [found, added] =
        by_key.emplace(row.verdict + "\n" + pattern + "\n" + row.formats, groups.size());
    if (added) groups.push_back({0, std::move(row)});
    Group& group = groups[found->second];
    if (++group.count == 2) group.row.name = pattern;
  }
  for (Group& group : groups) {
    if (group.count > 1) group.row.name += fmt::format("  ({} tensors)", group.count);
    rows.push_back(std::move(group.row));
  }
}

void print_rows(const std::vector<Row>& rows) {
  static const Row kHead{"verdict", "SNR dB", "max abs", "RMS",
                         "cosine",  "differ", "A / B",   "tensor"};
  std::size_t widths[7] = {};
  const auto cells = [](const Row& row) {
    return std::array<const std::string*, 7>{&row.verdict, &row.snr,       &row.max_abs, &row.rms,
                                             &row.cosine,  &row.differing, &row.formats};
  };
  const auto measure = [&](const Row& row) {
    for (std::size_t i = 0; i < 7; ++i) widths[i] = std::max(widths[i], cells(row)[i]->size());
  };
  const auto print = [&](const Row& row) {
    print_out("{:<{}}  {:>{}}  {:>{}}  {:>{}}  {:>{}}  {:>{}}  {:<{}}  {}\n", row.verdict,
              widths[0], row.snr, widths[1], row.max_abs, widths[2], row.rms, widths[3], row.cosine,
              widths[4], row.differing, widths[5], row.formats, widths[6], row.name);
  };
  measure(kHead);
  for (const Row& row : rows) measure(row);
  print(kHead);
  for (const Row& row : rows) print(row);
}

void print_summary(const Comparison& comparison) {
  std::string counts;
  for (std::size_t i = kVerdictCount; i-- > 0;) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", comparison.counts[i],
                          verdict_name(static_cast<Verdict>(i)));
  }
  print_out("\n{} tensors: {}\n", comparison.tensors.size(), counts);
  const Difference& d = comparison.differing;
  if (d.elements == 0) return;
  print_out("of those that differ, {:.4g} elements: SNR {} dB, max abs {}, RMS {}, cosine {:.6f}\n",
            static_cast<double>(d.elements), decibels(d.snr_db), number_words(d.max_abs),
            number_words(d.rms), d.cosine);
}

// JSON has no word for these.
OrderedJson number_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

OrderedJson stored_json(const std::optional<StoredTensor>& tensor) {
  if (!tensor) return nullptr;
  OrderedJson json = {
      {"dtype", dtype_name(tensor->dtype)}, {"shape", tensor->shape}, {"scale", nullptr}};
  if (tensor->scale_dtype) {
    json["scale"] = {{"dtype", dtype_name(*tensor->scale_dtype)},
                     {"block", {tensor->block.rows, tensor->block.cols}}};
  }
  return json;
}

void add_difference(const std::optional<Difference>& difference, OrderedJson& json) {
  for (const char* key :
       {"max_abs", "rms", "snr_db", "cosine", "elements", "differing", "non_finite"}) {
    json[key] = nullptr;
  }
  if (!difference) return;
  json["max_abs"] = difference->max_abs;
  json["rms"] = difference->rms;
  if (std::isfinite(difference->snr_db)) json["snr_db"] = difference->snr_db;
  json["cosine"] = difference->cosine;
  json["elements"] = difference->elements;
  json["differing"] = difference->differing;
  json["non_finite"] = difference->non_finite;
}

}  // namespace

std::string format_words(const std::optional<StoredTensor>& tensor) {
  if (!tensor) return "-";
  std::string words(dtype_name(tensor->dtype));
  if (tensor->scale_dtype) words += " " + to_string(tensor->block);
  return words;
}

std::string decibels(double snr_db) {
  return std::isfinite(snr_db) ? fmt::format("{:.2f}", snr_db) : snr_db > 0 ? "inf" : "-inf";
}

std::string number_words(double value) { return fmt::format("{:.4g}", value); }

std::string worst_words(const WorstElement& worst) {
  return fmt::format("{}: {} / {}", to_string(worst.index), number_words(worst.a),
                     number_words(worst.b));
}

void print_comparison(const Comparison& comparison, std::size_t lines) {
  std::vector<Row> rows;
  std::size_t left_out = 0;
  for (const TensorComparison& tensor : comparison.tensors) {
    if (lines != 0 && tensor.verdict >= Verdict::equal_values) continue;
    if (lines != 0 && rows.size() == lines) {
      ++left_out;
    } else {
      rows.push_back(row_of(tensor));
    }
  }
  if (lines != 0 && left_out > 0) {
    rows.push_back({"...", "", "", "", "", "", "",
                    fmt::format("{} more that differ; --all lists each", left_out)});
  }
  if (lines != 0) add_equal_rows(comparison, rows);
  print_rows(rows);
  print_summary(comparison);
}

OrderedJson comparison_json(const Comparison& comparison, const std::string& a,
                            const std::string& b, std::uint64_t differences) {
  const auto count = [&](Verdict verdict) {
    return comparison.counts[static_cast<std::size_t>(verdict)];
  };
  OrderedJson json;
  json["equal"] =
      count(Verdict::equal_bits) + count(Verdict::equal_values) == comparison.tensors.size();
  json["a"] = a;
  json["b"] = b;
  json["tensors"] = OrderedJson::array();
  for (const TensorComparison& tensor : comparison.tensors) {
    OrderedJson entry = {{"name", tensor.name}, {"verdict", verdict_name(tensor.verdict)}};
    add_difference(tensor.difference, entry);
    entry["worst"] = nullptr;
    if (tensor.worst) {
      entry["worst"] = {{"index", tensor.worst->index},
                        {"a", number_json(tensor.worst->a)},
                        {"b", number_json(tensor.worst->b)}};
    }
    entry["a"] = stored_json(tensor.a);
    entry["b"] = stored_json(tensor.b);
    json["tensors"].push_back(std::move(entry));
  }
  OrderedJson& summary = json["summary"];
  summary["tensors"] = comparison.tensors.size();
  summary["elements"] = comparison.elements;
  for (std::size_t i = kVerdictCount; i-- > 0;) {
    summary[std::string(verdict_name(static_cast<Verdict>(i)))] = comparison.counts[i];
  }
  summary["differences"] = differences;
  add_difference(comparison.differing, summary["differing"]);
  summary["warnings"] = comparison.warnings;
  return json;
}

}  // namespace octavo::app
