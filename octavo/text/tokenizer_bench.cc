// Rates of loading, encoding and decoding. OCTAVO_TOKENIZER names a tokenizer.json or its
// directory, OCTAVO_TEXT a text; without them, what tests use.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>

#include "octavo/base/file.h"
#include "octavo/text/tokenizer.h"

namespace octavo::text {
namespace {

std::string from_environment(const char* name, const char* otherwise) {
  const char* const given = std::getenv(name);
  return given == nullptr ? otherwise : given;
}

const std::string& tokenizer_path() {
  static const std::string path =
      from_environment("OCTAVO_TOKENIZER", "tests/golden/text/gpt2.tokenizer.json");
  return path;
}

std::string read_sample() {
  return read_text(from_environment("OCTAVO_TEXT", "tests/golden/text/lines.bin")).value();
}

void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load(tokenizer_path()).value());
}

void encode(benchmark::State& state) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path()).value();
  const std::string text = read_sample();
  std::size_t tokens = 0;
  for (auto _ : state) tokens = tokenizer.encode(text).value().size();
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
  state.counters["tokens"] = static_cast<double>(tokens);
}

// One line at a time: nothing that one text teaches helps with the next.
void encode_lines(benchmark::State& state) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path()).value();
  const std::string text = read_sample();
  for (auto _ : state) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      benchmark::DoNotOptimize(
          tokenizer.encode(std::string_view(text).substr(begin, end - begin)).value());
      begin = end + 1;
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
}

void decode(benchmark::State& state) {
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_path()).value();
  const std::string text = read_sample();
  const std::vector<TokenId> ids = tokenizer.encode(text).value();
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids));
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
}

BENCHMARK(load)->Unit(benchmark::kMillisecond);
BENCHMARK(encode)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_lines)->Unit(benchmark::kMillisecond);
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace octavo::text

BENCHMARK_MAIN();
