#include <unistd.h>

#include <cstdio>
#include <utility>

#include "chat.h"
#include "explain.h"
#include "interrupt.h"
#include "model_options.h"
#include "octavo/base/machine.h"
#include "octavo/runtime/generate.h"
#include "octavo/text/utf8.h"
#include "rates.h"
#include "text_input.h"

namespace octavo::app {
namespace {

// Tokens of a sequence where nothing is asked for: the config's maximum would take gigabytes.
constexpr std::size_t kUsualContext = 4096;

struct Arguments : ModelArguments {
  std::vector<std::string> prompts;
  std::string file;
  std::optional<std::string> system;
  std::string save;
  bool chat = false;
  bool explain = false;
  bool json = false;
  bool ignore_eos = false;
  bool no_special = false;
  bool parse_special = false;
  std::optional<std::size_t> max_new_tokens;
  std::optional<std::size_t> context;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::size_t> top_k;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
};

constexpr const char* kFooter =
    R"(The text goes to stdout as it comes, all else to stderr. What is not said here comes from the model's
generation_config.json; without one, the most probable token is taken each time.

--chat puts the prompt into the model's chat template. Without -p and --file it is a conversation: a
line of input is a turn, and ends with the input. What messages spell is text, also where it reads
like a special token (<|im_end|>), unless --parse-special is given.

The same bits, and so the same text, for any --threads, --prompt-chunk, batch and processor.

Examples:
  octavo generate SmolLM2-135M-Instruct -p "The capital of France is" -n 20
  octavo generate SmolLM2-135M-Instruct --chat -p "What is an octavo?"
  octavo generate SmolLM2-135M-Instruct --chat
  octavo generate Qwen3-0.6B --quantize ue8m0 -p "Once" --temp 0.8 --top-p 0.95 --seed 7
  octavo generate Qwen3-0.6B-FP8 --explain)";

Result<std::vector<std::string>> read_prompts(const Arguments& arguments) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;
  std::vector<std::string> prompts = arguments.prompts;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (const auto bad = text::invalid_utf8_at(prompts[i])) {
      return fail(ErrorCode::bad_value,
                  fmt::format("prompt {}: not valid UTF-8 at offset {}", i + 1, *bad));
    }
  }
  std::string file = arguments.file;
  if (file.empty() && prompts.empty()) {
    if (arguments.chat) {
      OCTAVO_CHECK(check_standard_input());
      return prompts;
    }
    if (::isatty(STDIN_FILENO)) {
      return fail(ErrorCode::bad_value,
                  "no prompt: -p TEXT, --file FILE, text on standard input, or --chat");
    }
    file = kStandardInput;
  }
  if (!file.empty()) {
    OCTAVO_TRY(TextInput input, read_utf8_input(file, kMaxBytes));
    prompts.push_back(std::move(input.text));
  }
  return prompts;
}

runtime::SamplingOptions sampling_of(const Arguments& arguments,
                                     const runtime::GenerationConfig& config) {
  runtime::SamplingOptions options = runtime::sampling_options(config);
  options.temperature = arguments.temperature.value_or(options.temperature);
  options.top_k = arguments.top_k.value_or(options.top_k);
  options.top_p = arguments.top_p.value_or(options.top_p);
  options.min_p = arguments.min_p.value_or(options.min_p);
  options.repetition_penalty = arguments.repetition_penalty.value_or(options.repetition_penalty);
  options.seed = arguments.seed.value_or(options.seed);
  return options;
}

// Tokens of a sequence: as asked, else what is usual, and never what memory cannot hold. `wanted`:
// of prompt and answer; 0: as many as fit.
Result<std::size_t> choose_context(const Arguments& arguments, const RunningModel& running,
                                   std::size_t wanted, std::size_t sequences) {
  const std::size_t most = running.loaded.model.config.max_position_embeddings;
  if (arguments.context && *arguments.context > most) {
    return fail(
        ErrorCode::bad_value,
        fmt::format("--ctx-size {}: the model knows positions up to {}", *arguments.context, most));
  }
  std::size_t context = arguments.context.value_or(std::min(most, std::max(wanted, kUsualContext)));
  constexpr std::size_t kLeast = 512;
  while (wanted == 0 && !arguments.context && context > kLeast &&
         !check_kv_cache(running, context, sequences))
    context /= 2;
  const std::size_t held = wanted == 0 ? context : std::min(context, wanted);
  OCTAVO_TRY(const std::uint64_t bytes, check_kv_cache(running, held, sequences));
  if (!arguments.quiet) {
    print_err("context: up to {} tokens (the model knows {}), KV cache {} for {}\n", context, most,
              human_bytes(bytes), held);
  }
  return context;
}

