// A training state in one safetensors file, and Flax's.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/train/train_state.h"

namespace octavo {

// Every collection under its path, the optimizer's state under "opt_state/", "step" (i32).
// Metadata: {"format": "octavo.train_state", "version": "1"}. Durable, the whole file or nothing;
// its size does not depend on the step. unsupported: a step that i32 does not hold; two parts of
// the state with one name in the file (a collection "opt_state", say).
Result<void> save_train_state(const std::filesystem::path& path, const TrainState& state);

// What a file held.
struct RestoredState {
  TrainState state;
  // One line each: what the file lacked, and what stands instead; what it does not tell.
  std::vector<std::string> notes;
};

// The state of the file, for a run that begins as `initial`, whose optimizer it takes. Where the
// file has less, `initial` stands and a note says so: no FP8 state (weights alone), none of the
// optimizer. Histories of another length: the newest entries are kept.
// unsupported: a state of another version. bad_file: no whole safetensors file; a step that is no
// whole number (i32 or i64) from 0; a parameter, or a part of the optimizer's state, that is
// missing or has another shape or type; a tensor that this run does not have.
Result<RestoredState> load_train_state(const std::filesystem::path& path,
                                       const TrainState& initial);

// A Flax TrainState, flattened with '/' between names (flax.traverse_util.flatten_dict of
// flax.serialization.to_state_dict): "step", "params/params/Dense_0/kernel",
// "params/_overwrite_with_gradient/...", "opt_state/0/mu/...". Without FP8 state Flax's field holds
// the parameters themselves: "params/Dense_0/kernel". Errors are those above.
// exchanged: the modules whose einsums JAX multiplies the other way round (is_exchanged_by_jax), by
// their paths as "attention/Fp8Einsum_1"; "" is the root. What is input_* of such a module here is
// kernel_* in the file, which itself does not tell. The Fp8Einsum_1 of every attention is one.
// Where state of modules "Fp8Einsum..." is read and `exchanged` is empty, a note says what was
// assumed. ContractError: a path of `exchanged` that has no such state.
Result<void> export_flax_state(const std::filesystem::path& path, const TrainState& state,
                               const std::vector<std::string>& exchanged = {});
Result<RestoredState> import_flax_state(const std::filesystem::path& path,
                                        const TrainState& initial,
                                        const std::vector<std::string>& exchanged = {});

}  // namespace octavo
