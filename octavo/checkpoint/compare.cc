#include "octavo/checkpoint/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "octavo/base/parallel.h"
#include "octavo/checkpoint/compare_read_internal.h"
#include "octavo/checkpoint/compare_values_internal.h"

namespace octavo {
namespace {

constexpr std::uint64_t kCopyBytes = 1 << 20;  // of a stretch of bytes that is compared at once
constexpr std::size_t kBatch = 4096;           // items of work between two gatherings

struct Pair {
  std::string name;
  std::optional<ComparedTensor> a;
  std::optional<ComparedTensor> b;
  bool same_bits = false;  // as far as is known
  ValueSums sums;

  bool same_shape() const { return a && b && a->shape == b->shape; }
  std::uint64_t bytes() const { return a->stored->info.bytes + b->stored->info.bytes; }
};

// Tensors by name, with their scales; what belongs to a weight is left out.
using Side = std::map<std::string_view, ComparedTensor>;

Side side_of(const Checkpoint& checkpoint, const Pairing& pairing, const Pairing& other) {
  std::set<std::size_t> used;  // scales that are part of a weight
  for (const QuantizedWeight& weight : pairing.weights) {
    if (weight.scale) used.insert(*weight.scale);
  }
  Side side;
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const CheckpointTensor& tensor = checkpoint.tensors[i];
    const Pairing::Role role = pairing.roles[i];
    if (used.contains(i)) continue;
    if (role == Pairing::Role::activation_scale && other.weights.empty()) continue;
    ComparedTensor compared{&checkpoint, &tensor, nullptr, tensor.info.shape};
    if (role == Pairing::Role::weight) {
      compared.codes = &pairing.weights[pairing.weight_of[i]];
      compared.shape = compared.codes->shape;
    } else if (tensor.info.dtype == DType::c64) {
      compared.shape.push_back(2);
    }
    side.emplace(tensor.info.name, std::move(compared));
  }
  return side;
}

std::vector<Pair> pairs_of(const Side& a, const Side& b) {
  std::vector<Pair> pairs;
  for (const auto& [name, tensor] : a) {
    const auto found = b.find(name);
    pairs.emplace_back(std::string(name), tensor);
    if (found != b.end()) pairs.back().b = found->second;
  }
  for (const auto& [name, tensor] : b) {
    if (!a.contains(name)) pairs.emplace_back(std::string(name), std::nullopt, tensor);
  }
  return pairs;
}

const TensorInfo* scale_of(const ComparedTensor& tensor) {
  if (tensor.codes == nullptr || !tensor.codes->scale) return nullptr;
  return &tensor.checkpoint->tensors[*tensor.codes->scale].info;
}

// All but the bytes: then these decide.
bool is_stored_alike(const ComparedTensor& a, const ComparedTensor& b) {
  if (a.stored->info.dtype != b.stored->info.dtype || a.shape != b.shape) return false;
  if ((a.codes == nullptr) != (b.codes == nullptr)) return false;
  if (a.codes == nullptr) return true;
  const ScaleLayout& x = a.codes->layout;
  const ScaleLayout& y = b.codes->layout;
  if (a.codes->format != b.codes->format || x.block != y.block || x.slices != y.slices)
    return false;
  const TensorInfo* scale_a = scale_of(a);
  const TensorInfo* scale_b = scale_of(b);
  if (scale_a == nullptr || scale_b == nullptr) return scale_a == scale_b;
  return scale_a->dtype == scale_b->dtype && scale_a->shape == scale_b->shape;
}

// The matrices that both are windows of. Without scales, rows mean nothing: one row.
Matrices matrices_of(const Pair& pair) {
  if (pair.a->codes == nullptr && pair.b->codes == nullptr)
    return {1, 1, element_count(pair.a->shape).value()};
  return as_matrices(pair.a->shape);
}

Result<void> compare_window(const Pair& pair, const Window& window,
                            std::array<ValueScratch, 2>& scratch, ValueSums& sums) {
  const Matrices m = matrices_of(pair);
  const bool wide = needs_long_double(*pair.a) || needs_long_double(*pair.b);
  OCTAVO_CHECK(read_values(*pair.a, m, window, wide, scratch[0]));
  OCTAVO_CHECK(read_values(*pair.b, m, window, wide, scratch[1]));
  const RowGrids grids_a(*pair.a, window, scratch[0]);
  const RowGrids grids_b(*pair.b, window, scratch[1]);
  for (std::uint64_t row = window.row; row < window.row + window.rows; ++row) {
    const std::uint64_t start = (row - window.row) * window.cols;
    for (std::uint64_t col = window.col; col < window.col + window.cols;) {
      const std::uint64_t end = std::min(grids_a.end(col), grids_b.end(col));
      const std::uint64_t index = (window.slice * m.rows + row) * m.cols + col;
      const RoundingGrid grid_a = grids_a.at(row, col);
      const RoundingGrid grid_b = grids_b.at(row, col);
      const auto part = [&](const auto& values) {
        return std::span(values).subspan(start + col - window.col, end - col);
      };
      if (wide) {
        compare_run(part(scratch[0].wide), part(scratch[1].wide), grid_a, grid_b, index, sums);
      } else {
        compare_run(part(scratch[0].narrow), part(scratch[1].narrow), grid_a, grid_b, index, sums);
      }
      col = end;
    }
  }
  return {};
}

class Comparer {
 public:
  Comparer(std::vector<Pair> pairs, const CompareOptions& options)
      : options_(options),
        pairs_(std::move(pairs)),
        different_(pairs_.size()),
        scratch_(static_cast<std::size_t>(options.threads)) {}

