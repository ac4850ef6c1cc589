// What quantize and dequantize print: the plan, the summary, --json.
#pragma once

#include <string>

#include "octavo/checkpoint/conversion.h"

namespace octavo::app {

// Options that both commands have.
struct ConvertArguments {
  std::string source;
  std::string destination;
  int threads = 0;
  std::string max_shard_size;
  bool overwrite = false;
  bool plan_only = false;
  bool json = false;
  bool quiet = false;
  std::string block_size;
  bool missing_scale_as_one = false;
  bool u8_as_e4m3 = false;
  bool allow_non_finite = false;
};

Result<ConversionOptions> run_options(const ConvertArguments& arguments);

void print_plan(const Checkpoint& checkpoint, const ConversionPlan& plan, bool json);
void print_report(const ConversionReport& report, const ConvertArguments& arguments);

}  // namespace octavo::app
