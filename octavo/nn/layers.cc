#include "octavo/nn/layers.h"

#include <fmt/format.h>

#include <cmath>

#include "octavo/base/error.h"
#include "octavo/base/for_rows.h"
#include "octavo/kernels/select.h"
#include "octavo/ops/attention.h"
#include "octavo/ops/weight_packer.h"

namespace octavo::nn {
namespace {

// The kernels of OCTAVO_CPU or this machine.
const kernels::TransformerKernels& selected() {
  const Result<Isa> isa = kernels::selected_isa();
  if (!isa) throw ContractError("layers: " + isa.error().message);
  return kernels::transformer_kernels(*isa);
}

[[noreturn]] void refuse(const char* operation, const Value& x, const std::string& expected) {
  throw ContractError(
      fmt::format("{}: given x ({}, {}), expected {}", operation, x.rows, x.cols, expected));
}

}  // namespace

Value embed(const Step& step, const ops::PackedWeight& table, std::span<const std::int32_t> ids) {
  const Value x = step.value(ids.size(), table.k);
  ops::gather_rows(table, ids.data(), ids.size(), x.data, x.cols);
  return x;
}

Value rms_norm(const Step& step, const Value& x, std::span<const float> weight, float eps) {
  const std::size_t size = weight.size();
  if (size == 0 || x.cols % size != 0) {
    refuse("rms_norm", x, fmt::format("columns in groups of {}", size));
  }
  const kernels::TransformerKernels& kernels = selected();
  const std::size_t per_row = x.cols / size;
  const Value y = step.value(x.rows, x.cols);
  for_rows(step.context, x.rows, x.rows * x.cols, [&](const Range& rows) {
    kernels.rms_norm({x.row(rows.begin), size, weight.data(), eps,
                      (rows.end - rows.begin) * per_row, size, y.row(rows.begin), size});
  });
  return y;
}

void add(const Step& step, const Value& x, const Value& y) {
  if (x.rows != y.rows || x.cols != y.cols) {
    refuse("add", x, fmt::format("({}, {}) as y has", y.rows, y.cols));
  }
  const kernels::TransformerKernels& kernels = selected();
  for_rows(step.context, x.rows, x.rows * x.cols, [&](const Range& rows) {
    kernels.add(x.row(rows.begin), y.row(rows.begin), (rows.end - rows.begin) * x.cols);
  });
}

Value silu_mul(const Step& step, const Value& gate, const Value& up) {
  if (gate.rows != up.rows || gate.cols != up.cols) {
    refuse("silu_mul", gate, fmt::format("({}, {}) as up has", up.rows, up.cols));
  }
  const kernels::TransformerKernels& kernels = selected();
  const Value y = step.value(gate.rows, gate.cols);
  for_rows(step.context, gate.rows, 4 * gate.rows * gate.cols, [&](const Range& rows) {
    kernels.silu_mul(gate.row(rows.begin), up.row(rows.begin), y.row(rows.begin),
                     (rows.end - rows.begin) * gate.cols);
  });
  return y;
}

void rope(const Step& step, const Value& x, const Rotation& rotation, std::size_t head_dim) {
  const std::size_t half = rotation.cos.cols;
  if (head_dim == 0 || x.cols % head_dim != 0 || 2 * half > head_dim ||
      rotation.cos.rows != x.rows || rotation.sin.rows != x.rows || rotation.sin.cols != half) {
    refuse("rope", x,
           fmt::format("heads of {}, {} angles for each of {} rows", head_dim, half,
                       rotation.cos.rows));
  }
  const kernels::TransformerKernels& kernels = selected();
  for_rows(step.context, x.rows, x.rows * x.cols, [&](const Range& rows) {
    for (std::size_t i = rows.begin; i < rows.end; ++i) {
      kernels.rope(
          {x.row(i), x.cols / head_dim, head_dim, half, rotation.cos.row(i), rotation.sin.row(i)});
    }
  });
}

Value attention(const Step& step, const Value& q, const Value& k, const Value& v,
                std::span<const Segment> segments, std::size_t layer,
                std::optional<std::size_t> window) {
  const Value out = step.value(q.rows, q.cols);
  for (const Segment& segment : segments) {
    ops::KvCache& cache = *segment.cache;
    const std::size_t head_dim = cache.shape().head_dim;
    if (segment.first_row + segment.rows > q.rows || q.cols % head_dim != 0 || k.rows != q.rows ||
        v.rows != q.rows || k.cols != cache.shape().kv_heads * head_dim || v.cols != k.cols) {
      refuse("attention", q,
             fmt::format("rows to {}, heads of {}, k and v of {} heads",
                         segment.first_row + segment.rows, head_dim, cache.shape().kv_heads));
    }
    cache.append(layer, segment.position, segment.rows, k.row(segment.first_row),
                 v.row(segment.first_row), k.cols);
    ops::attention({.q = q.row(segment.first_row),
                    .q_stride = q.cols,
                    .out = out.row(segment.first_row),
                    .out_stride = out.cols,
                    .count = segment.rows,
                    .position = segment.position,
                    .heads = q.cols / head_dim,
                    .layer = layer,
                    .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))),
                    .window = window},
                   cache, step.context);
  }
  return out;
}

}  // namespace octavo::nn
