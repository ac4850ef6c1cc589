// What --resume accepts and refuses.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>
#include <thread>

#include "tests/support/inputs.h"
#include "tests/support/kill.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kJournal = ".octavo-resume.jsonl.partial";
const std::string kFirst = "model-00001-of-00003.safetensors";
const std::string kLast = "model-00003-of-00003.safetensors";

// The last of three shards is larger than such a file may be, in the shell's units of 1024 or 512
// bytes: the run ends in it, with two finished.
constexpr std::string_view kEndsInTheLast = "ulimit -f 256; ";

class Resume : public ::testing::Test {
 protected:
  Resume() {
    std::map<std::string, Tensors> files;
    for (std::uint64_t i = 0; i < 3; ++i) {
      files["model-0000" + std::to_string(i + 1) + "-of-00003.safetensors"] = {
          {"layers." + std::to_string(i) + ".up_proj.weight",
           bf16_weight({i == 2 ? 2560u : 128u, 256}, i)}};
    }
    write_model(dir_ / "in", files, kPlainConfig);
    write_string(dir_ / "in" / "tokenizer.json", "{}");
  }

  std::vector<std::string> command(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"quantize", (dir_ / "in").string(), (dir_ / "out").string()});
    return more;
  }

  void cut_off(std::vector<std::string> more = {}) {
    const Outcome run = run_octavo(command(std::move(more)), kEndsInTheLast);
    ASSERT_EQ(run.status, 1) << run.err;
    ASSERT_TRUE(fs::exists(dir_ / "out" / kJournal)) << run.err;
  }

  void expect_refused(int status, const std::string& message, std::vector<std::string> more = {}) {
    const Contents before = contents(dir_ / "out");
    more.emplace_back("--resume");
    const Outcome run = run_octavo(command(std::move(more)));
    EXPECT_EQ(run.status, status);
    EXPECT_THAT(only_line(run), HasSubstr(message));
    EXPECT_EQ(contents(dir_ / "out"), before);
  }

  void expect_resumed() {
    const Outcome whole =
        run_octavo({"quantize", (dir_ / "in").string(), (dir_ / "whole").string()});
    ASSERT_EQ(whole.status, 0) << whole.err;
    const Outcome run = run_octavo(command({"--resume"}));
    ASSERT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(contents(dir_ / "out"), contents(dir_ / "whole"));
  }

  const TempDir dir_;
};

TEST_F(Resume, RefusesAnotherInput) {
  const fs::path shard = dir_ / "in" / kLast;
  const fs::path copy = dir_ / "in2";
  struct Change {
    const char* message;
    std::function<void()> make;
  };
  const std::vector<Change> changes = {
      {"model-00003-of-00003.safetensors: it was replaced, or changed and its time set back",
       [&] {
         struct stat status{};
         ASSERT_EQ(::stat(shard.c_str(), &status), 0);
         std::string bytes = read_string(shard);
         bytes.back() = static_cast<char>(bytes.back() ^ 1);
         write_string(shard, bytes);
         const timespec times[] = {status.st_atim, status.st_mtim};
         ASSERT_EQ(::utimensat(AT_FDCWD, shard.c_str(), times, 0), 0);
       }},
      {"model-00003-of-00003.safetensors: it was written to",
       [&] {
         write_string(dir_ / "other", read_string(shard));
         fs::rename(dir_ / "other", shard);
       }},
      {"config.json: its size is another",
       [&] { write_string(dir_ / "in" / "config.json", std::string(kPlainConfig) + "\n"); }},
      {"model-00004-of-00003.safetensors is new",
       [&] {
         write_tensor_file(dir_ / "in" / "model-00004-of-00003.safetensors",
                           {{"x.weight", bf16_weight({128, 128}, 1)}});
       }},
      {"tokenizer.json is gone", [&] { fs::remove(dir_ / "in" / "tokenizer.json"); }}};
  fs::copy(dir_ / "in", copy, fs::copy_options::recursive);
  for (const Change& change : changes) {
    SCOPED_TRACE(change.message);
    fs::remove_all(dir_ / "out");
    fs::remove_all(dir_ / "in");
    fs::copy(copy, dir_ / "in", fs::copy_options::recursive);
    ASSERT_NO_FATAL_FAILURE(cut_off());
    change.make();
    expect_refused(1, std::string("the input changed since the run began: ") + change.message);
  }
}

TEST_F(Resume, RefusesOtherOptions) {
  cut_off();
  expect_refused(2, "the run was begun with --rule transformers, not deepseek",
                 {"--rule", "deepseek"});
  expect_refused(2, "the run was begun with --max-shard-size 0, not 100000000",
                 {"--max-shard-size", "100MB"});
  expect_refused(2, "the run was begun with --modules-to-not-convert []",
                 {"--modules-to-not-convert", "layers.0"});
  expect_refused(2, "the run was begun with --measure-error false, not true", {"--measure-error"});
  expect_resumed();
}

