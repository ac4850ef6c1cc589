#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <map>

#include "octavo/checkpoint/resume_internal.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;
constexpr std::uint64_t kMaxJournalBytes = std::uint64_t{1} << 30;
constexpr std::array<std::string_view, 3> kPhases = {"writing", "removing", "publishing"};

// Names of files may be no UTF-8.
std::string dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string hash_of(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string hash_of(std::string_view text) { return hash_of(std::as_bytes(std::span(text))); }

// Of the length and the header.
Result<std::string> hash_of_head(const fs::path& path) {
  OCTAVO_TRY(const File file, File::open(path));
  std::uint64_t length = 0;
  OCTAVO_CHECK(file.read_at(0, std::as_writable_bytes(std::span(&length, 1))));
  std::vector<std::byte> head(8 + std::min(length, kMaxHeaderBytes));
  OCTAVO_CHECK(file.read_at(0, head));
  return hash_of(head);
}

// A sum must come back to the bit, infinity and NaN included.
std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }
double number_of(const Json& bits) { return std::bit_cast<double>(bits.get<std::uint64_t>()); }

FinishedShard finished_from(const Json& line) {
  FinishedShard shard{line.at("shard").get<std::size_t>(),
                      line.at("name").get<std::string>(),
                      line.at("size").get<std::uint64_t>(),
                      line.at("mtime_ns").get<std::int64_t>(),
                      {}};
  shard.result.non_finite = line.at("non_finite").get<std::uint64_t>();
  const Json& error = line.at("error_bits");
  shard.result.error = {number_of(error.at(0)), number_of(error.at(1)), number_of(error.at(2)),
                        line.at("elements").get<std::uint64_t>()};
  for (const Json& entry : line.at("counts")) {
    shard.result.counts.push_back(
        {entry.at(0).get<std::string>(),
         {entry.at(1).get<std::uint64_t>(), entry.at(2).get<std::uint64_t>(),
          entry.at(3).get<std::uint64_t>()}});
  }
  return shard;
}

// False where the line is none of a journal.
bool take_line(std::string_view text, bool first, JournalState& state) {
  try {
    Result<Json> parsed = parse_json(text, kJournalName);
    if (!parsed) return false;
    Json line = *std::move(parsed);
    if (first) {
      if (line.at("octavo_resume").get<int>() != kFormat) return false;
      state.overwrite = line.at("overwrite").get<bool>();
      state.created = line.at("created").get<bool>();
      for (const char* needed : {"input", "options", "plan"}) line.at(needed);
      line.at("shards").get<std::size_t>();
      state.header = std::move(line);
    } else if (line.contains("phase")) {
      const auto phase = std::ranges::find(kPhases, line.at("phase").get<std::string>());
      if (phase == kPhases.end()) return false;
      state.phase = static_cast<Phase>(phase - kPhases.begin());
    } else {
      FinishedShard shard = finished_from(line);
      if (shard.shard >= state.header.at("shards").get<std::size_t>()) return false;
      state.finished.push_back(std::move(shard));
    }
  } catch (const Json::exception&) {
    return false;
  }
  return true;
}

std::string_view difference(const Json& before, const OrderedJson& now) {
  constexpr std::array<std::string_view, 4> kWhat = {
      "its size is another", "it was written to",
      "it was replaced, or changed and its time set back", "its content is another"};
  for (std::size_t i = 0; i < kWhat.size(); ++i) {
    if (before.at(i).dump() != now.at(i).dump()) return kWhat[i];
  }
  return {};
}

OrderedJson input_json(const std::vector<InputFile>& input) {
  OrderedJson json = OrderedJson::array();
  for (const InputFile& file : input) {
    json.push_back(
        {{"name", file.name},
         {"stamp", {file.stamp.size, file.stamp.mtime_ns, file.stamp.ctime_ns, file.hash}}});
  }
  return OrderedJson::parse(dump(json));  // names as they come back from a file
}

