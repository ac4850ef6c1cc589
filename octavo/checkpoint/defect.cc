#include "octavo/checkpoint/defect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace octavo {
namespace {

using enum DefectCode;
using enum ErrorCode;

constexpr std::size_t kMaxMessage =
    8192;  // names and shapes of a header can have millions of bytes

constexpr std::array kDefects = {
    DefectInfo{unreadable, "unreadable", io, true, "the system cannot open or read the file"},
    DefectInfo{lfs_pointer, "lfs-pointer", bad_file, true,
               "a Git LFS pointer in the place of the weights"},
    DefectInfo{truncated, "truncated", bad_file, true,
               "the file ends before its header or its tensors do"},
    DefectInfo{header_too_small, "header-too-small", bad_file, true, "too short to hold a header"},
    DefectInfo{header_too_large, "header-too-large", bad_file, true,
               "a header larger than the file and any that is allowed is declared"},
    DefectInfo{header_over_limit, "header-over-limit", bad_file, false,
               "a header above the limit; --max-header-size raises it"},
    DefectInfo{header_syntax, "header-syntax", bad_file, true,
               "the header is no JSON object of the expected form"},
    DefectInfo{duplicate_key, "duplicate-key", bad_file, true, "a key stands there twice"},
    DefectInfo{tensor_info, "tensor-info", bad_file, true,
               "dtype, shape or data_offsets missing or of the wrong type"},
    DefectInfo{offsets, "offsets", bad_file, true, "data_offsets that are no range"},
    DefectInfo{unknown_dtype, "unknown-dtype", unsupported, false,
               "an element type that is not known"},
    DefectInfo{size_overflow, "size-overflow", bad_file, true,
               "a shape whose bytes do not fit 64 bits, or no whole number of bytes"},
    DefectInfo{size_mismatch, "size-mismatch", bad_file, true,
               "data_offsets span other bytes than dtype and shape take"},
    DefectInfo{overlap, "overlap", bad_file, true, "two tensors claim the same bytes"},
    DefectInfo{hole, "hole", bad_file, true, "bytes between tensors that belong to none"},
    DefectInfo{trailing_bytes, "trailing-bytes", bad_file, true, "bytes after the last tensor"},
    DefectInfo{broken_link, "broken-link", bad_model, true,
               "a link to a file that is not there, or no regular file"},
    DefectInfo{no_weights, "no-weights", bad_model, false, "no .safetensors file"},
    DefectInfo{ambiguous_weights, "ambiguous-weights", bad_model, false,
               "several weight files and no index, or one shard of many"},
    DefectInfo{missing_file, "missing-file", bad_model, true,
               "the index names a file that is not there"},
    DefectInfo{index_syntax, "index-syntax", bad_file, true,
               "the index is not JSON of the expected form"},
    DefectInfo{index_path, "index-path", bad_file, false, "the index leads out of the directory"},
    DefectInfo{index_stale, "index-stale", bad_model, false,
               "the index names none of the weight files that are there"},
    DefectInfo{index_wrong_file, "index-wrong-file", bad_model, false,
               "a tensor is in another file than the index says"},
    DefectInfo{index_missing_tensor, "index-missing-tensor", bad_model, false,
               "the index names a tensor that no file holds"},
    DefectInfo{index_unlisted_tensor, "index-unlisted-tensor", bad_model, false,
               "a file holds a tensor that the index does not name"},
    DefectInfo{duplicate_tensor, "duplicate-tensor", bad_model, false,
               "two files hold a tensor of one name"},
    DefectInfo{config_syntax, "config-syntax", bad_file, true,
               "config.json or hf_quant_config.json is no JSON object"},
    DefectInfo{config_block_size, "config-block-size", bad_model, false,
               "weight_block_size is no pair of positive numbers"},
    DefectInfo{config_value, "config-value", bad_model, false,
               "a count that is none, or that the tensors contradict"},
    DefectInfo{config_claims_quantized, "config-claims-quantized", bad_model, false,
               "the config says quantized, no tensor is"},
    DefectInfo{config_lacks_quantization, "config-lacks-quantization", bad_model, false,
               "tensors are quantized, the config does not say so"},
    DefectInfo{config_quantization, "config-quantization", bad_model, false,
               "the config says other blocks, formats or scales than the tensors have"},
    DefectInfo{skip_entry_syntax, "skip-entry-syntax", bad_model, false,
               "an entry of the list of unconverted modules that is no regular expression"},
    DefectInfo{missing_scale, "missing-scale", bad_model, false, "FP8 without a scale"},
    DefectInfo{unused_scale, "unused-scale", bad_model, false,
               "a scale without a quantized weight"},
    DefectInfo{scale_shape, "scale-shape", bad_model, false, "scales that do not fit their weight"},
    DefectInfo{scale_dtype, "scale-dtype", unsupported, false, "scales of a dtype that holds none"},
    DefectInfo{scales_differ, "scales-differ", bad_model, false,
               "scales under two names with different values"},
    DefectInfo{raw_bytes, "raw-bytes", bad_model, false,
               "U8 with a scale beside it: FP8 bytes that do not say so"},
    DefectInfo{unsupported_format, "unsupported-format", unsupported, false,
               "codes of a format that is not read"},
    DefectInfo{scale_nan, "scale-nan", bad_model, false, "a scale that is NaN"},
    DefectInfo{scale_infinite, "scale-infinite", bad_model, false, "a scale that is infinite"},
    DefectInfo{scale_zero, "scale-zero", bad_model, false, "a scale that is zero"},
    DefectInfo{scale_negative, "scale-negative", bad_model, false, "a scale below zero"},
    DefectInfo{scale_not_power_of_two, "scale-not-power-of-two", bad_model, false,
               "scale_fmt ue8m0, and a scale that is no power of two"},
    DefectInfo{nan_code, "nan-code", bad_model, false, "codes that are NaN (--full)"},
    DefectInfo{nan_value, "nan-value", bad_model, false, "NaN in a wide tensor (--full)"},
    DefectInfo{infinite_value, "infinite-value", bad_model, false,
               "infinity in a wide tensor or in E5M2 codes (--full)"},
    DefectInfo{other_weights, "other-weights", bad_model, false,
               "weights in another form, or of another set, that are not read"},
    DefectInfo{total_size, "total-size", bad_model, false,
               "the index's total_size is not the sum of tensor bytes"},
    DefectInfo{unfinished_run, "unfinished-run", bad_model, false,
               "temporary files of a run that did not end"},
    DefectInfo{config_note, "config-note", bad_model, false,
               "what the config says of KV cache, groups and the like"},
    DefectInfo{skip_entry_unused, "skip-entry-unused", bad_model, false,
               "entries of the list of unconverted modules that name nothing"},
    DefectInfo{skip_entry_quantized, "skip-entry-quantized", bad_model, false,
               "modules on that list whose tensors are quantized"},
    DefectInfo{skip_list_incomplete, "skip-list-incomplete", bad_model, false,
               "wide matrices of a quantized model that are not on that list"},
    DefectInfo{all_zero, "all-zero", bad_model, false,
               "a matrix whose bytes are all zero (--full)"},
};
static_assert(kDefects.size() == static_cast<std::size_t>(all_zero) + 1);
static_assert([] {
  for (std::size_t i = 0; i < kDefects.size(); ++i) {
    if (kDefects[i].code != static_cast<DefectCode>(i)) return false;
  }
  return true;
}());

}  // namespace

const DefectInfo& defect_info(DefectCode code) { return kDefects[static_cast<std::size_t>(code)]; }

std::span<const DefectInfo> all_defects() { return kDefects; }

namespace {

// Of those that a fresh copy of the file mends: where the message says more than that already.
bool has_own_advice(DefectCode code) {
  return code == unreadable || code == lfs_pointer || code == broken_link || code == missing_file;
}

}  // namespace

Defect make_defect(DefectCode code, std::string_view file, std::string_view tensor,
                   std::optional<std::uint64_t> offset, std::string_view message) {
  std::string shown = printable(message.substr(0, kMaxMessage));
  if (message.size() > kMaxMessage) shown += " ...";
  if (defect_info(code).fetch_again && !has_own_advice(code)) shown += "; fetch this file again";
  return {code, std::string(file), std::string(tensor), offset, std::move(shown)};
}

Error to_error(const Defect& defect) { return {defect_info(defect.code).error, defect.message}; }

std::string first_names(std::span<const std::string> names) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (const std::string& name : names.first(std::min(kShown, names.size())))
    text += (text.empty() ? "" : ", ") + name;
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

}  // namespace octavo
