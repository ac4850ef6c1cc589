#include <algorithm>

#include "octavo/checkpoint/plan_internal.h"
#include "octavo/checkpoint/skip_list_check.h"

namespace octavo {

void leave_out_stale_files(const Checkpoint& checkpoint, ConversionPlan& plan) {
  constexpr std::string_view kName = "hf_quant_config.json";
  if (std::ranges::find(checkpoint.side_files, kName) != checkpoint.side_files.end()) {
    plan.dropped_files.emplace_back(kName);
  }
}

Result<std::vector<std::string>> skip_list_warnings(const Checkpoint& checkpoint,
                                                    const Pairing& pairing) {
  OCTAVO_TRY(const SkipListCheck check, check_skip_list(checkpoint, pairing));
  std::vector<std::string> warnings;
  if (auto unused = unused_entries_line(check)) warnings.push_back(std::move(*unused));
  if (auto quantized = quantized_line(checkpoint, check)) warnings.push_back(std::move(*quantized));
  return warnings;
}

}  // namespace octavo