const std::vector<std::int32_t>& end_tokens(const RunningModel& running) {
  return running.generation.eos_token_ids.empty() ? running.loaded.model.config.eos_token_ids
                                                  : running.generation.eos_token_ids;
}

void warn_of_configs(const RunningModel& running) {
  for (const std::string& asked : running.generation.not_built)
    print_warning("generation_config.json asks for " + asked + ", which is not built");
  const std::size_t tokens = running.loaded.model.config.vocab_size;
  for (const std::int32_t id : end_tokens(running)) {
    if (static_cast<std::size_t>(id) < tokens) continue;
    print_warning(fmt::format(
        "eos_token_id {} is no token of the vocabulary of {}: nothing ends with it", id, tokens));
  }
}

runtime::GenerateOptions options_of(const Arguments& arguments, const RunningModel& running) {
  runtime::GenerateOptions options;
  options.max_new_tokens = arguments.max_new_tokens.value_or(
      running.generation.max_new_tokens.value_or(arguments.chat ? 1024 : 128));
  options.sampling = sampling_of(arguments, running.generation);
  if (!arguments.ignore_eos) {
    options.eos_token_ids = end_tokens(running);
  }
  options.stop = arguments.stop;
  options.interrupt = &catch_interrupts();
  return options;
}

int status_of(const runtime::GenerateResult& result) {
  const bool interrupted = std::ranges::any_of(result.sequences, [](const auto& sequence) {
    return sequence.finish_reason == runtime::FinishReason::interrupted;
  });
  return interrupted && caught_signal() != 0 ? 128 + caught_signal() : kFine;
}

void print_result_json(const runtime::GenerateResult& result, const Rates& rates) {
  const auto sequence_json = [](const runtime::Generated& sequence) {
    return OrderedJson{{"text", sequence.text},
                       {"tokens", sequence.tokens},
                       {"finish_reason", runtime::to_string(sequence.finish_reason)}};
  };
  OrderedJson json;
  if (result.sequences.size() == 1) {
    json = sequence_json(result.sequences[0]);
  } else {
    json["sequences"] = OrderedJson::array();
    for (const runtime::Generated& sequence : result.sequences)
      json["sequences"].push_back(sequence_json(sequence));
  }
  json["prompt_tokens"] = result.times.prompt_tokens;
  json["generated_tokens"] = result.times.generated_tokens;
  json["prompt_tps"] = rates.prompt_tps;
  json["generate_tps"] = rates.generate_tps;
  json["bandwidth_share"] = rates.bandwidth_share;
  print_json(json);
}

Result<Chat> open_chat(const Arguments& arguments, const RunningModel& running) {
  OCTAVO_TRY(Chat chat, Chat::open(running, arguments.parse_special));
  if (arguments.system) chat.add("system", *arguments.system);
  return chat;
}

// All prompts, side by side; several are shown when they are done.
Result<int> run_prompts(const Arguments& arguments, RunningModel& running,
                        const std::vector<std::string>& prompts) {
  std::vector<std::vector<std::int32_t>> ids;
  std::size_t longest = 0;
  std::optional<Chat> opened;
  if (arguments.chat) {
    OCTAVO_TRY(opened, open_chat(arguments, running));
  }
  for (const std::string& prompt : prompts) {
    if (opened) {
      Chat chat = *opened;
      chat.add("user", prompt);
      OCTAVO_TRY(ids.emplace_back(), chat.prompt());
    } else {
      OCTAVO_TRY(ids.emplace_back(),
                 encode(running, prompt, {.add_special_tokens = !arguments.no_special}));
    }
    longest = std::max(longest, ids.back().size());
  }
  runtime::GenerateOptions options = options_of(arguments, running);
  OCTAVO_TRY(options.context,
             choose_context(arguments, running, longest + options.max_new_tokens, prompts.size()));
  const bool stream = prompts.size() == 1 && !arguments.json;
  if (stream) {
    options.on_text = [](std::size_t, std::string_view piece) {
      write_text(stdout, piece);
      std::fflush(stdout);
    };
  }
  OCTAVO_TRY(const runtime::GenerateResult result,
             runtime::generate(*running.engine, *running.tokenizer, ids, options));
  if (stream) {
    print_out("\n");
  } else if (!arguments.json) {
    for (std::size_t i = 0; i < prompts.size(); ++i)
      print_out("--- {}\n{}\n", i + 1, result.sequences[i].text);
  }
  const bool rated = result.times.steps > 0 && (arguments.json || !arguments.quiet);
  const Rates rates = rates_of(result.times, rated ? read_rate(running) : 0);
  if (arguments.json) print_result_json(result, rates);
  if (!arguments.quiet) print_rates(result.times, rates);
  return status_of(result);
}

