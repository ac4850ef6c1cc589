#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "bench_case.h"
#include "bench_print.h"
#include "bench_roof.h"
#include "bench_run.h"
#include "command.h"
#include "octavo/base/machine.h"
#include "octavo/kernels/select.h"
#include "progress.h"

namespace octavo::app {
namespace {

struct BenchGroup {
  const char* op;
  std::vector<BenchCase> (*cases)(const BenchContext&);
};

constexpr BenchGroup kBenchGroups[] = {
    {"roof", roof_cases},         {"gemv", gemv_cases},         {"gemm", gemm_cases},
    {"training", training_cases}, {"quantize", quantize_cases}, {"dequantize", dequantize_cases},
    {"cast", cast_cases},         {"pack", pack_cases},
};

struct Arguments {
  BenchRequest request;
  bool json = false;
  bool quiet = false;
};

constexpr const char* kFooter =
    R"(Each kernel is checked against the scalar reference first, then measured in turn with the fastest
loop that only reads (roof read), moves the same bytes (stream in:out) or computes (fma, dot).
Value: median. Share: median over pairs of value / roof; its quartiles stand beside it. Pairs during
which the machine does not run all threads at once are dropped. OCTAVO_CPU chooses the kernels.
By default products with each of the weights' formats appear with one row, and some with most; --m
or --formats asks for all of them.

Examples:
  octavo bench
  octavo bench --op gemm --m 1,64,512 --n 4096 --k 14336 --threads 1,2
  octavo bench --op quantize --op dequantize --formats e4m3fn --pairs 9 --json
  OCTAVO_CPU=avx2 octavo bench --op roof --op cast --threads 1)";

std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::size_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %zu kB", &kilobytes) == 1) return kilobytes << 10;
  }
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 2;
}

// 256 MiB, and twice the last-level cache up to 1 GiB: more than caches hold.
std::size_t wanted_bytes(const BenchRequest& request) {
  if (request.quick) return std::size_t{1} << 20;
  const long cache = std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE));
  return std::clamp<std::size_t>(2 * static_cast<std::size_t>(cache), 256 << 20, 1 << 30) /
         kernels::kReadStep * kernels::kReadStep;
}

Result<BenchContext> make_context(BenchRequest request) {
  BenchContext context{};
  OCTAVO_TRY(context.isa, kernels::selected_isa());
  if (request.threads.empty()) request.threads = {1, 0};
  for (int& threads : request.threads) {
    OCTAVO_TRY(threads, choose_threads(threads));
  }
  std::vector<int> once;
  for (const int threads : request.threads) {
    if (std::find(once.begin(), once.end(), threads) == once.end()) once.push_back(threads);
  }
  request.threads = once;
  context.request = std::move(request);
  context.most_bytes = available_bytes() / 2;
  const std::size_t wanted = wanted_bytes(context.request);
  context.memory_bytes =
      std::min(wanted, context.most_bytes / 4 / kernels::kReadStep * kernels::kReadStep);
  if (context.memory_bytes < wanted)
    print_warning(
        fmt::format("streaming operations go through {} instead of {}, for lack of "
                    "memory: caches may help them",
                    human_bytes(context.memory_bytes), human_bytes(wanted)));
  return context;
}

}  // namespace

Result<void> check_memory(const BenchContext& context, std::size_t bytes) {
  if (bytes <= context.most_bytes) return {};
  return fail(
      ErrorCode::bad_value,
      fmt::format("--m, --n, --k: so large a row needs {} of memory, and {} is half of what "
                  "is available; give smaller ones",
                  human_bytes(bytes), human_bytes(context.most_bytes)));
}

