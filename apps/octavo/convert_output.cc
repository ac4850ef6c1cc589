#include "convert_output.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace octavo::app {
namespace {

constexpr std::size_t kSkippedShown = 12;

std::string_view action_word(Action action) {
  switch (action) {
    case Action::keep:
      return "keep";
    case Action::quantize:
      return "quantize";
    case Action::dequantize:
      return "dequantize";
    case Action::drop:
      return "drop";
  }
  return "";
}

// "output head 1, norm 3": how many of each reason, most first.
std::string reasons(const std::vector<std::pair<std::string, std::string>>& skipped) {
  std::map<std::string, std::size_t> counts;
  for (const auto& [name, reason] : skipped) ++counts[reason];
  std::vector<std::pair<std::size_t, std::string>> order;
  for (const auto& [reason, count] : counts) order.emplace_back(count, reason);
  std::ranges::sort(order, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::string text;
  for (const auto& [count, reason] : order)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", printable(reason), count);
  return text;
}

OrderedJson report_json(const ConversionReport& report) {
  OrderedJson json;
  json["quantized"] = report.quantized;
  json["dequantized"] = report.dequantized;
  json["kept"] = report.kept;
  json["dropped"] = report.dropped;
  json["skipped"] = OrderedJson::array();
  for (const auto& [name, reason] : report.skipped)
    json["skipped"].push_back({{"name", name}, {"reason", reason}});
  json["shards"] = report.shards;
  json["resumed_shards"] = report.resumed_shards;
  json["bytes_in"] = report.bytes_in;
  json["bytes_out"] = report.bytes_out;
  json["seconds"] = report.seconds;
  json["peak_bytes"] = report.peak_bytes;
  json["threads"] = report.threads;
  json["non_finite"] = report.non_finite;
  json["counts"] = OrderedJson::array();
  for (const TensorCounts& entry : report.counts) {
    json["counts"].push_back({{"name", entry.name},
                              {"overflow", entry.counts.overflow},
                              {"underflow", entry.counts.underflow},
                              {"nan", entry.counts.nan}});
  }
  if (report.error) {
    json["error"] = {{"max_abs", report.error->max_abs}, {"rms", report.error->rms()}};
    // JSON has no infinity: null where nothing was lost.
    if (std::isfinite(report.error->snr_db())) {
      json["error"]["snr_db"] = report.error->snr_db();
    } else {
      json["error"]["snr_db"] = nullptr;
    }
  }
  json["warnings"] = report.warnings;
  return json;
}

std::string error_words(const QuantizationError& error) {
  if (!std::isfinite(error.snr_db())) return "lossless";
  return fmt::format("max {:.3g}, rms {:.3g}, {:.1f} dB SNR", error.max_abs, error.rms(),
                     error.snr_db());
}

void print_counts(const ConversionReport& report) {
  kernels::DequantizeCounts sum{};
  for (const TensorCounts& entry : report.counts) {
    sum.overflow += entry.counts.overflow;
    sum.underflow += entry.counts.underflow;
    sum.nan += entry.counts.nan;
  }
  const auto line = [&](std::uint64_t count, std::string_view what, auto member) {
    if (count == 0) return;
    const auto worst = std::ranges::max_element(
        report.counts, {}, [&](const TensorCounts& t) { return t.counts.*member; });
    print_out("{:<12}{} elements (most in {}: {})\n", what, count, printable(worst->name),
              worst->counts.*member);
  };
  line(sum.overflow, "clamped", &kernels::DequantizeCounts::overflow);
  line(sum.underflow, "to zero", &kernels::DequantizeCounts::underflow);
  line(sum.nan, "NaN codes", &kernels::DequantizeCounts::nan);
}

}  // namespace

void print_plan(const Checkpoint& checkpoint, const ConversionPlan& plan, bool json) {
  if (json) {
    OrderedJson document;
    document["tensors"] = OrderedJson::array();
    for (const PlannedTensor& planned : plan.tensors) {
      const TensorInfo& info = checkpoint.tensors[planned.source].info;
      document["tensors"].push_back({{"name", info.name},
                                     {"dtype", dtype_name(info.dtype)},
                                     {"shape", info.shape},
                                     {"action", action_word(planned.action)},
                                     {"reason", planned.reason},
                                     {"skipped", planned.skipped}});
    }
    document["modules_to_not_convert"] = plan.not_converted;
    document["warnings"] = plan.warnings;
    print_json(document);
    return;
  }
  std::size_t name_width = 6;
  std::size_t shape_width = 5;
  std::size_t action_width = 6;
  for (const PlannedTensor& planned : plan.tensors) {
    const TensorInfo& info = checkpoint.tensors[planned.source].info;
    name_width = std::max(name_width, printable(info.name).size());
    shape_width = std::max(shape_width, to_string(info.shape).size());
    action_width = std::max(action_width, action_word(planned.action).size());
  }
  print_out("{:<{}}  {:<7}  {:<{}}  {:<{}}  why\n", "tensor", name_width, "dtype", "shape",
            shape_width, "action", action_width);
  std::map<Action, std::size_t> counts;
  std::size_t skipped = 0;
  for (const PlannedTensor& planned : plan.tensors) {
    const TensorInfo& info = checkpoint.tensors[planned.source].info;
    ++counts[planned.action];
    skipped += planned.skipped ? 1 : 0;
    print_out("{:<{}}  {:<7}  {:<{}}  {:<{}}  {}\n", printable(info.name), name_width,
              dtype_name(info.dtype), to_string(info.shape), shape_width,
              action_word(planned.action), action_width, printable(planned.reason));
  }
  print_out("\n{} tensors:", plan.tensors.size());
  const char* separator = " ";
  for (const auto& [action, count] : counts) {
    print_out("{}{} {}", separator, action_word(action), count);
    separator = ", ";
  }
  print_out("; matrices left wide: {}. Nothing was written.\n", skipped);
  for (const std::string& warning : plan.warnings) print_warning(warning);
}

void print_report(const ConversionReport& report, const ConvertArguments& arguments) {
  for (const std::string& warning : report.warnings) print_warning(warning);
  if (arguments.json) {
    print_json(report_json(report));
    return;
  }
  if (arguments.quiet) return;
  const auto bytes = [](std::uint64_t count) { return human_bytes(static_cast<double>(count)); };
  if (report.quantized > 0) print_out("{:<12}{} weights\n", "quantized", report.quantized);
  if (report.dequantized > 0) print_out("{:<12}{} weights\n", "dequantized", report.dequantized);
  print_out("{:<12}{} tensors{}\n", "kept", report.kept,
            report.skipped.empty() ? ""
                                   : fmt::format(", {} of them matrices: {}", report.skipped.size(),
                                                 reasons(report.skipped)));
  for (std::size_t i = 0; i < std::min(kSkippedShown, report.skipped.size()); ++i) {
    print_out("{:<12}  {} ({})\n", "", printable(report.skipped[i].first),
              printable(report.skipped[i].second));
  }
  if (report.skipped.size() > kSkippedShown)
    print_out("{:<12}  and {} more (--plan lists all)\n", "",
              report.skipped.size() - kSkippedShown);
  if (report.resumed_shards > 0) {
    print_out("{:<12}{} of {} shards were finished before\n", "resumed", report.resumed_shards,
              report.shards);
  }
  if (report.dropped > 0) print_out("{:<12}{} scales\n", "dropped", report.dropped);
  print_out("{:<12}{} -> {} ({:.1f} %)\n", "size", bytes(report.bytes_in), bytes(report.bytes_out),
            100.0 * static_cast<double>(report.bytes_out) /
                static_cast<double>(std::max<std::uint64_t>(1, report.bytes_in)));
  print_out("{:<12}{} ({}/s read, {} {}{})\n", "time", human_seconds(report.seconds),
            human_bytes(static_cast<double>(report.bytes_in) / std::max(1e-9, report.seconds)),
            report.threads, report.threads == 1 ? "thread" : "threads",
            report.error ? ", error measurement included" : "");
  print_out("{:<12}{}\n", "memory", bytes(report.peak_bytes));
  if (report.error) print_out("{:<12}{}\n", "error", error_words(*report.error));
  if (report.non_finite > 0)
    print_out("{:<12}{} elements, now NaN codes\n", "not finite", report.non_finite);
  print_counts(report);
  print_out("{:<12}{}\n", "written to", printable(arguments.destination));
}

}  // namespace octavo::app
