#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include <exception>
#include <memory>
#include <new>

#include "command.h"
#include "help_format.h"

namespace octavo::app {
namespace {

// A checkpoint may have more shards than the usual 1024 open files.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// A closed standard stream would lend its number to the next file that is opened: what is written
// there, or read from there, must fail instead.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1) continue;
    ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  std::string command = "octavo";
  std::string message = error.what();
  for (const CLI::App* chosen : app->get_subcommands()) command += " " + chosen->get_name();
  if (app->get_subcommands().empty() && app->remaining_size() > 0)
    message = "no such command or option: " + app->remaining().front();
  return fmt::format("octavo: {} (see {} --help)\n", printable(message), command);
}

int run(int argc, char** argv) {
  int status = kFine;
  CLI::App app("Octavo: FP8 for C++. Quantizes, inspects, verifies, compares and runs models.",
               "octavo");
  app.formatter(std::make_shared<HelpFormat>());
  app.failure_message(usage_error);
  app.set_version_flag("--version", OCTAVO_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Example:\n  octavo quantize Qwen3-0.6B Qwen3-0.6B-FP8 && octavo inspect Qwen3-0.6B-FP8\n\n"
      "`octavo COMMAND --help` explains each command.");
  add_quantize(app, status);
  add_dequantize(app, status);
  add_inspect(app, status);
  add_verify(app, status);
  add_compare(app, status);
  add_generate(app, status);
  add_perplexity(app, status);
  add_tokenize(app, status);
  add_bench(app, status);
  add_info(app, status);
  for (CLI::App* command : app.get_subcommands({})) command->group("Commands");
  if (argc == 1) {
    print_err("{}", app.help());
    return kBadUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kFine : kBadUsage;
  } catch (const std::bad_alloc&) {
    print_err("octavo: out of memory\n");
    return kFailed;
  } catch (const std::exception& error) {
    print_err("octavo: internal error: {}\n", printable(error.what()));
    return kFailed;
  }
  return status;
}

}  // namespace
}  // namespace octavo::app

int main(int argc, char** argv) {
  using namespace octavo::app;
  hold_standard_streams();
  raise_file_limit();
  std::signal(SIGXFSZ, SIG_IGN);  // a file over its size limit is an error with a message
  return finish_output(run(argc, argv));
}
