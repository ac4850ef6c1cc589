// The journal of a run that writes a directory: what it was asked for, what of that is on the
// device. docs/decisions/006-resume.md has the format and why.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/file.h"
#include "octavo/base/json.h"
#include "octavo/checkpoint/conversion.h"
#include "octavo/checkpoint/output_shards_internal.h"

namespace octavo {

// A leftover to readers, as every partial file is.
inline constexpr std::string_view kJournalName = ".octavo-resume.jsonl.partial";

// What a directory holds. The order is that of time.
enum class Phase : std::uint8_t {
  writing,     // an old model, if any; new files beside their final names
  removing,    // everything new is whole and on the device; the old model goes
  publishing,  // the old model is gone; new files get their names
};

// What a shard adds to the report.
struct ShardResult {
  std::uint64_t non_finite = 0;
  QuantizationError error;
  std::vector<TensorCounts> counts;
};

struct FinishedShard {
  std::size_t shard;   // its place among the shards of the run
  std::string name;    // for people
  std::uint64_t size;  // of the partial file, whole and flushed
  std::int64_t mtime_ns;
  ShardResult result;
};

// One file of the source. `hash`: of a shard's header, of the index, of config.json; else empty.
struct InputFile {
  std::string name;
  FileStamp stamp;
  std::string hash;
};

// What decides every byte of the output. Two runs with the same identity write the same files.
struct RunIdentity {
  std::vector<InputFile> input;  // by name
  OrderedJson options;           // flags and their values, as the command line spells them
  std::string plan;              // hash of what happens to each tensor, headers, config.json
};
Result<RunIdentity> identify_run(const Checkpoint& checkpoint, const ConversionPlan& plan,
                                 const std::vector<OutputShard>& shards, OrderedJson options);

struct JournalState {
  Json header;
  bool overwrite = false;  // it was granted
  bool created = false;    // the directory is the run's own
  Phase phase = Phase::writing;
  std::vector<FinishedShard> finished;
};

// The journal of an unfinished run in `directory`, if there is one. A last line that was cut off is
// passed over; bad_file for anything else that cannot be read.
Result<std::optional<JournalState>> read_journal(const std::filesystem::path& directory);

// Those of its finished shards that stand as they were left, the last word on each, by shard.
// `names`: of the shards of the run; empty where that is not known.
std::vector<FinishedShard> standing_shards(const JournalState& journal,
                                           const std::filesystem::path& directory,
                                           const std::vector<std::string>& names);

// bad_model where the input changed, bad_value where something else was asked for; the message
// names the first thing that differs.
Result<void> check_same_run(const JournalState& journal, const RunIdentity& identity,
                            const std::filesystem::path& directory);

// Lines of a journal.
std::string header_line(const RunIdentity& identity, std::size_t shards, bool overwrite,
                        bool created);
std::string shard_line(const FinishedShard& shard);
std::string phase_line(Phase phase);

// Appended to, and each line on the device before append() returns.
class Journal {
 public:
  // In the place of one that is there, with these lines: at any moment the old one or the new one.
  static Result<Journal> create(const std::filesystem::path& directory,
                                const std::vector<std::string>& lines);
  Result<void> append(std::string_view line);

 private:
  explicit Journal(File file) : file_(std::move(file)) {}
  File file_;
  std::uint64_t size_ = 0;
};

}  // namespace octavo
