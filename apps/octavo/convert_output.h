// What quantize and dequantize print: the plan, the summary, --json.
#pragma once

#include "convert_command.h"

namespace octavo::app {

void print_plan(const Checkpoint& checkpoint, const ConversionPlan& plan, bool json);
void print_report(const ConversionReport& report, const ConvertArguments& arguments);

}  // namespace octavo::app
