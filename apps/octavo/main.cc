#include <fmt/format.h>

#include <exception>

#include "command.h"

int main(int argc, char** argv) {
  using namespace octavo::app;
  int status = kFine;
  CLI::App app("Octavo: FP8 for C++. Quantizes, dequantizes and inspects model checkpoints on any machine.", "octavo");
  app.set_version_flag("--version", OCTAVO_VERSION);
  app.require_subcommand(1);
  app.footer("\nExample:\n  octavo quantize Qwen3-0.6B Qwen3-0.6B-FP8 && octavo inspect Qwen3-0.6B-FP8\n\n"
             "`octavo COMMAND --help` explains each command.");
  add_quantize(app, status);
  add_dequantize(app, status);
  add_inspect(app, status);
  add_info(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kFine : kBadUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "octavo: internal error: {}\n", error.what());
    return kFailed;
  }
  return status;
}
