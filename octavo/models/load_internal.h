// Reads the parameters of a model, each once, and remembers which were read.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/models/load.h"

namespace octavo::models {

// Rows of a weight that a file holds with others, gate and up in one tensor of `all` rows.
struct RowRange {
  std::size_t begin = 0, end = 0, all = 0;
};

class ParameterReader {
 public:
  ParameterReader(const Checkpoint& checkpoint, const LoadOptions& options);

  // Pairs scales and plans the quantization at load.
  Result<void> prepare();

  bool has(std::string_view tensor) const { return checkpoint_.find(tensor) != nullptr; }

  // A vector of `size`, wide: a bias, a norm; or elements `rows` of one.
  Result<std::vector<float>> vector(const std::string& tensor, std::size_t size,
                                    const RowRange* rows = nullptr);

  // "<module>.weight" (n, k), or rows of it where a file has it fused with others (`rows` set).
  Result<ops::PackedWeight> weight(const std::string& tensor, std::size_t n, std::size_t k,
                                   const RowRange* rows = nullptr);

  // A scale: one positive number, else bad_model with `advice`.
  Result<float> positive_number(const CheckpointTensor& tensor, std::string_view advice = "");

  // "<module>.weight", "<module>.bias" where `bias` says so, its static activation scale.
  Result<nn::Linear> linear(const std::string& module, std::size_t n, std::size_t k, bool bias,
                            const RowRange* rows = nullptr);

  // Settles where weights are, for a model of this config. After prepare().
  Result<void> place(const ModelConfig& config);
  const PlacementReport& placement() const { return placement_; }
  std::vector<FileMapping> take_mappings();

  // Names that nothing asked for.
  std::vector<std::string> unread() const;
  void mark_read(std::string_view tensor) { read_.emplace(tensor); }

  const Pairing& pairing() const { return pairing_; }
  std::vector<std::string> warnings() const {  // of the plan to quantize
    return plan_ ? plan_->warnings : std::vector<std::string>{};
  }
  std::uint64_t largest_buffer() const { return largest_buffer_; }

 private:
  Result<const CheckpointTensor*> find(const std::string& tensor, const Shape& shape,
                                       const RowRange* rows);
  Result<ops::PackedWeight> wide(const CheckpointTensor& tensor, std::size_t n, std::size_t k,
                                 std::size_t first_row, bool quantize);
  Result<ops::PackedWeight> codes(const CheckpointTensor& tensor, const QuantizedWeight& weight,
                                  std::size_t n, std::size_t k, std::size_t first_row);
  Result<void> check_width(const CheckpointTensor& tensor, const BlockSize& block,
                           std::size_t k) const;
  // Rows of a weight left in its file; nothing where weights are packed, or where the file has
  // these elements at addresses that they must not have.
  Result<std::optional<ops::PackedWeight>> mapped(const CheckpointTensor& tensor, Format format,
                                                  std::size_t n, std::size_t k,
                                                  std::size_t first_row,
                                                  const ops::ScaleGrid& scale);
  Result<std::vector<float>> scales(const QuantizedWeight& weight);
  std::size_t index(const CheckpointTensor& tensor) const {
    return static_cast<std::size_t>(&tensor - checkpoint_.tensors.data());
  }
  void count(std::uint64_t bytes);
  void note_buffer(std::uint64_t bytes) { largest_buffer_ = std::max(largest_buffer_, bytes); }

  const Checkpoint& checkpoint_;
  const LoadOptions& options_;
  const Context& context_;
  Pairing pairing_;
  std::optional<ConversionPlan> plan_;
  std::set<std::string, std::less<>> read_;
  std::uint64_t bytes_done_ = 0;
  std::uint64_t largest_buffer_ = 0;
  bool maps_ = false;
  PlacementReport placement_;
  std::vector<std::optional<FileMapping>> mappings_;  // by shard, of those with mapped weights
};

}  // namespace octavo::models