namespace {

std::vector<BenchCase> list_cases(const BenchContext& context) {
  const BenchRequest& request = context.request;
  std::vector<BenchCase> cases;
  for (const BenchGroup& group : kBenchGroups) {
    if (!request.ops.empty() &&
        std::find(request.ops.begin(), request.ops.end(), group.op) == request.ops.end())
      continue;
    for (BenchCase& row : group.cases(context)) {
      const auto contained = [&](const std::string& word) {
        return row.formats.find(word) != std::string::npos;
      };
      if (request.formats.empty() ||
          std::any_of(request.formats.begin(), request.formats.end(), contained))
        cases.push_back(std::move(row));
    }
  }
  return cases;
}

// One warning for all rows: on a busy machine it concerns most of those with several threads.
void warn_of_dropped(std::span<const BenchRow> rows, int pairs) {
  int dropped = 0, tried = 0;
  std::uint64_t few = 0, none = 0;
  for (const BenchRow& row : rows) {
    if (!row.wrong.empty()) continue;
    dropped += row.figures.dropped;
    if (row.row.threads > 1) tried += row.figures.dropped + row.figures.valid;
    none += row.figures.valid == 0 ? 1 : 0;
    few += row.figures.valid > 0 && row.figures.valid < pairs ? 1 : 0;
  }
  if (dropped == 0) return;
  std::string left;
  if (few > 0) left += fmt::format("; {} of fewer than {} pairs (*)", counted(few, "row"), pairs);
  if (none > 0) left += fmt::format("; {} not measured", counted(none, "row"));
  if (!left.empty()) left += "; run it again when the machine is idle";
  print_warning(
      fmt::format("{} of {} pairs with several threads were dropped: the machine did not run the "
                  "threads at once{}",
                  dropped, tried, left));
}

Result<int> run(const Arguments& arguments) {
  OCTAVO_TRY(BenchContext context, make_context(arguments.request));
  const std::vector<BenchCase> cases = list_cases(context);
  if (cases.empty()) return fail(ErrorCode::bad_value, "--formats: no row has any of these");
  std::vector<BenchRow> rows;
  {
    Progress progress("bench", arguments.quiet, "rows");
    const RunRules rules{.scales = threads_scale,
                         .progress = [&](std::size_t done) { progress.update(done, cases.size()); },
                         .warn = print_warning};
    OCTAVO_TRY(rows, measure_rows(cases, context, rules));
  }
  bool is_right = true;
  for (const BenchRow& row : rows) {
    if (row.wrong.empty()) continue;
    print_err("octavo: {}\n", row.wrong);
    is_right = false;
  }
  warn_of_dropped(rows, context.request.pairs);
  if (arguments.json) {
    print_json(bench_json(context, rows));
  } else {
    print_bench_table(context, rows);
  }
  return is_right ? kFine : kFailed;
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  BenchRequest& request = arguments->request;
  CLI::App* command =
      app.add_subcommand("bench", "Speed of the kernels, as a share of what this machine allows");
  command->footer(kFooter);
  std::vector<std::string> ops;
  for (const BenchGroup& group : kBenchGroups) ops.emplace_back(group.op);
  command
      ->add_option("--op", request.ops,
                   fmt::format("What to measure: {} (default: all)", fmt::join(ops, ", ")))
      ->option_text("OP")
      ->delimiter(',')
      ->check(CLI::IsMember(ops));
  command->add_option("--m", request.m, "Rows of activations, of gemv, gemm and training")
      ->option_text("M,..")
      ->delimiter(',')
      ->check(kProductSize);
  command->add_option("--n", request.n, "Rows of the weight")
      ->option_text("N")
      ->check(kProductSize);
  command->add_option("--k", request.k, "Columns of the weight")
      ->option_text("K")
      ->check(kProductSize);
  command
      ->add_option("--formats", request.formats,
                   "Only rows whose formats contain one of these, e.g. e4m3fn")
      ->option_text("F,..")
      ->delimiter(',');
  command
      ->add_option("--threads", request.threads,
                   "Numbers of threads; 0: all that affinity and cgroup allow (default: 1,0)")
      ->option_text("T,..")
      ->delimiter(',');
  command->add_option("--pairs", request.pairs, "Of kernel and roof, at least 5")
      ->option_text("P")
      ->check(CLI::Range(5, 1000))
      ->capture_default_str();
  command->add_flag("--quick", request.quick,
                    "Small shapes that caches hold: shows that all works, no figures to quote");
  command->add_flag("--json", arguments->json, "Print as JSON");
  command->add_flag("-q,--quiet", arguments->quiet, "No progress");
  command->callback([arguments, &status] {
    const Result<int> result = run(*arguments);
    status = result ? *result : report_error(result.error());
  });
}

}  // namespace octavo::app
