#include "command.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <utility>

#include "octavo/checkpoint/config_check.h"

namespace octavo::app {
namespace {

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;  // names itself
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

}  // namespace

void add_quant_method(CLI::App& command, std::string& method) {
  command
      .add_option("--quant-method", method,
                  "What the source is taken to be (" + supported_quant_methods() +
                      "); an error where its config says otherwise")
      ->option_text("NAME")
      ->group(kQuantizedSourceGroup);
}

void write_text(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
}

int finish_output(int status) {
  const bool lost = std::fflush(stdout) != 0;
  if (!lost && std::ferror(stdout) == 0) return status;
  print_err("octavo: cannot write to stdout\n");
  return status == kFine ? kFailed : status;
}

void add_open_options(CLI::App& command, OpenOptions& options) {
  constexpr const char* kName = "--max-header-size";
  const auto set = [&options](const std::string& text) {
    const Result<std::uint64_t> bytes = parse_bytes(kName, text);
    if (!bytes) throw CLI::ValidationError(bytes.error().message);
    options.max_header_bytes = *bytes;
  };
  command
      .add_option_function<std::string>(
          kName, set, "Largest header of a weight file to accept (default: 100MB)")
      ->option_text("SIZE");
}

void add_pairing_options(CLI::App& command, PairingOptions& options) {
  const auto set_block = [&options](const std::string& text) {
    const Result<BlockSize> block = parse_block_size(text);
    if (!block) throw CLI::ValidationError(block.error().message);
    options.block = *block;
  };
  command
      .add_flag("--missing-scale-as-one", options.missing_scale_as_one,
                "An FP8 weight without a scale has scale 1")
      ->group(kQuantizedSourceGroup);
  command.add_flag("--u8-as-e4m3", options.u8_as_e4m3, "U8 with a scale beside it is E4M3")
      ->group(kQuantizedSourceGroup);
  command
      .add_option_function<std::string>("--weight-block-size", set_block,
                                        "Instead of what the config says (without one: 128,128)")
      ->option_text("ROWS,COLS")
      ->group(kQuantizedSourceGroup);
}

int report_error(const Error& error) {
  print_err("octavo: {}\n", printable(error.message));
  return error.code == ErrorCode::bad_value ? kBadUsage : kFailed;
}

void print_warning(const std::string& message) {
  print_err("octavo: warning: {}\n", printable(message));
}

void print_json(const OrderedJson& json) {
  print_out("{}\n", json.dump(2, ' ', false, OrderedJson::error_handler_t::replace));
}

std::string build_words() {
  return fmt::format("{} {}{}{}", kCompiler, OCTAVO_BUILD_TYPE,
                     *OCTAVO_SANITIZERS ? ", sanitizers " : "", OCTAVO_SANITIZERS);
}

std::string human_seconds(double seconds) {
  if (seconds < 60) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<long>(seconds);
  return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                      : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Result<BlockSize> parse_block_size(const std::string& text) {
  BlockSize block;
  const char* const end = text.data() + text.size();
  const auto [comma, rows_error] = std::from_chars(text.data(), end, block.rows);
  if (rows_error == std::errc() && comma != end && (*comma == ',' || *comma == 'x')) {
    const auto [rest, cols_error] = std::from_chars(comma + 1, end, block.cols);
    if (cols_error == std::errc() && rest == end && block.rows > 0 && block.cols > 0) return block;
  }
  return fail(
      ErrorCode::bad_value,
      fmt::format("--weight-block-size {}: rows and columns are expected, as in 128,128", text));
}

Result<std::uint64_t> parse_bytes(std::string_view option, const std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 10> kUnits = {
      {{"", 1},
       {"B", 1},
       {"kB", 1'000},
       {"KB", 1'000},
       {"MB", 1'000'000},
       {"GB", 1'000'000'000},
       {"TB", 1'000'000'000'000},
       {"KiB", 1 << 10},
       {"MiB", 1 << 20},
       {"GiB", 1 << 30}}};
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  for (const auto& [name, factor] : kUnits) {
    std::uint64_t bytes = 0;
    if (error == std::errc() && unit == name && number > 0 &&
        !__builtin_mul_overflow(number, factor, &bytes))
      return bytes;
  }
  return fail(ErrorCode::bad_value,
              fmt::format("{} {}: a size is expected, as in 5GB or 500MB", option, text));
}

std::vector<std::string> split_names(const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (std::string_view rest : arguments) {
    while (!rest.empty()) {
      const std::size_t end =
          rest.starts_with("re:") ? rest.size() : std::min(rest.find(','), rest.size());
      if (end > 0) names.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return names;
}

}  // namespace octavo::app
