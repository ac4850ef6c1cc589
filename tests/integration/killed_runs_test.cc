// Runs that are killed at any moment: nothing half-finished under a final name, and --resume ends
// with the bytes of a run that was left alone.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/support/inputs.h"
#include "tests/support/kill.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

constexpr int kKilled = 128 + SIGKILL;
constexpr const char* kJournal = ".octavo-resume.jsonl.partial";

std::map<std::string, Tensors> layers(int shards, std::uint64_t rows, std::uint64_t seed) {
  std::map<std::string, Tensors> files;
  for (int i = 0; i < shards; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    const std::string file = shards == 1 ? "model.safetensors"
                                         : "model-0000" + std::to_string(i + 1) + "-of-0000" +
                                               std::to_string(shards) + ".safetensors";
    const std::uint64_t own = seed + 2 * static_cast<std::uint64_t>(i);
    files[file] = {{layer + ".mlp.up_proj.weight", bf16_weight({rows, 256}, own)},
                   {layer + ".input_layernorm.weight", bf16_weight({1, 256}, own + 1)}};
  }
  return files;
}

// A source, what becomes of it, and a directory `out` to write it to. The old model has the file
// names of the new one, so that nothing but order keeps them apart.
class KilledRuns : public ::testing::Test {
 protected:
  // `rows` of each weight, 256 columns.
  void make_source(int shards, std::uint64_t rows) {
    write_model(dir_ / "in", layers(shards, rows, 10), kPlainConfig);
    write_string(dir_ / "in" / "tokenizer.json", "new");
    write_string(dir_ / "in" / "templates" / "chat.jinja", "new too");
    write_model(dir_ / "old", layers(shards, 128, 50), kFp8Config);
    write_string(dir_ / "old" / "tokenizer.json", "old");
    write_string(dir_ / "old" / "notes.txt", "old");
    old_ = contents(dir_ / "old");
  }

  // A directory as it is before the run.
  void reset(const char* name, bool with_old) {
    fs::remove_all(dir_ / name);
    if (with_old) fs::copy(dir_ / "old", dir_ / name, fs::copy_options::recursive);
  }

  std::vector<std::string> command(const char* name, bool overwrite, bool resume) const {
    std::vector<std::string> words = {"quantize",
                                      (dir_ / "in").string(),
                                      (dir_ / name).string(),
                                      "--threads",
                                      "1",
                                      "--measure-error",
                                      "--json"};
    if (overwrite) words.emplace_back("--overwrite");
    if (resume) words.emplace_back("--resume");
    return words;
  }

  // The run that is left alone.
  void run_whole(bool with_old) {
    reset("whole", with_old);
    const Outcome run = run_octavo(command("whole", with_old, false));
    ASSERT_EQ(run.status, 0) << run.err;
    whole_ = contents(dir_ / "whole");
    report_ = comparable(run);
  }

  static nlohmann::json comparable(const Outcome& run) {
    nlohmann::json report = run.json();
    for (const char* of_the_run : {"seconds", "peak_bytes", "threads", "resumed_shards"})
      report.erase(of_the_run);
    return report;
  }

  void expect_nothing_half_finished(bool with_old) {
    EXPECT_EQ(half_finished(dir_ / "out", with_old ? old_ : Contents{}, whole_), "");
  }

  // A run that has a journal needs no second --overwrite.
  std::vector<std::string> resuming(bool with_old) const {
    return command("out", with_old && !fs::exists(dir_ / "out" / kJournal), true);
  }

  // The run was killed after its last step: there is nothing to resume.
  bool is_done() const { return contents(dir_ / "out") == whole_; }

  void resume_to_the_end(bool with_old) {
    if (!is_done()) {
      const Outcome run = run_octavo(resuming(with_old));
      ASSERT_EQ(run.status, 0) << run.err;
      EXPECT_EQ(comparable(run), report_);
    }
    EXPECT_TRUE(is_done());
  }

  void kill_at_every_call(int shards, bool with_old);
  void kill_at_random(int kills);

