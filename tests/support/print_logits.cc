// Logits of a model for the differential tests, activations and keys and values in f32:
//     octavo_print_logits MODEL FIRST
// Each line of standard input is a sequence of token ids. Of each, the logits (tokens - FIRST,
// vocabulary) from token FIRST on go to standard output as f32 bytes.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "octavo/models/load.h"
#include "octavo/runtime/engine.h"

namespace {

octavo::Result<void> print(const std::filesystem::path& directory, std::size_t first) {
  OCTAVO_TRY(const octavo::Checkpoint checkpoint, octavo::open_checkpoint(directory));
  OCTAVO_TRY(const octavo::models::LoadedModel loaded, octavo::models::load_model(checkpoint));
  octavo::runtime::Engine engine(loaded.model, {.activations = octavo::nn::ActivationType::f32,
                                                .kv_cache = octavo::Format::f32});
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::vector<std::int32_t> tokens;
    for (std::int32_t token = 0; words >> token;) tokens.push_back(token);
    OCTAVO_CHECK(engine.check_tokens(tokens));
    octavo::runtime::Sequence sequence = engine.sequence(tokens.size());
    const octavo::runtime::Feed feed{&sequence, tokens};
    const octavo::nn::Value hidden = engine.hidden_states(std::span(&feed, 1));
    const octavo::nn::Value logits =
        engine.logits({hidden.row(first), hidden.rows - first, hidden.cols});
    std::fwrite(logits.data, sizeof(float), logits.rows * logits.cols, stdout);
  }
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const auto printed = print(arguments[1], std::strtoul(arguments[2], nullptr, 10));
  if (!printed) std::cerr << printed.error().message << "\n";
  return printed ? 0 : 1;
}
