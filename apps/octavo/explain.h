// Which kernel each linear layer of a model gets, and why: is FP8 really used here?
#pragma once

#include "model_options.h"

namespace octavo::app {

// To stdout, for a token and for a chunk of a prompt: one line for layers that are alike, or
// {layers: [{name, n, k, weight, activations, decode: {kernel, why}, prompt: {kernel, why}}]}.
void print_explanation(const RunningModel& running, bool as_json);

}  // namespace octavo::app