// A turn for each line of input.
Result<int> run_conversation(const Arguments& arguments, RunningModel& running) {
  OCTAVO_TRY(Chat chat, open_chat(arguments, running));
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  runtime::GenerateOptions options = options_of(arguments, running);
  OCTAVO_TRY(options.context, choose_context(arguments, running, 0, 1));
  const double roof = arguments.quiet ? 0 : read_rate(running);
  runtime::PromptCache cache;
  options.cache = &cache;
  options.on_text = [](std::size_t, std::string_view piece) {
    write_text(stdout, piece);
    std::fflush(stdout);
  };
  if (terminal && !arguments.quiet) print_err("An empty line or Ctrl-D ends the conversation.\n");
  InputLines lines;
  while (true) {
    if (terminal) print_err("> ");
    OCTAVO_TRY(const std::optional<std::string> line, lines.next());
    if (!line && caught_signal() != 0) return 128 + caught_signal();
    if (!line || (terminal && line->empty())) break;
    if (text::invalid_utf8_at(*line)) {
      print_warning("the line is not UTF-8 and was not sent");
      continue;
    }
    chat.add("user", *line);
    OCTAVO_TRY(const std::vector<std::int32_t> ids, chat.prompt());
    OCTAVO_TRY(const runtime::GenerateResult result,
               runtime::generate(*running.engine, *running.tokenizer, std::span(&ids, 1), options));
    print_out("\n");
    if (const int status = status_of(result); status != kFine) return status;
    chat.add("assistant", result.sequences[0].text);
    if (!arguments.quiet) print_rates(result.times, rates_of(result.times, roof));
  }
  return kFine;
}

// What goes on with a model that was not written to its end: this command cannot.
std::string resume_command(const Arguments& arguments) {
  return fmt::format(
      "`octavo quantize {} {} --scale-fmt {} --resume`, with the lists and blocks of this command,",
      arguments.model, arguments.save, arguments.quantize);
}

// Before anything is loaded.
Result<void> check_save_directory(const Arguments& arguments) {
  std::error_code error;
  if (find_unfinished_run(arguments.save)) {
    return fail(ErrorCode::bad_value,
                fmt::format("--save {}: it holds an unfinished model; {} goes on with it",
                            arguments.save, resume_command(arguments)));
  }
  if (!std::filesystem::exists(arguments.save, error) ||
      (std::filesystem::is_directory(arguments.save, error) &&
       std::filesystem::is_empty(arguments.save, error))) {
    return {};
  }
  return fail(ErrorCode::bad_value,
              fmt::format("--save {}: it is there already; a new or an empty directory is expected",
                          arguments.save));
}

Result<void> save(const Arguments& arguments, const RunningModel& running) {
  OCTAVO_TRY(const std::optional<QuantizeOptions> options, quantize_options(arguments));
  OCTAVO_TRY(const ConversionPlan plan, plan_quantize(running.checkpoint, *options));
  ConversionOptions run;
  run.threads = running.pool->threads();
  run.stop = &catch_interrupts();
  run.resume_command = resume_command(arguments);
  OCTAVO_TRY(const ConversionReport report,
             quantize_checkpoint(running.checkpoint, plan, *options, run, arguments.save));
  if (!arguments.quiet) {
    print_err("saved: {} ({})\n", printable(arguments.save), human_bytes(report.bytes_out));
  }
  return {};
}

Result<void> check_arguments(const Arguments& arguments) {
  const auto refuse = [](const char* what) { return fail(ErrorCode::bad_value, what); };
  if (!arguments.save.empty() && arguments.quantize.empty())
    return refuse("--save writes what --quantize makes: add --quantize");
  if (!arguments.save.empty()) OCTAVO_CHECK(check_save_directory(arguments));
  if (arguments.system && !arguments.chat) return refuse("--system goes with --chat");
  if (arguments.parse_special && !arguments.chat)
    return refuse("--parse-special goes with --chat: elsewhere special tokens are always such");
  if (text::invalid_utf8_at(arguments.system.value_or(""))) return refuse("--system is not UTF-8");
  OCTAVO_CHECK(runtime::check_sampling(sampling_of(arguments, {})));
  const bool conversation =
      arguments.chat && arguments.prompts.empty() && arguments.file.empty() && !arguments.explain;
  if (arguments.json && conversation)
    return refuse("--json goes with a prompt: -p TEXT or --file FILE");
  return {};
}

