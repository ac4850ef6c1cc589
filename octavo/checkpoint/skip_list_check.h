// The skip list of a model's config against its tensors, which decide: what it names, what it
// misses, and where it is wrong.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint.h"
#include "octavo/checkpoint/pairing.h"

namespace octavo {

struct SkipEntry {
  std::string entry;       // as written
  std::string normalized;  // without wrappers and ".weight"
  std::size_t tensors;     // that it names, scales aside
  std::string nearest;     // of an entry that names none: the module that may be meant, or empty
};

struct SkipListCheck {
  std::string origin;              // "ignored_layers in config.json"; empty: no list
  std::vector<SkipEntry> entries;  // in their order, each once
  std::size_t unused = 0;          // entries that name no tensor
  // Indices into Checkpoint::tensors:
  std::vector<std::size_t> quantized;  // named, but quantized with a scale: the file counts
  // Matrices of a model with quantized weights that are wide, that no entry names, and that loaders
  // do not leave wide unasked.
  std::vector<std::size_t> unlisted;
};

// bad_model: an entry is no regular expression.
Result<SkipListCheck> check_skip_list(const Checkpoint& checkpoint, const Pairing& pairing);

// One line each for all entries or tensors of a kind, with the first few; nullopt where there are
// none.
std::optional<std::string> unused_entries_line(const SkipListCheck& check);
std::optional<std::string> quantized_line(const Checkpoint& checkpoint, const SkipListCheck& check);
std::optional<std::string> unlisted_line(const Checkpoint& checkpoint, const SkipListCheck& check);

}  // namespace octavo