TEST_F(Resume, OtherThreadsAndKernelsMakeNoDifference) {
  cut_off({"--threads", "1"});
  const Outcome run = run_octavo(command({"--resume", "--threads", "2"}), "OCTAVO_CPU=generic ");
  EXPECT_EQ(run.status, 0) << run.err;
}

TEST_F(Resume, BeginsWhereThereIsNothingToResume) {
  const Outcome run = run_octavo(command({"--resume"}));
  EXPECT_EQ(run.status, 0) << run.err;
  const Contents model = contents(dir_ / "out");
  expect_refused(2, "is not empty");
  EXPECT_EQ(contents(dir_ / "out"), model);
}

TEST_F(Resume, AShardThatWasTouchedIsWrittenAgain) {
  cut_off();
  const fs::path partial = dir_ / "out" / ".model-00001-of-00003.safetensors.partial";
  std::string bytes = read_string(partial);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_string(partial, bytes);
  expect_resumed();
}

TEST_F(Resume, ALineThatWasCutOffIsPassedOver) {
  cut_off();
  const fs::path journal = dir_ / "out" / kJournal;
  const std::string whole = read_string(journal);
  const std::size_t header = whole.find('\n') + 1;
  for (const std::size_t left : {whole.size() - 1, whole.size() - 7, header + 1}) {
    fs::copy(dir_ / "out", dir_ / "kept", fs::copy_options::recursive);
    write_string(journal, whole.substr(0, left));
    const Outcome run = run_octavo(command({"--resume"}), kEndsInTheLast);
    EXPECT_THAT(only_line(run), HasSubstr("2 of 3 shards are finished and kept"));
    fs::remove_all(dir_ / "out");
    fs::rename(dir_ / "kept", dir_ / "out");
  }
  for (const std::string& damaged : {whole.substr(0, header / 2), std::string("{}\n"),
                                     std::string(), whole.substr(0, header) + "?\n" + whole}) {
    write_string(journal, damaged);
    expect_refused(1, "damaged");
  }
}

// Not even of the run before, whose finished shards nothing describes any more.
TEST_F(Resume, BadDataLeavesNothing) {
  struct Shard {
    std::string file;
    std::string weight;
    Extent matrix;
  };
  for (const Shard& shard : {Shard{kLast, "layers.2.up_proj.weight", {2560, 256}},
                             Shard{kFirst, "layers.0.up_proj.weight", {128, 256}}}) {
    SCOPED_TRACE(shard.file);
    const std::string good = read_string(dir_ / "in" / shard.file);
    ASSERT_NO_FATAL_FAILURE(cut_off());
    Tensor bad = bf16_weight(shard.matrix, 2);
    bad.bytes[bad.bytes.size() - 2] = 0xC0;
    bad.bytes[bad.bytes.size() - 1] = 0x7F;
    write_tensor_file(dir_ / "in" / shard.file, {{shard.weight, bad}});
    const Outcome run = run_octavo(command());
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, AllOf(HasSubstr("holds an unfinished run: 2 of 3"), HasSubstr("is nan")));
    EXPECT_TRUE(fs::is_empty(dir_ / "out"));
    write_string(dir_ / "in" / shard.file, good);
  }
}

TEST_F(Resume, TheReportCountsShards) {
  cut_off();
  const Outcome run = run_octavo(command({"--resume", "--json"}));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.json().at("shards"), 3);
  EXPECT_EQ(run.json().at("resumed_shards"), 2);
}

TEST_F(Resume, IgnoredSignalsStayIgnored) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    fs::remove_all(dir_ / "out");
    const auto before = ::signal(signal, SIG_IGN);
    LiveRun run(command());
    ::signal(signal, before);
    while (!run.ended()) {
      run.send(signal);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(run.wait().status, 0) << signal;
  }
}

TEST_F(Resume, ARunThatStillRunsIsLeftAlone) {
  // Large, and slow kernels: the run is far from its end when its journal is seen.
  write_sparse_file(dir_ / "in" / kLast,
                    {{"layers.2.up_proj.weight", "BF16", {65536, 1024}, Bytes(2, 0x3F)}});
  LiveRun run(command({"--threads", "1"}), {"OCTAVO_CPU=generic"});
  while (!fs::exists(dir_ / "out" / kJournal)) ASSERT_FALSE(run.ended());
  run.send(SIGSTOP);
  ASSERT_FALSE(run.ended()) << "it ended before it could be stopped";
  const Contents before = contents(dir_ / "out");
  for (const char* flag : {"--resume", "--overwrite"}) {
    const Outcome other = run_octavo(command({flag}));
    EXPECT_EQ(other.status, 1);
    EXPECT_THAT(other.err, HasSubstr("another run is writing into it"));
  }
  EXPECT_EQ(contents(dir_ / "out"), before);
  run.send(SIGCONT);
  EXPECT_EQ(run.wait().status, 0);
}

}  // namespace
}  // namespace octavo::tests