  const TempDir dir_;
  Contents old_;
  Contents whole_;
  nlohmann::json report_;
};

// Every call that changes the disk is once the one that is not reached; the run that resumes is
// killed too, at another one.
void KilledRuns::kill_at_every_call(int shards, bool with_old) {
  if (built_with_sanitizers())
    GTEST_SKIP() << "the sanitizers' run-time library must be the first that is loaded";
  make_source(shards, 256);
  run_whole(with_old);
  int call = 1;
  for (;; ++call) {
    SCOPED_TRACE("killed before call " + std::to_string(call));
    reset("out", with_old);
    const Outcome first = LiveRun(command("out", with_old, false), kill_at_call(call)).wait();
    expect_nothing_half_finished(with_old);
    if (first.status == 0) break;
    ASSERT_EQ(first.status, kKilled) << first.err;
    if (!is_done()) {
      LiveRun(resuming(with_old), kill_at_call(1 + call * 7 % 40)).wait();
      expect_nothing_half_finished(with_old);
    }
    resume_to_the_end(with_old);
    if (HasFailure()) return;
  }
  std::printf("killed before each of %d calls\n", call - 1);
  // Each file is created, written, flushed and renamed, and so is the journal.
  EXPECT_GT(call, 4 * (shards + 3));
}

TEST_F(KilledRuns, AtEveryCallIntoAnEmptyDirectory) { kill_at_every_call(3, false); }
TEST_F(KilledRuns, AtEveryCallOverAnOldModel) { kill_at_every_call(3, true); }
TEST_F(KilledRuns, AtEveryCallOverAnOldFile) { kill_at_every_call(1, true); }

// Until `kills` hit a running program: half of them on the way to an empty directory, half on the
// way to one with an old model.
void KilledRuns::kill_at_random(int kills) {
  ASSERT_GT(kills, 0) << "OCTAVO_KILL_RUNS";
  std::uint64_t seed = std::random_device()();
  if (const char* given = std::getenv("OCTAVO_SEED")) seed = std::strtoull(given, nullptr, 10);
  std::printf("OCTAVO_SEED=%llu, %d kills\n", static_cast<unsigned long long>(seed), kills);
  std::mt19937_64 random(seed);
  make_source(3, 4096);
  int killed = 0;
  int attempts = 0;
  for (const bool with_old : {false, true}) {
    run_whole(with_old);
    reset("out", with_old);
    const auto start = std::chrono::steady_clock::now();
    LiveRun(command("out", with_old, false)).wait();
    const auto life = std::chrono::steady_clock::now() - start;
    std::uniform_real_distribution<double> share(0.0, 1.1);
    const auto kill_run = [&](const std::vector<std::string>& arguments) {
      ++attempts;
      LiveRun run(arguments);
      std::this_thread::sleep_for(life * share(random));
      run.send(SIGKILL);
      const Outcome outcome = run.wait();
      if (outcome.status == kKilled) {
        ++killed;
      } else {
        EXPECT_EQ(outcome.status, 0) << outcome.err;
      }
      expect_nothing_half_finished(with_old);
    };
    while (killed < (with_old ? kills : kills / 2)) {
      SCOPED_TRACE("attempt " + std::to_string(attempts));
      ASSERT_LT(attempts, 20 * kills) << "only " << killed << " kills hit a running program";
      reset("out", with_old);
      kill_run(command("out", with_old, false));
      while (!is_done() && random() % 3 == 0) kill_run(resuming(with_old));
      resume_to_the_end(with_old);
      if (HasFailure()) return;
    }
  }
  std::printf("%d kills hit a running program, of %d\n", killed, attempts);
}

TEST_F(KilledRuns, AtRandomMoments) {
  const char* given = std::getenv("OCTAVO_KILL_RUNS");
  kill_at_random(given != nullptr ? std::atoi(given) : 20);
}

class KilledRunsSlow : public KilledRuns {};
TEST_F(KilledRunsSlow, TwoHundredAtRandomMoments) { kill_at_random(200); }

}  // namespace
}  // namespace octavo::tests
