// What the commands share: exit status, messages, words for sizes.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json.h"
#include "octavo/base/words.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/pairing.h"
#include "octavo/quant/block.h"

namespace octavo::app {

// kFound: a check found defects or differences.
enum ExitStatus { kFine = 0, kFailed = 1, kBadUsage = 2, kFound = 3 };

// Every command adds itself and leaves its exit status in `status` when it was the one that ran.
void add_quantize(CLI::App& app, int& status);
void add_dequantize(CLI::App& app, int& status);
void add_inspect(CLI::App& app, int& status);
void add_verify(CLI::App& app, int& status);
void add_compare(CLI::App& app, int& status);
void add_generate(CLI::App& app, int& status);
void add_perplexity(CLI::App& app, int& status);
void add_tokenize(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_info(CLI::App& app, int& status);

// The group in --help of options about weights of the source that are FP8 or FP4.
inline constexpr const char* kQuantizedSourceGroup = "Sources that are quantized";

// --max-header-size, which every command that opens a checkpoint has.
void add_open_options(CLI::App& command, OpenOptions& options);

// --missing-scale-as-one, --u8-as-e4m3 and --weight-block-size, of commands that only look.
void add_pairing_options(CLI::App& command, PairingOptions& options);

// Sizes M, N and K of a product that options may give: none is larger, and no product of two of
// them and the bytes of an element overflows.
inline const CLI::Range kProductSize{std::uint64_t{1}, std::uint64_t{1} << 28};

// For options that take a name, where an empty one would mean that none was given.
inline const CLI::Validator kNotEmpty(
    [](const std::string& text) { return std::string(text.empty() ? "it is empty" : ""); }, "");

// --quant-method, of every command that reads a source without changing what it is.
void add_quant_method(CLI::App& command, std::string& method);

// Failed writes do not throw: finish_output() sees those to stdout, and those to stderr cannot be
// told to anyone.
void write_text(std::FILE* stream, std::string_view text);
template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_text(stdout, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void print_err(fmt::format_string<Args...> format, Args&&... args) {
  write_text(stderr, fmt::format(format, std::forward<Args>(args)...));
}

// Flushes stdout. kFailed instead of kFine, and a message, where anything that was written to it
// was lost.
int finish_output(int status);

// "octavo: MESSAGE" on stderr; the exit status that belongs to the error.
int report_error(const Error& error);

void print_warning(const std::string& message);  // stderr
void print_json(const OrderedJson& json);        // stdout, indented

std::string build_words();  // "g++ 12.2.0 Release": compiler, build type, sanitizers

std::string human_seconds(double seconds);  // "0.21 s", "3:05"

// The names of a list option, which may have been given several times. Regular expressions have
// commas of their own, so one takes the rest of its argument.
std::vector<std::string> split_names(const std::vector<std::string>& arguments);

// "128,128". bad_value otherwise.
Result<BlockSize> parse_block_size(const std::string& text);

// "5GB", "500MB", "1048576"; powers of 1000, and of 1024 with KiB, MiB, GiB. bad_value, which names
// the option, otherwise.
Result<std::uint64_t> parse_bytes(std::string_view option, const std::string& text);

}  // namespace octavo::app
