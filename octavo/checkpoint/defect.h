// What can be wrong with a checkpoint, under stable codes: `verify` lists all of them, every other
// command stops at the first.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {

// Spelled with '-' in reports ("lfs-pointer"). A code is never renamed or given a second meaning.
enum class DefectCode : std::uint8_t {
  // a weight file
  unreadable,
  lfs_pointer,
  truncated,
  header_too_small,
  header_too_large,
  header_over_limit,
  header_syntax,
  duplicate_key,
  tensor_info,
  offsets,
  unknown_dtype,
  size_overflow,
  size_mismatch,
  overlap,
  hole,
  trailing_bytes,
  // the directory and its index
  broken_link,
  no_weights,
  ambiguous_weights,
  missing_file,
  index_syntax,
  index_path,
  index_stale,
  index_wrong_file,
  index_missing_tensor,
  index_unlisted_tensor,
  duplicate_tensor,
  // the config against the tensors
  config_syntax,
  config_block_size,
  config_value,
  config_claims_quantized,
  config_lacks_quantization,
  config_quantization,
  skip_entry_syntax,
  // weights and their scales
  missing_scale,
  unused_scale,
  scale_shape,
  scale_dtype,
  scales_differ,
  raw_bytes,
  unsupported_format,
  // values
  scale_nan,
  scale_infinite,
  scale_zero,
  scale_negative,
  scale_not_power_of_two,
  nan_code,
  nan_value,
  infinite_value,
  // worth knowing, no defects
  other_weights,
  total_size,
  unfinished_run,
  config_note,
  skip_entry_unused,
  skip_entry_quantized,
  skip_list_incomplete,
  all_zero,
};

struct DefectInfo {
  DefectCode code;
  std::string_view name;     // "lfs-pointer"
  ErrorCode error;           // of a command that stops at it
  bool fetch_again;          // the file is damaged: a fresh copy of it is the remedy
  std::string_view meaning;  // one phrase
};

const DefectInfo& defect_info(DefectCode code);
std::span<const DefectInfo> all_defects();  // in the order of the enumerators
inline std::string_view defect_name(DefectCode code) { return defect_info(code).name; }

struct Defect {
  DefectCode code;
  std::string file;                     // path; empty: the directory as a whole
  std::string tensor;                   // empty: none in particular
  std::optional<std::uint64_t> offset;  // into the file
  std::string message;                  // one printable line that names all of these
};
using Defects = std::vector<Defect>;

// `message` is made printable, and ends with the advice to fetch the file again where that helps.
Defect make_defect(DefectCode code, std::string_view file, std::string_view tensor,
                   std::optional<std::uint64_t> offset, std::string_view message);

Error to_error(const Defect& defect);

// "a, b, c and 5 more": at most three of `names`.
std::string first_names(std::span<const std::string> names);

}  // namespace octavo
