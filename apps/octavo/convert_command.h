// What quantize and dequantize share: options and the way they run.
#pragma once

#include <functional>
#include <string>

#include "command.h"
#include "octavo/checkpoint/conversion.h"

namespace octavo::app {

struct ConvertArguments {
  std::string source;
  std::string destination;
  int threads = 0;
  std::string max_shard_size;
  bool overwrite = false;
  bool resume = false;
  bool plan_only = false;
  bool json = false;
  bool quiet = false;
  PairingOptions pairing;
  OpenOptions open;
};

struct Conversion {
  std::function<Result<ConversionPlan>(const Checkpoint&)> plan;
  std::function<Result<ConversionReport>(const Checkpoint&, const ConversionPlan&,
                                         const ConversionOptions&)>
      convert;
};

// Adds SRC, DST and the shared options to `command`, and what it does: `prepare` makes the
// conversion from the parsed arguments; it is planned, run with a progress bar, and reported.
// `arguments` lives as long as `command`.
void add_conversion(CLI::App& command, ConvertArguments& arguments, int& status,
                    std::function<Result<Conversion>()> prepare);

}  // namespace octavo::app
