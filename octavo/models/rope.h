// Rotary position embeddings: frequencies and tables as Transformers computes them in f32.
#pragma once

#include <cstddef>
#include <vector>

#include "octavo/models/config.h"

namespace octavo::models {

struct RopeFrequencies {
  std::vector<float> inv_freq;  // (head_dim / 2), radians per position
  float attention_scaling = 1;  // cos and sin are multiplied by it
};

// `sequence_length` matters to the dynamic type alone, and there only beyond
// max_position_embeddings: it is the position of a token plus 1. Transformers takes the last token
// of a whole call for all of the call's tokens; taking each token's own position is what it does
// when it goes on token by token, and gives the same bits for every chunking of a prompt.
// Keys stay as they were rotated, here as there.
//
// Every f32 operation is done in the order of the original; powers are those of 64-bit mantissas
// (powl), rounded once, so that all processors give the same bits. PyTorch's own powers may be 1
// ulp away.
RopeFrequencies rope_frequencies(const ModelConfig& config, std::size_t sequence_length);

// cos, sin: (inv_freq.size()). The angle is rounded to f32; its cosine and sine are computed by
// cosl and sinl, of which the C library has one implementation, in C, for all x86 processors.
void rope_cos_sin(const RopeFrequencies& frequencies, std::size_t position, float* cos, float* sin);

}  // namespace octavo::models