Result<int> run(const Arguments& arguments) {
  OCTAVO_CHECK(check_arguments(arguments));
  std::vector<std::string> prompts;
  if (!arguments.explain) {
    OCTAVO_TRY(prompts, read_prompts(arguments));
  }
  OCTAVO_TRY(const std::unique_ptr<RunningModel> running, open_model(arguments));
  print_model_line(*running, arguments);
  if (!arguments.quiet) warn_of_configs(*running);
  if (!arguments.save.empty()) {
    OCTAVO_CHECK(save(arguments, *running));
  }
  if (arguments.explain) {
    print_explanation(*running, arguments.json);
    return kFine;
  }
  if (prompts.empty()) return run_conversation(arguments, *running);
  return run_prompts(arguments, *running, prompts);
}

void add_sampling_options(CLI::App& command, Arguments& arguments) {
  constexpr const char* kGroup = "Sampling";
  command.add_option("--temp", arguments.temperature, "0: the most probable token")
      ->option_text("T")
      ->check(kNotEmpty)
      ->group(kGroup);
  command.add_option("--top-k", arguments.top_k, "Of the K best; 0: all")
      ->option_text("K")
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 40))
      ->group(kGroup);
  command.add_option("--top-p", arguments.top_p, "Of the best that make up P")
      ->option_text("P")
      ->check(kNotEmpty)
      ->group(kGroup);
  command.add_option("--min-p", arguments.min_p, "Of those with at least P times the best's")
      ->option_text("P")
      ->check(kNotEmpty)
      ->group(kGroup);
  command
      .add_option("--repetition-penalty", arguments.repetition_penalty,
                  "Of tokens that occurred; 1: none")
      ->option_text("R")
      ->check(kNotEmpty)
      ->group(kGroup);
  command.add_option("--seed,-s", arguments.seed, "The same seed draws the same text")
      ->option_text("N")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 62))
      ->group(kGroup);
}

}  // namespace

void add_generate(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("generate", "Text from a model, as it is or quantized at load");
  command->footer(kFooter);
  add_model_options(*command, *arguments);
  command
      ->add_option("--prompt,-p", arguments->prompts,
                   "May be repeated: prompts run side by side, and are shown when all are done")
      ->option_text("TEXT")
      ->allow_extra_args(false);
  command
      ->add_option("--file,-f", arguments->file, "A file that holds the prompt; -: standard input")
      ->option_text("FILE")
      ->check(kNotEmpty);
  command->add_flag("--chat", arguments->chat, "The prompt is a user's message, or a conversation");
  command->add_option("--system", arguments->system, "With --chat: the system's message")
      ->option_text("TEXT");
  command->add_option("-n,--max-new-tokens", arguments->max_new_tokens, "Tokens at most")
      ->option_text("N")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 24));
  command
      ->add_option("--ctx-size,-c", arguments->context,
                   "Tokens of a sequence, prompt included (usual: 4096, or what is asked for)")
      ->option_text("N")
      ->check(CLI::Range(std::size_t{2}, std::size_t{1} << 24));
  command->add_option("--stop", arguments->stop, "Ends the text, is not shown; may be repeated")
      ->option_text("TEXT")
      ->allow_extra_args(false);
  command->add_flag("--ignore-eos", arguments->ignore_eos, "End tokens are like any other");
  command->add_flag("--no-special", arguments->no_special,
                    "Nothing is put around the prompt (BOS)");
  command->add_flag("--parse-special", arguments->parse_special,
                    "With --chat: special tokens that messages spell are such, not text");
  command->add_flag("--explain", arguments->explain,
                    "No text: which kernel each layer gets, and why");
  command->add_option("--save", arguments->save, "Also write the model that --quantize makes")
      ->option_text("DIR")
      ->check(kNotEmpty);
  command->add_flag("--json", arguments->json, "One JSON object on stdout when all is done");
  add_sampling_options(*command, *arguments);
  command->callback([arguments, &status] {
    const Result<int> result = run(*arguments);
    status = result ? *result : status_of_error(result.error());
  });
}

}  // namespace octavo::app
