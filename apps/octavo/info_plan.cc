#include "info_plan.h"

#include "command.h"
#include "octavo/base/machine.h"
#include "octavo/formats/traits.h"
#include "octavo/kernels/select.h"

namespace octavo::app {
namespace {

Result<Format> operand_format(std::string_view option, const std::string& name) {
  for (const Format format : {Format::e4m3fn, Format::e5m2, Format::e4m3fnuz, Format::e5m2fnuz,
                              Format::bf16, Format::f32}) {
    if (name == format_name(format)) return format;
  }
  return fail(ErrorCode::bad_value,
              fmt::format("{}: given {}, expected e4m3fn, e5m2, e4m3fnuz, e5m2fnuz, bf16 or f32",
                          option, name));
}

std::string split_words(const kernels::GemmPlan& plan) {
  if (plan.threads == 1) return "1";
  const bool columns = plan.split == kernels::GemmSplit::columns;
  return fmt::format("{}, {} in multiples of {}", plan.threads, columns ? "columns" : "rows",
                     plan.split_step * (columns ? kernels::kStrip : 1));
}

}  // namespace

Result<void> print_plan(const PlanQuestion& question, bool as_json) {
  OCTAVO_TRY(const Format weights, operand_format("--weights", question.weights));
  OCTAVO_TRY(const Format activations, operand_format("--activations", question.activations));
  OCTAVO_TRY(const int threads, choose_threads(question.threads));
  OCTAVO_TRY(const Isa isa, kernels::selected_isa());
  const kernels::GemmProblem problem{.m = question.m,
                                     .n = question.n,
                                     .k = question.k,
                                     .weight_format = weights,
                                     .activation_format = activations};
  const kernels::GemmMachine machine = kernels::gemm_machine(isa, threads);
  const kernels::GemmPlan plan = kernels::plan_gemm(problem, machine);
  const std::string why = kernels::explain(plan, problem, machine);
  const std::size_t bytes = kernels::packed_weight_bytes(weights, problem.n, problem.k);
  if (as_json) {
    print_json({{"op", question.op},
                {"m", problem.m},
                {"n", problem.n},
                {"k", problem.k},
                {"weights", question.weights},
                {"activations", question.activations},
                {"kernel", kernels::kernel_name(plan)},
                {"threads", plan.threads},
                {"split", plan.split == kernels::GemmSplit::columns ? "columns" : "rows"},
                {"split_step", plan.split_step},
                {"row_chunk", plan.row_chunk},
                {"group", plan.group},
                {"weight_bytes", bytes},
                {"why", why}});
    return {};
  }
  print_out("product    C ({0}, {1}) = A ({0}, {2}) in {3} x W ({1}, {2}) in {4}\n", problem.m,
            problem.n, problem.k, question.activations, question.weights);
  print_out("kernel     {}\n", kernels::kernel_name(plan));
  print_out("threads    {}\n", split_words(plan));
  print_out("pieces     {} rows at a time, {} columns through K together\n", plan.row_chunk,
            plan.group * kernels::kStrip);
  print_out("weights    {} packed\n", human_bytes(bytes));
  print_out("why        {}\n", why);
  return {};
}

}  // namespace octavo::app