  Result<std::vector<Pair>> run() {
    for (Pair& pair : pairs_) {
      pair.same_bits = pair.same_shape() && is_stored_alike(*pair.a, *pair.b);
      if (pair.same_shape()) total_ += pair.bytes();
    }
    OCTAVO_CHECK(find_same_bits());
    OCTAVO_CHECK(measure());
    return std::move(pairs_);
  }

 private:
  // A stretch of the bytes of a tensor and its counterpart, or of their scales.
  struct Stretch {
    std::size_t pair;
    bool scale;
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  struct PairWindow {
    std::size_t pair;
    Window at;
  };

  void progress(std::uint64_t bytes) {
    const std::uint64_t done = done_.fetch_add(bytes) + bytes;
    if (options_.on_progress) options_.on_progress(done, total_);
  }

  Result<void> compare_stretch(const Stretch& stretch, std::array<ValueScratch, 2>& scratch) {
    const Pair& pair = pairs_[stretch.pair];
    if (!different_[stretch.pair]) {
      const auto read = [&](const ComparedTensor& side, std::vector<std::byte>& to) {
        to.resize(stretch.bytes);
        const Checkpoint& checkpoint = *side.checkpoint;
        return checkpoint.read(
            stretch.scale ? checkpoint.tensors[*side.codes->scale] : *side.stored, stretch.offset,
            to);
      };
      OCTAVO_CHECK(read(*pair.a, scratch[0].raw));
      OCTAVO_CHECK(read(*pair.b, scratch[1].raw));
      if (std::memcmp(scratch[0].raw.data(), scratch[1].raw.data(), stretch.bytes) != 0)
        different_[stretch.pair] = true;
    }
    if (!stretch.scale) progress(2 * stretch.bytes);
    return {};
  }

  Result<void> compare_stretches(std::vector<Stretch>& batch) {
    OCTAVO_CHECK(parallel_for(batch.size(), options_.threads, [&](int worker, std::size_t i) {
      return compare_stretch(batch[i], scratch_[static_cast<std::size_t>(worker)]);
    }));
    batch.clear();
    return {};
  }

