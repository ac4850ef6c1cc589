// Which kernel each linear layer of a model gets, and why: is FP8 really used here?
#pragma once

#include "command.h"
#include "octavo/models/llama.h"
#include "octavo/nn/value.h"

namespace octavo::app {

// One line for layers that are alike; rows: of decoding (1) and of a prompt.
void print_explanation(const models::Llama& model, nn::ActivationType activations, int threads,
                       std::size_t prompt_rows);

// [{name, weight, block, activations, n, k, decode: {kernel, why}, prompt: {kernel, why}}]
OrderedJson explanation_json(const models::Llama& model, nn::ActivationType activations,
                             int threads, std::size_t prompt_rows);

}  // namespace octavo::app
