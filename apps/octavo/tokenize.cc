#include <charconv>
#include <memory>
#include <optional>

#include "command.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/utf8.h"
#include "text_input.h"

namespace octavo::app {
namespace {

using text::TokenId;

constexpr std::uint64_t kMaxInputBytes = std::uint64_t{1} << 30;

struct Arguments {
  std::string model;
  std::optional<std::string> text;
  std::string file;
  bool decode = false;
  bool lines = false;
  bool null = false;
  bool no_added = false;
  bool no_parsed = false;
  bool skip_special = false;
  bool pieces = false;
  bool json = false;
};

constexpr const char* kFooter =
    R"(Reads the tokenizer.json of MODEL: byte-pair encodings, as most models have. Without TEXT and --file
the text comes from standard input, as it is, line ends included.

A piece is what the token stands for; in JSON a list of bytes where that is not valid UTF-8.

Examples:
  octavo tokenize SmolLM2-135M-Instruct "Hello, world"
  octavo tokenize SmolLM2-135M-Instruct --decode "19556 28 905"
  octavo tokenize SmolLM2-135M-Instruct --file notes.txt --json | jq '.tokens | length'
  octavo tokenize SmolLM2-135M-Instruct --file prompts.txt --lines)";

Result<TextInput> read_text_or_file(const Arguments& arguments) {
  if (arguments.text) return TextInput{"TEXT", *arguments.text};
  return read_input(arguments.file.empty() ? kStandardInput : arguments.file, kMaxInputBytes);
}

// The whole input, or its records without what ends them.
std::vector<std::string_view> records_of(std::string_view content, const Arguments& arguments) {
  if (!arguments.lines && !arguments.null) return {content};
  const char end = arguments.null ? '\0' : '\n';
  std::vector<std::string_view> records;
  while (!content.empty()) {
    const std::size_t length = std::min(content.find(end), content.size());
    records.push_back(content.substr(0, length));
    content.remove_prefix(std::min(length + 1, content.size()));
  }
  return records;
}

// "1 2 3", "1,2,3" or "[1, 2, 3]".
Result<std::vector<TokenId>> parse_ids(std::string_view text, std::string_view name,
                                       const text::Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (std::size_t at = text.find_first_not_of(" ,[]\t\r\n"); at != text.npos;
       at = text.find_first_not_of(" ,[]\t\r\n", at)) {
    const std::size_t end = std::min(text.find_first_of(" ,[]\t\r\n", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    TokenId id = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || rest != word.data() + word.size() || !tokenizer.id_to_token(id)) {
      constexpr std::size_t kShown = 40;
      return fail(
          ErrorCode::bad_value,
          fmt::format("{}: {} is not the id of a token; whole numbers below {} are expected", name,
                      word.substr(0, kShown), tokenizer.id_limit()));
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

OrderedJson piece_json(const std::string& piece) {
  if (!text::invalid_utf8_at(piece)) return piece;
  OrderedJson bytes = OrderedJson::array();
  for (const char byte : piece) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

OrderedJson record_json(const text::Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  OrderedJson pieces = OrderedJson::array();
  for (const TokenId id : ids) pieces.push_back(piece_json(tokenizer.token_bytes(id)));
  return {{"tokens", ids}, {"pieces", std::move(pieces)}};
}

void print_record(const text::Tokenizer& tokenizer, const Arguments& arguments,
                  const std::vector<TokenId>& ids) {
  if (!arguments.pieces) {
    print_out("{}\n", fmt::join(ids, " "));
    return;
  }
  for (const TokenId id : ids)
    print_out("{:>8}  \"{}\"\n", id, printable(tokenizer.token_bytes(id)));
}

Result<void> run(const Arguments& arguments) {
  if (arguments.text && !arguments.file.empty())
    return fail(ErrorCode::bad_value, "TEXT and --file are both given; one of them is expected");
  OCTAVO_TRY(const text::Tokenizer tokenizer, text::Tokenizer::load(arguments.model));
  OCTAVO_TRY(const TextInput input, read_text_or_file(arguments));
  OrderedJson records = OrderedJson::array();
  const bool many = arguments.lines || arguments.null;
  for (const std::string_view record : records_of(input.text, arguments)) {
    std::vector<TokenId> ids;
    std::string decoded;
    if (arguments.decode) {
      OCTAVO_TRY(ids, parse_ids(record, input.name, tokenizer));
      decoded = tokenizer.decode(ids, {.skip_special = arguments.skip_special});
    } else {
      if (const auto bad = text::invalid_utf8_at(record)) {
        const auto offset = static_cast<std::size_t>(record.data() - input.text.data()) + *bad;
        return fail(arguments.text ? ErrorCode::bad_value : ErrorCode::bad_file,
                    fmt::format("{}: not valid UTF-8 at offset {}", input.name, offset));
      }
      OCTAVO_TRY(ids, tokenizer.encode(record, {.add_special_tokens = !arguments.no_added,
                                                .parse_special = !arguments.no_parsed}));
    }
    if (arguments.json) {
      OrderedJson json = record_json(tokenizer, ids);
      if (arguments.decode) json["text"] = decoded;
      if (!many) {
        print_json(json);
        return {};
      }
      records.push_back(std::move(json));
    } else if (arguments.decode) {
      write_text(stdout, decoded);
      write_text(stdout, std::string_view(arguments.null ? "\0" : "\n", 1));
    } else {
      print_record(tokenizer, arguments, ids);
    }
  }
  if (arguments.json) print_json({{"records", std::move(records)}});
  return {};
}

}  // namespace

void add_tokenize(CLI::App& app, int& status) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("tokenize", "Text to token ids, and back");
  command->footer(kFooter);
  command->add_option("MODEL", arguments->model, "Model directory, or a tokenizer.json")
      ->check(kNotEmpty)
      ->required();
  command->add_option("TEXT", arguments->text, "Text; with --decode, ids");
  command->add_option("-f,--file", arguments->file, "Read the text from a file; -: standard input")
      ->option_text("FILE")
      ->check(kNotEmpty);
  command->add_flag("-d,--decode", arguments->decode, "Ids to text");
  command->add_flag("--lines", arguments->lines, "Each line of the input by itself");
  command->add_flag("-z,--null", arguments->null, "The same, lines end in a NUL byte");
  command->add_flag("--no-added-special", arguments->no_added,
                    "Nothing around the text, such as a BOS");
  command->add_flag("--no-parse-special", arguments->no_parsed,
                    "Special tokens in the text are text like any other");
  command->add_flag("--skip-special", arguments->skip_special,
                    "Special tokens leave no trace in decoded text");
  command->add_flag("--pieces", arguments->pieces, "One line for each token: id and text");
  command->add_flag("--json", arguments->json, "Print as JSON");
  command->callback([arguments, &status] {
    const Result<void> result = run(*arguments);
    status = result ? kFine : report_error(result.error());
  });
}

}  // namespace octavo::app
