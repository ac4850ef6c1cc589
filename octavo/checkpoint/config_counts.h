// The counts of config.json against the tensors.
#pragma once

#include "octavo/checkpoint/checkpoint.h"

namespace octavo {

// Counts that are no counts, or that the tensors contradict (config_value): layers, heads, experts,
// vocabulary, hidden size. Where files are lost, nothing is concluded from what is not there.
void check_config_counts(const Survey& survey, Defects& defects);

}  // namespace octavo
