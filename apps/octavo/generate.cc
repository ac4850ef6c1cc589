#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <utility>

#include "bench_measure.h"
#include "explain.h"
#include "interrupt.h"
#include "model_options.h"
#include "octavo/base/file.h"
#include "octavo/base/machine.h"
#include "octavo/kernels/roof/roof.h"
#include "octavo/runtime/generate.h"
#include "octavo/text/chat_template.h"
#include "octavo/text/utf8.h"

namespace octavo::app {
namespace {

// Tokens of a sequence where nothing is asked for: the config's maximum would take gigabytes.
constexpr std::size_t kUsualContext = 4096;

struct Arguments : ModelArguments {
  std::vector<std::string> prompts;
  std::string file;
  std::string system;
  std::string save;
  bool chat = false;
  bool explain = false;
  bool json = false;
  bool ignore_eos = false;
  bool no_special = false;
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
line of input is a turn, and ends with the input.

The same bits, and so the same text, for any --threads, --prompt-chunk, batch and processor.

Examples:
  octavo generate SmolLM2-135M-Instruct -p "The capital of France is" -n 20
  octavo generate SmolLM2-135M-Instruct --chat -p "What is an octavo?"
  octavo generate SmolLM2-135M-Instruct --chat
  octavo generate Qwen3-0.6B --quantize ue8m0 -p "Once" --temp 0.8 --top-p 0.95 --seed 7
  octavo generate Qwen3-0.6B-FP8 --explain)";

Result<std::vector<std::string>> read_prompts(const Arguments& arguments) {
  std::vector<std::string> prompts = arguments.prompts;
  if (!arguments.file.empty()) {
    constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;
    OCTAVO_TRY(std::string text, read_text(arguments.file, kMaxBytes));
    prompts.push_back(std::move(text));
  }
  if (prompts.empty() && !arguments.chat) {
    if (::isatty(STDIN_FILENO)) {
      return fail(ErrorCode::bad_value,
                  "no prompt: -p TEXT, --file FILE, text on standard input, or --chat");
    }
    prompts.emplace_back(std::istreambuf_iterator<char>(std::cin),
                         std::istreambuf_iterator<char>());
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (const auto bad = text::invalid_utf8_at(prompts[i])) {
      return fail(ErrorCode::bad_value,
                  fmt::format("prompt {}: not valid UTF-8 at offset {}", i + 1, *bad));
    }
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

// Tokens of a sequence: as asked, else what is usual, and never what memory cannot hold.
Result<std::size_t> choose_context(const Arguments& arguments, const RunningModel& running,
                                   std::size_t wanted, std::size_t sequences) {
  const std::size_t most = running.loaded.model.config.max_position_embeddings;
  if (arguments.context && *arguments.context > most) {
    return fail(
        ErrorCode::bad_value,
        fmt::format("--ctx-size {}: the model knows positions up to {}", *arguments.context, most));
  }
  const std::size_t context =
      arguments.context.value_or(std::min(most, std::max(wanted, kUsualContext)));
  OCTAVO_TRY(const std::uint64_t bytes,
             check_kv_cache(running, std::min(context, wanted), sequences));
  if (!arguments.quiet) {
    print_err("context: up to {} tokens (the model knows {}), KV cache {} for {}\n", context, most,
              human_bytes(static_cast<double>(bytes)), std::min(context, wanted));
  }
  return context;
}

// GB a second that all threads read of the weights: what decoding is a share of.
double read_rate(const RunningModel& running) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  ThreadPool& pool = *running.pool;
  std::vector<std::span<const std::uint8_t>> pieces;
  std::size_t bytes = 0;
  for (const models::NamedLinear& named : models::linear_layers(running.loaded.model)) {
    std::span<const std::uint8_t> weight = ops::element_bytes(named.layer->weight);
    const std::size_t lead = -reinterpret_cast<std::uintptr_t>(weight.data()) % 64;  // mapped: any
    weight = weight.subspan(std::min(lead, weight.size()));
    const std::size_t size = weight.size() / kernels::kReadStep * kernels::kReadStep;
    if (size == 0 || bytes > kMostBytes) continue;
    pieces.emplace_back(weight.data(), size);
    bytes += size;
  }
  const auto pass = [&] {
    const double start = steady_seconds();
    pool.run(pool.threads(), [&](int part) {
      for (const auto& piece : pieces) {
        const Range range = split(piece.size() / kernels::kReadStep, 1, pool.threads(), part);
        const std::uint64_t seen =
            kernels::widest_roof_kernels().read(piece.data() + range.begin * kernels::kReadStep,
                                                (range.end - range.begin) * kernels::kReadStep);
        asm volatile("" : : "r"(seen) : "memory");
      }
    });
    return 1e-9 * static_cast<double>(bytes) / (steady_seconds() - start);
  };
  if (bytes == 0) return 0;
  pass();
  return std::max({pass(), pass(), pass()});
}

struct Rates {
  double prompt_tps, generate_tps, bandwidth_share;
};

// roof: read_rate(), or 0 where it was not measured.
Rates rates_of(const runtime::GenerateTimes& times, double roof) {
  Rates rates{times.prompt_tps(), times.generate_tps(), 0};
  if (roof > 0 && times.steps > 0)
    rates.bandwidth_share = 1e-9 * times.bytes_read / times.generate_seconds / roof;
  return rates;
}

void print_rates(const runtime::GenerateTimes& times, const Rates& rates) {
  print_err("prompt:   {} tokens, {:.1f} tokens per second\n",
            times.prompt_tokens - times.cached_tokens, rates.prompt_tps);
  if (times.steps == 0) return;
  print_err("generate: {} tokens, {:.1f} tokens per second, {:.0f} % of the memory bandwidth\n",
            times.decoded_tokens, rates.generate_tps, 100 * rates.bandwidth_share);
}

// The model's chat template with its messages.
class Chat {
 public:
  static Result<Chat> open(const RunningModel& running, const Arguments& arguments) {
    OCTAVO_TRY(ChatTemplates templates, read_chat_templates(running.checkpoint.directory));
    const ChatTemplateText* text = templates.pick(false);
    if (text == nullptr) {
      return fail(ErrorCode::bad_model,
                  fmt::format("{}: the model has no chat template; leave --chat out",
                              running.checkpoint.directory.string()));
    }
    OCTAVO_TRY(ChatTemplate parsed, ChatTemplate::parse(text->text, text->file));
    Chat chat(std::move(parsed), std::move(templates.special_tokens));
    if (!arguments.system.empty()) chat.add("system", arguments.system);
    return chat;
  }

  void add(const char* role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }

  Result<std::string> prompt() const {
    ChatOptions options;
    options.add_generation_prompt = true;
    options.variables = special_tokens_;
    return template_.render(messages_, nullptr, options);
  }

 private:
  Chat(ChatTemplate parsed, OrderedJson special_tokens)
      : template_(std::move(parsed)), special_tokens_(std::move(special_tokens)) {}

  ChatTemplate template_;
  OrderedJson special_tokens_;
  OrderedJson messages_ = OrderedJson::array();
};

Result<std::vector<std::int32_t>> encode(const RunningModel& running, const std::string& text,
                                         const text::EncodeOptions& options) {
  OCTAVO_TRY(const std::vector<text::TokenId> ids, running.tokenizer->encode(text, options));
  return std::vector<std::int32_t>(ids.begin(), ids.end());
}

runtime::GenerateOptions options_of(const Arguments& arguments, const RunningModel& running) {
  runtime::GenerateOptions options;
  options.max_new_tokens = arguments.max_new_tokens.value_or(
      running.generation.max_new_tokens.value_or(arguments.chat ? 1024 : 128));
  options.sampling = sampling_of(arguments, running.generation);
  if (!arguments.ignore_eos) {
    options.eos_token_ids = running.generation.eos_token_ids.empty()
                                ? running.loaded.model.config.eos_token_ids
                                : running.generation.eos_token_ids;
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

// All prompts, side by side; several are shown when they are done.
Result<int> run_prompts(const Arguments& arguments, RunningModel& running,
                        const std::vector<std::string>& prompts) {
  std::vector<std::vector<std::int32_t>> ids;
  std::size_t longest = 0;
  for (const std::string& prompt : prompts) {
    std::string text = prompt;
    if (arguments.chat) {
      OCTAVO_TRY(Chat chat, Chat::open(running, arguments));
      chat.add("user", prompt);
      OCTAVO_TRY(text, chat.prompt());
    }
    OCTAVO_TRY(
        ids.emplace_back(),
        encode(running, text, {.add_special_tokens = !arguments.chat && !arguments.no_special}));
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
  const bool rated = arguments.json || !arguments.quiet;
  const Rates rates = rates_of(result.times, rated ? read_rate(running) : 0);
  if (arguments.json) print_result_json(result, rates);
  if (!arguments.quiet) print_rates(result.times, rates);
  return status_of(result);
}

// False where a signal came first: a read would be gone on with after it.
bool wait_for_input() {
  catch_interrupts();
  if (std::cin.rdbuf()->in_avail() > 0) return true;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (::poll(&input, 1, -1) < 0) {
    if (errno != EINTR || caught_signal() != 0) return caught_signal() == 0;
  }
  return true;
}

// A turn for each line of input.
Result<int> run_conversation(const Arguments& arguments, RunningModel& running) {
  OCTAVO_TRY(Chat chat, Chat::open(running, arguments));
  std::ios::sync_with_stdio(false);  // a buffer of its own, which wait_for_input() sees
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  runtime::GenerateOptions options = options_of(arguments, running);
  OCTAVO_TRY(options.context,
             choose_context(arguments, running, arguments.context.value_or(kUsualContext), 1));
  const double roof = arguments.quiet ? 0 : read_rate(running);
  runtime::PromptCache cache;
  options.cache = &cache;
  options.on_text = [](std::size_t, std::string_view piece) {
    write_text(stdout, piece);
    std::fflush(stdout);
  };
  if (terminal && !arguments.quiet) print_err("An empty line or Ctrl-D ends the conversation.\n");
  while (true) {
    if (terminal) print_err("> ");
    if (!wait_for_input()) return 128 + caught_signal();
    std::string line;
    if (!std::getline(std::cin, line) || (terminal && line.empty())) break;
    if (text::invalid_utf8_at(line)) {
      print_warning("the line is not UTF-8 and was not sent");
      continue;
    }
    chat.add("user", line);
    OCTAVO_TRY(const std::string prompt, chat.prompt());
    OCTAVO_TRY(const std::vector<std::int32_t> ids,
               encode(running, prompt, {.add_special_tokens = false}));
    OCTAVO_TRY(const runtime::GenerateResult result,
               runtime::generate(*running.engine, *running.tokenizer, std::span(&ids, 1), options));
    print_out("\n");
    if (const int status = status_of(result); status != kFine) return status;
    chat.add("assistant", result.sequences[0].text);
    if (!arguments.quiet) print_rates(result.times, rates_of(result.times, roof));
  }
  return kFine;
}

Result<void> save(const Arguments& arguments, const RunningModel& running) {
  OCTAVO_TRY(const std::optional<QuantizeOptions> options, quantize_options(arguments));
  OCTAVO_TRY(const ConversionPlan plan, plan_quantize(running.checkpoint, *options));
  ConversionOptions run;
  run.threads = running.pool->threads();
  run.stop = &catch_interrupts();
  const auto report = quantize_checkpoint(running.checkpoint, plan, *options, run, arguments.save);
  if (!report && report.error().code == ErrorCode::interrupted) {
    return fail(
        ErrorCode::interrupted,
        fmt::format("{} holds an unfinished model: `octavo quantize {} {} --resume` with the "
                    "options of this command goes on",
                    arguments.save, arguments.model, arguments.save));
  }
  if (!report) return std::unexpected(report.error());
  if (!arguments.quiet) {
    print_err("saved: {} ({})\n", printable(arguments.save),
              human_bytes(static_cast<double>(report->bytes_out)));
  }
  return {};
}

Result<void> check_arguments(const Arguments& arguments) {
  const auto refuse = [](const char* what) { return fail(ErrorCode::bad_value, what); };
  if (!arguments.save.empty() && arguments.quantize.empty())
    return refuse("--save writes what --quantize makes: add --quantize");
  if (!arguments.system.empty() && !arguments.chat) return refuse("--system goes with --chat");
  if (text::invalid_utf8_at(arguments.system)) return refuse("--system is not UTF-8");
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
  if (!arguments.quiet) {
    for (const std::string& asked : running->generation.not_built)
      print_warning("generation_config.json asks for " + asked + ", which is not built");
  }
  if (!arguments.save.empty()) {
    OCTAVO_CHECK(save(arguments, *running));
  }
  if (arguments.explain) {
    const runtime::EngineOptions& engine = running->engine->options();
    if (arguments.json) {
      print_json({{"layers", explanation_json(running->loaded.model, engine.activations,
                                              running->pool->threads(), engine.prompt_chunk)}});
    } else {
      print_explanation(running->loaded.model, engine.activations, running->pool->threads(),
                        engine.prompt_chunk);
    }
    return kFine;
  }
  if (prompts.empty()) return run_conversation(arguments, *running);
  return run_prompts(arguments, *running, prompts);
}

void add_sampling_options(CLI::App& command, Arguments& arguments) {
  constexpr const char* kGroup = "Sampling";
  command.add_option("--temp", arguments.temperature, "0: the most probable token")
      ->option_text("T")
      ->group(kGroup);
  command.add_option("--top-k", arguments.top_k, "Of the K best; 0: all")
      ->option_text("K")
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 40))
      ->group(kGroup);
  command.add_option("--top-p", arguments.top_p, "Of the best that make up P")
      ->option_text("P")
      ->group(kGroup);
  command.add_option("--min-p", arguments.min_p, "Of those with at least P times the best's")
      ->option_text("P")
      ->group(kGroup);
  command
      .add_option("--repetition-penalty", arguments.repetition_penalty,
                  "Of tokens that occurred; 1: none")
      ->option_text("R")
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
  command->add_option("--file,-f", arguments->file, "A file that holds the prompt")
      ->option_text("FILE");
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
  command->add_flag("--explain", arguments->explain,
                    "No text: which kernel each layer gets, and why");
  command->add_option("--save", arguments->save, "Also write the model that --quantize makes")
      ->option_text("DIR");
  command->add_flag("--json", arguments->json, "One JSON object on stdout when all is done");
  add_sampling_options(*command, *arguments);
  command->callback([arguments, &status] {
    const Result<int> result = run(*arguments);
    status = result ? *result : status_of_error(result.error());
  });
}

}  // namespace octavo::app
