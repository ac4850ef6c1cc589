#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "command.h"
#include "explain.h"
#include "info_plan.h"
#include "octavo/base/machine.h"
#include "octavo/kernels/select.h"

namespace octavo::app {
namespace {

std::string feature_words(const CpuFeatures& f) {
  std::string words;
  const auto add = [&](bool has, std::string_view name) {
    if (has) words += fmt::format("{}{}", words.empty() ? "" : " ", name);
  };
  add(f.avx2, "avx2");
  add(f.fma, "fma");
  add(f.f16c, "f16c");
  add(f.avx512f, "avx512f");
  add(f.avx512bw, "avx512bw");
  add(f.avx512vl, "avx512vl");
  add(f.avx512dq, "avx512dq");
  add(f.avx512vbmi, "avx512vbmi");
  add(f.avx512bf16, "avx512bf16");
  return words.empty() ? "none of those that kernels use" : words;
}

std::string kernel_reason(Isa chosen) {
  const char* forced = std::getenv("OCTAVO_CPU");
  if (forced != nullptr && *forced != '\0') return fmt::format("forced by OCTAVO_CPU={}", forced);
  if (chosen == best_isa(cpu_features())) return "the best that this processor has";
  return "the best that was built and that this processor has";
}

struct Arguments {
  std::string model;
  PlanQuestion plan;
  bool json = false;
};

// As `generate --explain` with its usual numerics.
Result<void> explain_model(const Arguments& arguments) {
  ModelArguments model;
  model.model = arguments.model;
  model.threads = arguments.plan.threads;
  OCTAVO_TRY(const std::unique_ptr<RunningModel> running, open_model(model));
  print_model_line(*running, model);
  print_explanation(*running, arguments.json);
  return {};
}

Result<void> print_machine(bool as_json) {
  OCTAVO_TRY(const Isa isa, kernels::selected_isa());
  const CpuFeatures& features = cpu_features();
  const ThreadLimit limit = allowed_threads();
  utsname system{};
  ::uname(&system);
  const auto memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::string built;
  for (int i = 0; i < kIsaCount; ++i) {
    if (kernels::is_built(static_cast<Isa>(i)))
      built += fmt::format("{}{}", built.empty() ? "" : " ", isa_name(static_cast<Isa>(i)));
  }
  const std::string build = build_words();
  if (as_json) {
    print_json({{"version", OCTAVO_VERSION},
                {"build", build},
                {"system", fmt::format("{} {}", system.sysname, system.release)},
                {"processor", features.model},
                {"features", feature_words(features)},
                {"memory_bytes", memory},
                {"threads", limit.threads},
                {"threads_why", limit.why},
                {"kernels", isa_name(isa)},
                {"kernels_why", kernel_reason(isa)},
                {"kernels_built", built}});
    return {};
  }
  print_out("octavo     {}\n", OCTAVO_VERSION);
  print_out("build      {}\n", build);
  print_out("system     {} {} {}\n", system.sysname, system.release, system.machine);
  print_out("processor  {}\n", features.model);
  print_out("features   {}\n", feature_words(features));
  print_out("memory     {}\n", human_bytes(memory));
  print_out("threads    {} ({})\n", limit.threads, limit.why);
  print_out("kernels    {} ({}; built: {})\n", isa_name(isa), kernel_reason(isa), built);
  return {};
}

Result<void> run(const Arguments& arguments) {
  if (!arguments.model.empty()) return explain_model(arguments);
  return arguments.plan.op.empty() ? print_machine(arguments.json)
                                   : print_plan(arguments.plan, arguments.json);
}

}  // namespace

void add_info(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  PlanQuestion& plan = arguments->plan;
  CLI::App* command =
      app.add_subcommand("info", "Machine, kernels, build: what to paste into a bug report");
  command->footer(
      "With MODEL: which kernel each of its layers gets, and why no faster one, as `octavo "
      "generate "
      "MODEL\n--explain` prints it, which also takes options of loading and numerics.\n\n"
      "OCTAVO_CPU=generic|avx2|avx512bf16 forces a level of kernels.\n\n"
      "Examples:\n  octavo info\n  octavo info Qwen3-0.6B-FP8\n"
      "  octavo info --op gemm --m 512 --n 4096 --k 4096 --activations f32");
  CLI::Option* model =
      command->add_option("MODEL", arguments->model, "A model directory: print its layers instead")
          ->check(kNotEmpty);
  command->add_flag("--json", arguments->json, "Print as JSON");
  CLI::Option* op =
      command->add_option("--op", plan.op, "Print the plan for a product instead: gemm or gemv")
          ->check(CLI::IsMember({"gemm", "gemv"}))
          ->type_name("OP")
          ->excludes(model);
  const auto size = [&](const char* name, std::uint64_t& value, const char* what) {
    command->add_option(name, value, what)
        ->check(kProductSize)
        ->needs(op)
        ->type_name("N")
        ->capture_default_str();
  };
  size("--m", plan.m, "Rows of activations");
  size("--n", plan.n, "Columns: rows of the weight");
  size("--k", plan.k, "Length of the sums");
  command->add_option("--weights", plan.weights, "Format of the weight")
      ->needs(op)
      ->type_name("FORMAT")
      ->capture_default_str();
  command->add_option("--activations", plan.activations, "Format of the activations")
      ->needs(op)
      ->type_name("FORMAT")
      ->capture_default_str();
  command->add_option("--threads", plan.threads, "Of --op and MODEL (0: all allowed)")
      ->check(kNotEmpty)
      ->type_name("N");
  command->callback([arguments, &status] {
    const Result<void> result = run(*arguments);
    status = result ? kFine : report_error(result.error());
  });
}

}  // namespace octavo::app
