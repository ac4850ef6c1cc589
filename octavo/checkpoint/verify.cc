#include "octavo/checkpoint/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "octavo/checkpoint/config_check.h"
#include "octavo/checkpoint/config_counts.h"
#include "octavo/checkpoint/skip_list_check.h"
#include "octavo/checkpoint/verify_internal.h"

namespace octavo {
namespace {

// The other half of a pair may be in a file that cannot be read: that file is the defect. Pairs are
// "module.weight" and "module.*scale*", or "parameter" and "parameter_*scale*".
bool may_be_lost(const Survey& survey, std::string_view tensor) {
  const auto lost = [&](std::string_view base, std::string_view ending) {
    return survey.lost.contains(fmt::format("{}{}", base, ending));
  };
  const std::string_view module = tensor.substr(0, tensor.rfind('.') + 1);
  for (const char* name : {"weight", "weight_scale_inv", "weight_scale", "scale"}) {
    if (lost(module, name)) return true;
  }
  for (const std::string_view ending : {"_scale_inv", "_scales_inv"}) {
    if (lost(tensor, ending)) return true;
    if (tensor.ends_with(ending) && lost(tensor.substr(0, tensor.size() - ending.size()), ""))
      return true;
  }
  return false;
}

bool is_known(const Survey& survey, const Defect& problem) {
  return std::ranges::any_of(survey.defects, [&](const Defect& defect) {
    return defect.code == problem.code && defect.file == problem.file;
  });
}

void take_problems(const Survey& survey, const Pairing& pairing, VerifyReport& report) {
  for (const Defect& problem : pairing.problems) {
    const bool half =
        problem.code == DefectCode::missing_scale || problem.code == DefectCode::unused_scale;
    if (half && may_be_lost(survey, problem.tensor)) continue;
    // Scales under two names could not be compared: of a file that was cut this is known.
    if (problem.code == DefectCode::truncated && is_known(survey, problem)) continue;
    report.unpaired += half ? 1 : 0;
    report.defects.push_back(problem);
  }
}

DefectCode code_of(const ConfigFact& fact) {
  if (!fact.contradicts) return DefectCode::config_note;
  switch (fact.kind) {
    case ConfigFact::Kind::claims_quantized:
      return DefectCode::config_claims_quantized;
    case ConfigFact::Kind::lacks_quantization:
      return DefectCode::config_lacks_quantization;
    default:
      return DefectCode::config_quantization;
  }
}

// What the config says of quantization. Nothing is concluded from tensors that are lost, or from a
// config that is not there.
void check_quantization(const Survey& survey, const Pairing& pairing, VerifyReport& report) {
  using enum DefectCode;
  const Checkpoint& checkpoint = survey.checkpoint;
  const QuantConfig& config = checkpoint.quantization;
  const std::string file =
      (checkpoint.directory / (config.file.empty() ? "config.json" : config.file)).string();
  const auto add = [&](Defects& to, DefectCode code, std::string_view message) {
    to.push_back(make_defect(code, file, "", {}, message));
  };
  if (std::optional<Defect> defect = foreign_codes(checkpoint, pairing)) {
    report.defects.push_back(*std::move(defect));
    return;
  }
  if (survey.config_refused) return;
  for (const ConfigFact& fact : check_config(checkpoint, pairing)) {
    const DefectCode code = code_of(fact);
    if (code == config_claims_quantized && !survey.complete) continue;
    if (code == config_lacks_quantization && checkpoint.config_text.empty()) continue;
    add(fact.contradicts ? report.defects : report.notes, code, fact.message);
  }
  if (!survey.complete || !config.present) return;
  const Result<SkipListCheck> list = check_skip_list(checkpoint, pairing);
  if (!list) {
    add(report.defects, skip_entry_syntax, list.error().message);
    return;
  }
  for (const SkipEntry& entry : list->entries) {
    if (entry.tensors > 0) continue;
    add(report.notes, skip_entry_unused,
        fmt::format("{}: {} names \"{}\", which is no module{}", file, config.skip_key, entry.entry,
                    entry.nearest.empty() ? "" : "; nearest: " + entry.nearest));
  }
  const auto note = [&](DefectCode code, const std::optional<std::string>& line) {
    if (line) add(report.notes, code, fmt::format("{}: {}", file, *line));
  };
  note(skip_entry_quantized, quantized_line(checkpoint, *list));
  note(skip_list_incomplete, unlisted_line(checkpoint, *list));
}

}  // namespace

std::string file_of(const Checkpoint& checkpoint, const CheckpointTensor& tensor) {
  return (checkpoint.directory / checkpoint.shards[tensor.shard].file_name).string();
}

Defect read_defect(const Checkpoint& checkpoint, const CheckpointTensor& tensor,
                   const Error& error) {
  const std::string file = file_of(checkpoint, tensor);
  const bool shrank = error.code == ErrorCode::bad_file;
  return make_defect(shrank ? DefectCode::truncated : DefectCode::unreadable, file,
                     tensor.info.name, tensor.info.offset,
                     fmt::format("{}, in {}{}", error.message, tensor.info.name,
                                 shrank ? "; the file shrank while it was read" : ""));
}

std::uint64_t bytes_there(const Checkpoint& checkpoint, const CheckpointTensor& tensor) {
  const std::uint64_t size = checkpoint.shards[tensor.shard].file.size();
  return tensor.info.offset >= size ? 0 : std::min(tensor.info.bytes, size - tensor.info.offset);
}

Result<VerifyReport> verify_checkpoint(const std::filesystem::path& path,
                                       const VerifyOptions& options) {
  const ReadTotals before = read_totals();
  OCTAVO_TRY(const Survey survey, survey_checkpoint(path, options.open));
  const Checkpoint& checkpoint = survey.checkpoint;
  VerifyReport report;
  report.defects = survey.defects;
  report.notes = survey.notes;
  report.files = checkpoint.shards.size();
  report.tensors = checkpoint.tensors.size();
  report.tensor_bytes = checkpoint.tensor_bytes;
  const auto finish = [&] {
    const ReadTotals after = read_totals();
    report.read = {after.calls - before.calls, after.bytes - before.bytes};
    return std::move(report);
  };
  if (!survey.weights_chosen) return finish();
  const Pairing pairing = pair_scales(checkpoint, options.pairing);
  report.fp8_weights = count_quantized(pairing);
  report.scales = count_scales(pairing);
  take_problems(survey, pairing, report);
  check_quantization(survey, pairing, report);
  check_config_counts(survey, report.defects);
  verify_scales(checkpoint, pairing, options.threads, report);
  if (options.full) verify_elements(checkpoint, pairing, options, report);
  return finish();
}

}  // namespace octavo
