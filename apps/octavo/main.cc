#include <fmt/format.h>
#include <sys/resource.h>

#include <exception>

#include "command.h"

namespace {

// A checkpoint may have more shards than the usual 1024 open files.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace octavo::app;
  raise_file_limit();
  int status = kFine;
  CLI::App app(
      "Octavo: FP8 for C++. Quantizes, dequantizes and inspects model checkpoints on any machine.",
      "octavo");
  app.set_version_flag("--version", OCTAVO_VERSION);
  app.require_subcommand(1);
  app.footer(
      "\nExample:\n  octavo quantize Qwen3-0.6B Qwen3-0.6B-FP8 && octavo inspect Qwen3-0.6B-FP8\n\n"
      "`octavo COMMAND --help` explains each command.");
  add_quantize(app, status);
  add_dequantize(app, status);
  add_inspect(app, status);
  add_info(app, status);
  if (argc == 1) {
    fmt::print(stderr, "{}", app.help());
    return kBadUsage;
  }
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