// What differs first, as "model.safetensors: its size is another"; empty where nothing does.
std::string input_difference(const Json& before, const OrderedJson& now) {
  std::map<std::string, const Json*> old;
  for (const Json& file : before) old[file.at("name").get<std::string>()] = &file.at("stamp");
  for (const auto& file : now) {
    const auto name = file.at("name").get<std::string>();
    const auto found = old.find(name);
    if (found == old.end()) return name + " is new";
    const std::string_view what = difference(*found->second, file.at("stamp"));
    if (!what.empty()) return fmt::format("{}: {}", name, what);
    old.erase(found);
  }
  return old.empty() ? "" : old.begin()->first + " is gone";
}

std::string words(const Json& value) {
  if (value.is_null()) return "nothing";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

Result<RunIdentity> identify_run(const Checkpoint& checkpoint, const ConversionPlan& plan,
                                 const std::vector<OutputShard>& shards, OrderedJson options) {
  RunIdentity identity;
  std::map<std::string, std::string> files;  // name, hash
  for (const auto* names : {&checkpoint.side_files, &checkpoint.other_weights})
    for (const std::string& name : *names) files[name];
  if (!checkpoint.config_text.empty()) files["config.json"] = hash_of(checkpoint.config_text);
  if (!checkpoint.index_name.empty()) {
    OCTAVO_TRY(const std::string text,
               read_text(checkpoint.directory / checkpoint.index_name, kMaxIndexBytes));
    files[checkpoint.index_name] = hash_of(text);
  }
  for (const Shard& shard : checkpoint.shards) {
    OCTAVO_TRY(files[shard.file_name], hash_of_head(checkpoint.directory / shard.file_name));
  }
  for (const auto& [name, hash] : files) {
    OCTAVO_TRY(const FileStamp stamp, stamp_of(checkpoint.directory / name));
    identity.input.push_back({name, stamp, hash});
  }
  identity.options["version"] = OCTAVO_VERSION;
  identity.options.update(options);
  std::string text = plan.config_text;
  for (const PlannedTensor& planned : plan.tensors)
    text += static_cast<char>('a' + static_cast<int>(planned.action));
  for (const OutputShard& shard : shards) text += shard.file_name + hash_of(shard.head);
  for (const std::string& file : plan.dropped_files) text += file + '\n';
  identity.plan = hash_of(text);
  return identity;
}

Result<std::optional<JournalState>> read_journal(const fs::path& directory) {
  const fs::path path = directory / kJournalName;
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  OCTAVO_TRY(const std::string text, read_text(path, kMaxJournalBytes));
  JournalState state;
  bool sound = !text.empty();
  for (std::size_t at = 0; sound && at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    // The last line may be half written; a header is renamed into its place and never is.
    const bool may_be_cut = at > 0 && end + 1 >= text.size();
    sound = take_line(std::string_view(text).substr(at, end - at), at == 0, state) || may_be_cut;
    at = end + 1;
  }
  if (!sound) {
    return fail(ErrorCode::bad_file, fmt::format("{}: damaged, or of another version; without "
                                                 "--resume the run starts from the beginning",
                                                 path.string()));
  }
  return state;
}

std::vector<FinishedShard> standing_shards(const JournalState& journal, const fs::path& directory,
                                           const std::vector<std::string>& names) {
  std::map<std::size_t, const FinishedShard*> last;
  for (const FinishedShard& shard : journal.finished) last[shard.shard] = &shard;
  std::vector<FinishedShard> standing;
  for (const auto& [index, shard] : last) {
    if (!names.empty() && (index >= names.size() || names[index] != shard->name)) continue;
    const fs::path path = directory / shard->name;
    Result<FileStamp> stamp = stamp_of(partial_path(path));
    if (!stamp && journal.phase == Phase::publishing) stamp = stamp_of(path);
    if (stamp && stamp->size == shard->size && stamp->mtime_ns == shard->mtime_ns)
      standing.push_back(*shard);
  }
  return standing;
}

std::optional<UnfinishedRun> find_unfinished_run(const fs::path& destination) {
  const Result<std::optional<JournalState>> journal = read_journal(destination);
  if (!journal || !*journal) return std::nullopt;
  return UnfinishedRun{standing_shards(**journal, destination, {}).size(),
                       (*journal)->header.at("shards").get<std::size_t>()};
}

Result<void> check_same_run(const JournalState& journal, const RunIdentity& identity,
                            const fs::path& directory) {
  constexpr std::string_view kNext = "without --resume the run starts from the beginning";
  try {
    const std::string changed =
        input_difference(journal.header.at("input"), input_json(identity.input));
    if (!changed.empty()) {
      return fail(ErrorCode::bad_model,
                  fmt::format("{}: --resume: the input changed since the run began: {}; {}",
                              directory.string(), changed, kNext));
    }
    const Json& before = journal.header.at("options");
    const Json now = Json::parse(dump(identity.options));
    for (const auto& [key, value] : identity.options.items()) {
      const Json old = before.value(key, Json());
      if (old == now.at(key)) continue;
      return fail(ErrorCode::bad_value,
                  fmt::format("{}: --resume: the run was begun with {} {}, not {}; {}",
                              directory.string(), key, words(old), words(now.at(key)), kNext));
    }
    if (before.size() == now.size() && journal.header.at("plan") == identity.plan) return {};
  } catch (const Json::exception&) {
    return fail(ErrorCode::bad_file,
                fmt::format("{}: damaged; {}", (directory / kJournalName).string(), kNext));
  }
  return fail(ErrorCode::bad_value,
              fmt::format("{}: --resume: the run was begun with another plan; {}",
                          directory.string(), kNext));
}

std::string header_line(const RunIdentity& identity, std::size_t shards, bool overwrite,
                        bool created) {
  return dump({{"octavo_resume", kFormat},
               {"input", input_json(identity.input)},
               {"options", identity.options},
               {"plan", identity.plan},
               {"shards", shards},
               {"overwrite", overwrite},
               {"created", created}});
}

std::string shard_line(const FinishedShard& shard) {
  const ShardResult& result = shard.result;
  OrderedJson counts = OrderedJson::array();
  for (const TensorCounts& entry : result.counts) {
    counts.push_back(OrderedJson::array(
        {entry.name, entry.counts.overflow, entry.counts.underflow, entry.counts.nan}));
  }
  const QuantizationError& error = result.error;
  return dump({{"shard", shard.shard},
               {"name", shard.name},
               {"size", shard.size},
               {"mtime_ns", shard.mtime_ns},
               {"non_finite", result.non_finite},
               {"error_bits",
                {bits_of(error.max_abs), bits_of(error.sum_squared_error),
                 bits_of(error.sum_squared_source)}},
               {"elements", error.elements},
               {"counts", std::move(counts)}});
}

std::string phase_line(Phase phase) {
  return dump({{"phase", kPhases[static_cast<std::size_t>(phase)]}});
}

Result<Journal> Journal::create(const fs::path& directory, const std::vector<std::string>& lines) {
  const fs::path path = directory / kJournalName;
  OCTAVO_TRY(File file, File::create(partial_path(path)));
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  OCTAVO_CHECK(file.write_at(0, std::as_bytes(std::span(text))));
  OCTAVO_CHECK(file.sync());
  OCTAVO_CHECK(publish(path));
  OCTAVO_CHECK(sync_directory(directory));
  Journal journal(std::move(file));
  journal.size_ = text.size();
  return journal;
}

Result<void> Journal::append(std::string_view line) {
  const std::string text = std::string(line) + '\n';
  OCTAVO_CHECK(file_.write_at(size_, std::as_bytes(std::span(text))));
  OCTAVO_CHECK(file_.sync_data());
  size_ += text.size();
  return {};
}

}  // namespace octavo