  Result<void> find_same_bits() {
    std::vector<Stretch> batch;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (!pairs_[i].same_bits) continue;
      const TensorInfo* scale = scale_of(*pairs_[i].a);
      const std::uint64_t sizes[] = {pairs_[i].a->stored->info.bytes,
                                     scale != nullptr ? scale->bytes : 0};
      for (const bool of_scale : {false, true}) {
        const std::uint64_t size = sizes[of_scale ? 1 : 0];
        for (std::uint64_t at = 0; at < size; at += kCopyBytes) {
          batch.push_back({i, of_scale, at, std::min(kCopyBytes, size - at)});
          if (batch.size() == kBatch) OCTAVO_CHECK(compare_stretches(batch));
        }
      }
    }
    OCTAVO_CHECK(compare_stretches(batch));
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (!pairs_[i].same_bits || !different_[i]) continue;
      pairs_[i].same_bits = false;
      total_ += pairs_[i].bytes();  // it is read once more
    }
    return {};
  }

  Result<void> measure_windows(std::vector<PairWindow>& batch) {
    std::vector<ValueSums> results(batch.size());
    OCTAVO_CHECK(parallel_for(batch.size(), options_.threads, [&](int worker, std::size_t i) {
      const Pair& pair = pairs_[batch[i].pair];
      const double share = static_cast<double>(batch[i].at.count()) /
                           static_cast<double>(element_count(pair.a->shape).value());
      const Result<void> result =
          compare_window(pair, batch[i].at, scratch_[static_cast<std::size_t>(worker)], results[i]);
      progress(static_cast<std::uint64_t>(share * static_cast<double>(pair.bytes())));
      return result;
    }));
    // In the order of windows, so that sums do not depend on threads.
    for (std::size_t i = 0; i < batch.size(); ++i) pairs_[batch[i].pair].sums.add(results[i]);
    batch.clear();
    return {};
  }

  Result<void> measure() {
    std::vector<PairWindow> batch;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const Pair& pair = pairs_[i];
      if (!pair.same_shape() || pair.same_bits || element_count(pair.a->shape) == 0) continue;
      const Matrices m = matrices_of(pair);
      const std::uint64_t cols = std::min(m.cols, kMaxWindowElements);
      const std::uint64_t rows = std::min(m.rows, kMaxWindowElements / cols);
      for (std::uint64_t slice = 0; slice < m.slices; ++slice) {
        for (std::uint64_t r = 0; r < m.rows; r += rows) {
          for (std::uint64_t c = 0; c < m.cols; c += cols) {
            batch.push_back(
                {i, {slice, r, std::min(rows, m.rows - r), c, std::min(cols, m.cols - c)}});
            if (batch.size() == kBatch) OCTAVO_CHECK(measure_windows(batch));
          }
        }
      }
    }
    return measure_windows(batch);
  }

  const CompareOptions& options_;
  std::vector<Pair> pairs_;
  std::vector<std::atomic<bool>> different_;
  std::vector<std::array<ValueScratch, 2>> scratch_;
  std::uint64_t total_ = 0;
  std::atomic<std::uint64_t> done_ = 0;
};

double as_double(long double x) {
  return static_cast<double>(
      std::min(x, static_cast<long double>(std::numeric_limits<double>::max())));
}

Difference difference_of(const ValueSums& sums, std::uint64_t elements) {
  Difference d{elements, sums.differing, sums.non_finite, as_double(sums.max_abs), 0, 0, 1};
  const std::uint64_t finite = elements - sums.non_finite;
  if (finite > 0) d.rms = as_double(std::sqrt(sums.dd / static_cast<long double>(finite)));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  d.snr_db = sums.non_finite > 0 ? -kInfinity
             : sums.dd == 0      ? kInfinity
                                 : static_cast<double>(10 * std::log10(sums.aa / sums.dd));
  if (sums.differing == sums.non_finite || (sums.aa == 0 && sums.bb == 0)) {
    d.cosine = 1;
  } else if (sums.aa == 0 || sums.bb == 0) {
    d.cosine = 0;
  } else {
    d.cosine = static_cast<double>(
        std::clamp(sums.ab / std::sqrt(sums.aa) / std::sqrt(sums.bb), -1.0L, 1.0L));
  }
  return d;
}

