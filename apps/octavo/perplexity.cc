#include "octavo/runtime/perplexity.h"
#include "interrupt.h"
#include "model_options.h"
#include "octavo/base/steady_seconds.h"
#include "progress.h"
#include "text_input.h"

namespace octavo::app {
namespace {

struct Arguments : ModelArguments {
  std::string file;
  std::optional<std::size_t> context;  // usual: kUsualWindow, or what the model knows
  std::size_t tokens = 0;
  bool json = false;
};

constexpr std::size_t kUsualWindow = 1024;

constexpr const char* kFooter =
    R"(The text is cut into windows of --ctx-size tokens that know nothing of each other; in each, every
token but the first is predicted. The figure is exp of the mean negative log-likelihood, the same to
the last bit for any --threads and any processor. Compare figures of the same text and --ctx-size only.

Examples:
  octavo perplexity SmolLM2-135M --file speeches.txt
  octavo perplexity SmolLM2-135M --file speeches.txt --quantize ue8m0 --kv-cache-dtype fp8
  octavo perplexity SmolLM2-135M-FP8 --file speeches.txt --tokens 20000 --json)";

Result<void> run(const Arguments& arguments) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
  OCTAVO_TRY(const TextInput input, read_utf8_input(arguments.file, kMaxBytes));
  OCTAVO_TRY(const std::unique_ptr<RunningModel> running, open_model(arguments));
  const models::ModelConfig& config = running->loaded.model.config;
  const std::size_t context =
      arguments.context.value_or(std::min(kUsualWindow, config.max_position_embeddings));
  if (context > config.max_position_embeddings) {
    return fail(ErrorCode::bad_value,
                fmt::format("--ctx-size {}: the model knows positions up to {}", context,
                            config.max_position_embeddings));
  }
  print_model_line(*running, arguments);
  OCTAVO_TRY(std::vector<text::TokenId> ids,
             running->tokenizer->encode(input.text,
                                        {.add_special_tokens = false, .parse_special = false}));
  if (arguments.tokens != 0) ids.resize(std::min(ids.size(), arguments.tokens));
  const std::vector<std::int32_t> tokens(ids.begin(), ids.end());
  OCTAVO_TRY([[maybe_unused]] const std::uint64_t bytes,
             check_kv_cache(*running, std::min(context, tokens.size() + 1), 1));
  // What the tokenizer puts before a text (not what it puts behind) goes before every window.
  OCTAVO_TRY(const std::vector<text::TokenId> around, running->tokenizer->encode(""));
  OCTAVO_TRY(const std::vector<text::TokenId> one, running->tokenizer->encode("a"));
  const bool has_first = !around.empty() && !one.empty() && around.front() == one.front();
  runtime::PerplexityOptions options;
  options.context = context;
  if (has_first) options.first_token = static_cast<std::int32_t>(around.front());
  options.interrupt = &catch_interrupts();
  Progress progress("perplexity", arguments.quiet, "tokens");
  options.on_progress = [&](std::size_t done, std::size_t total) { progress.update(done, total); };
  const double start = steady_seconds();
  const auto result = runtime::perplexity(*running->engine, tokens, options);
  progress.finish();
  if (!result) return std::unexpected(result.error());
  const double seconds = steady_seconds() - start;
  if (arguments.json) {
    print_json({{"perplexity", result->perplexity},
                {"tokens", result->predicted},
                {"seconds", seconds},
                {"negative_log_likelihood", result->negative_log_likelihood},
                {"ctx_size", context}});
    return {};
  }
  print_out("perplexity {:.4f} over {} tokens in windows of {}\n", result->perplexity,
            result->predicted, context);
  if (!arguments.quiet)
    print_err("time:  {}, {:.1f} tokens per second\n", human_seconds(seconds),
              static_cast<double>(tokens.size()) / seconds);
  return {};
}

}  // namespace

void add_perplexity(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("perplexity", "How well a model predicts a text: the quality number");
  command->footer(kFooter);
  add_model_options(*command, *arguments);
  command->add_option("--file,-f", arguments->file, "The text, UTF-8; -: standard input")
      ->option_text("FILE")
      ->check(kNotEmpty)
      ->required();
  command
      ->add_option("--ctx-size,-c", arguments->context,
                   "Tokens of a window (usual: 1024, or what the model knows)")
      ->option_text("N")
      ->check(CLI::Range(std::size_t{2}, std::size_t{1} << 24));
  command->add_option("--tokens", arguments->tokens, "Only the first N of the text; 0: all")
      ->option_text("N")
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 40));
  command->add_flag("--json", arguments->json, "One JSON object on stdout");
  command->callback([arguments, &status] {
    const auto done = run(*arguments);
    status = done ? kFine : status_of_error(done.error());
  });
}

}  // namespace octavo::app
