// The other layers of a decoder. Each is a function of its input and its parameters. All is f32,
// (rows, cols), a result in the arena of the step. ContractError: sizes that do not fit; OCTAVO_CPU
// names a level that this machine lacks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "octavo/nn/linear.h"
#include "octavo/nn/value.h"
#include "octavo/ops/kv_cache.h"

namespace octavo::nn {

// Rows of the table, (ids, features). ContractError: an id outside the table.
Value embed(const Step& step, const ops::PackedWeight& table, std::span<const std::int32_t> ids);

// x / sqrt(mean(x^2) + eps) * weight over the last `weight.size()` features: of whole rows, or of
// each head.
Value rms_norm(const Step& step, const Value& x, std::span<const float> weight, float eps);

// x += y, of one shape.
void add(const Step& step, const Value& x, const Value& y);

// silu(gate) * up, of one shape: x / (1 + exp(-x)) of gate.
Value silu_mul(const Step& step, const Value& gate, const Value& up);

// cos and sin of each row's position, (rows, pairs) both: as models/rope makes them.
struct Rotation {
  Value cos, sin;
};

// Rotates the first 2 * pairs channels of each head, in place: channel i with i + pairs (Llama).
void rope(const Step& step, const Value& x, const Rotation& rotation, std::size_t head_dim);

// Consecutive rows of a step that belong to one sequence.
struct Segment {
  ops::KvCache* cache;
  std::size_t first_row, rows;
  std::size_t position;  // of its first row
};

// Stores k and v (rows, kv_heads * head_dim), then attends, with scores / sqrt(head_dim): (rows,
// heads * head_dim) of q. Errors also of ops::attention and KvCache::append.
Value attention(const Step& step, const Value& q, const Value& k, const Value& v,
                std::span<const Segment> segments, std::size_t layer,
                std::optional<std::size_t> window);

}  // namespace octavo::nn