StoredTensor stored(const ComparedTensor& tensor) {
  StoredTensor result{tensor.stored->info.dtype, tensor.shape, {}, {}};
  const TensorInfo* scale = scale_of(tensor);
  if (scale == nullptr) return result;
  result.scale_dtype = scale->dtype;
  result.block = tensor.codes->layout.block;
  return result;
}

Verdict verdict_of(const Pair& pair) {
  if (!pair.a || !pair.b) return Verdict::missing;
  if (!pair.same_shape()) return Verdict::different;
  if (pair.same_bits) return Verdict::equal_bits;
  if (pair.sums.differing == 0) return Verdict::equal_values;
  return pair.sums.beyond_rounding ? Verdict::different : Verdict::rounded;
}

TensorComparison describe(const Pair& pair) {
  TensorComparison result{pair.name, verdict_of(pair), {}, {}, {}, {}};
  if (pair.a) result.a = stored(*pair.a);
  if (pair.b) result.b = stored(*pair.b);
  if (!pair.same_shape()) return result;
  result.difference = difference_of(pair.sums, element_count(pair.a->shape).value());
  if (pair.sums.worst) {
    const ValueSums::Element& worst = *pair.sums.worst;
    result.worst = {unravel(worst.index, pair.a->shape), static_cast<double>(worst.a),
                    static_cast<double>(worst.b)};
  }
  return result;
}

bool is_worse(const TensorComparison& x, const TensorComparison& y) {
  if (x.verdict != y.verdict) return x.verdict < y.verdict;
  const auto snr = [](const TensorComparison& t) {
    return t.difference ? t.difference->snr_db : -std::numeric_limits<double>::infinity();
  };
  if (snr(x) != snr(y)) return snr(x) < snr(y);
  return x.name < y.name;
}

Result<Pairing> pair_side(const Checkpoint& checkpoint, const PairingOptions& options,
                          std::vector<std::string>& warnings) {
  Pairing pairing = pair_scales(checkpoint, options);
  constexpr std::size_t kShown = 10;
  const std::size_t count = pairing.problems.size();
  for (std::size_t i = 0; i < std::min(kShown, count); ++i)
    warnings.push_back(pairing.problems[i].message + "; compared as it is stored");
  if (count > kShown) {
    warnings.push_back(fmt::format("{}: and {} more; octavo verify lists all",
                                   checkpoint.directory.string(), count - kShown));
  }
  return pairing;
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"missing", "different", "rounded", "equal_values",
                                         "equal_bits"};
  return kNames[static_cast<std::size_t>(verdict)];
}

Result<Comparison> compare_checkpoints(const Checkpoint& a, const Checkpoint& b,
                                       const CompareOptions& options) {
  Comparison comparison;
  OCTAVO_TRY(const Pairing pairing_a, pair_side(a, options.pairing, comparison.warnings));
  OCTAVO_TRY(const Pairing pairing_b, pair_side(b, options.pairing, comparison.warnings));
  const Side side_a = side_of(a, pairing_a, pairing_b);
  const Side side_b = side_of(b, pairing_b, pairing_a);
  OCTAVO_TRY(const std::vector<Pair> pairs, Comparer(pairs_of(side_a, side_b), options).run());

  ValueSums differing;
  std::uint64_t elements = 0;
  for (const Pair& pair : pairs) {
    comparison.tensors.push_back(describe(pair));
    const TensorComparison& tensor = comparison.tensors.back();
    ++comparison.counts[static_cast<std::size_t>(tensor.verdict)];
    if (!tensor.difference) continue;
    comparison.elements += tensor.difference->elements;
    if (tensor.verdict >= Verdict::equal_values) continue;
    differing.add(pair.sums);
    elements += tensor.difference->elements;
  }
  comparison.differing = difference_of(differing, elements);
  std::ranges::sort(comparison.tensors, is_worse);
  return comparison;
}

}  // namespace octavo
