// DEQ cases about how a directory is written: memory, kills, failures, paths.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <set>
#include <thread>

#include "tests/support/inputs.h"
#include "tests/support/kill.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kJournal = ".octavo-resume.jsonl.partial";

std::string shard_name(int shard, int shards) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard + 1, shards);
  return name;
}

std::string weight_name(int shard) {
  return "model.layers." + std::to_string(shard) + ".mlp.up_proj.weight";
}

void write_index(const fs::path& directory, const nlohmann::json& map) {
  write_string(directory / "model.safetensors.index.json",
               nlohmann::json{{"metadata", nlohmann::json::object()}, {"weight_map", map}}.dump());
}

std::set<std::string> final_names(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& [name, bytes] : without_partial(contents(directory))) names.insert(name);
  return names;
}

// Shards of one FP8 weight of 64 MiB each, that take no disk; the scales of each lie in the next.
void write_large_source(const fs::path& directory, int shards) {
  constexpr std::uint64_t kRows = 8192;
  constexpr std::uint64_t kCols = 8192;
  nlohmann::json map;
  for (int i = 0; i < shards; ++i) {
    const std::string scales = weight_name((i + 1) % shards) + "_scale_inv";
    write_sparse_file(directory / shard_name(i, shards),
                      {{weight_name(i), "F8_E4M3", {kRows, kCols}, Bytes(64, 0x38)},
                       {scales, "F32", {kRows / 128, kCols / 128}, {0, 0, 0, 0x40}}});  // 2
    map[weight_name(i)] = map[scales] = shard_name(i, shards);
  }
  write_index(directory, map);
  write_string(directory / "config.json", kFp8Config);
}

TEST(Deq14, SixteenShardsInHalfAGibibyteOfMemory) {
  if (built_with_sanitizers()) GTEST_SKIP() << "the sanitizers' own memory is above the limit";
  constexpr std::uint64_t kPerThread = 64'000'000;
  constexpr std::uint64_t kConstant = 32'000'000;  // the program, headers, names
  std::map<int, std::uint64_t> peak;
  for (const int shards : {2, 16}) {
    const TempDir dir;
    write_large_source(dir / "in", shards);
    // -d limits what is private and writable: heap, anonymous maps, stacks.
    const Outcome run = run_octavo(
        {"dequantize", (dir / "in").string(), (dir / "out").string(), "--json", "--threads", "2"},
        "ulimit -d 524288; ");
    ASSERT_EQ(run.status, 0) << run.err;
    const nlohmann::json report = run.json();
    EXPECT_EQ(report.at("dequantized"), shards);
    peak[shards] = report.at("peak_bytes");
    EXPECT_LT(peak[shards], kPerThread * report.at("threads").get<std::uint64_t>() + kConstant);
    const Bytes last = read_bytes(dir / "out" / shard_name(shards - 1, shards));
    const Bytes start(last.end() - (std::ptrdiff_t{2} * 8192 * 8192), last.end());
    EXPECT_EQ(start[0], 0x00);  // 1.0 times 2, as BF16
    EXPECT_EQ(start[1], 0x40);
    EXPECT_EQ(start[200], 0x00);
  }
  std::printf("peak: %.1f MB for 2 shards, %.1f MB for 16\n", static_cast<double>(peak[2]) / 1e6,
              static_cast<double>(peak[16]) / 1e6);
  // Fourteen shards more cost names and headers, no data.
  EXPECT_LT(peak[16], peak[2] + 16'000'000);
  for (const char* command : {"quantize", "dequantize"})
    EXPECT_THAT(run_octavo({command, "--help"}).out, HasSubstr("at most 64 MB per thread"));
}

// Four shards of `rows` x 1024 BF16.
void write_four_shards(const fs::path& directory, std::uint64_t rows) {
  nlohmann::json map;
  for (int i = 0; i < 4; ++i) {
    const Tensor start = bf16_weight({1, 1024}, static_cast<std::uint64_t>(i));
    write_sparse_file(directory / shard_name(i, 4),
                      {{weight_name(i), "BF16", {rows, 1024}, start.bytes}});
    map[weight_name(i)] = shard_name(i, 4);
  }
  write_index(directory, map);
  write_string(directory / "config.json", kPlainConfig);
}

struct stat status_of(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status;
}

bool is_finished(int shard, const fs::path& out) {
  return fs::exists(out / kJournal) &&
         read_string(out / kJournal).find("\n{\"shard\":" + std::to_string(shard)) !=
             std::string::npos;
}

// Waits until shard 1 is finished and shard 2 is being written; false where the run ended before.
bool reach_second_shard(LiveRun& run, const fs::path& out) {
  while (!run.ended()) {
    if (fs::exists(out / ("." + shard_name(1, 4) + ".partial")) && is_finished(0, out)) return true;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return false;
}

// Writes `out` from a source of four shards until the second, and ends the run with `signal`.
void cut_off_in_second_shard(const TempDir& dir, int signal, Outcome& outcome) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    fs::remove_all(dir / "out");
    // Slow kernels: shard 2 takes far longer than it takes to look.
    LiveRun run({"quantize", (dir / "in").string(), (dir / "out").string(), "--threads", "1"},
                {"OCTAVO_CPU=generic"});
    if (!reach_second_shard(run, dir / "out")) continue;
    run.send(signal);
    outcome = run.wait();
    // On a busy machine the signal may come in a later shard.
    if (outcome.status == 128 + signal && !is_finished(1, dir / "out")) return;
  }
  FAIL() << "no run was caught in its second shard";
}

TEST(Deq15, KilledInTheSecondShardOfFour) {
  const TempDir dir;
  write_four_shards(dir / "in", 16384);
  ASSERT_EQ(run_octavo({"quantize", (dir / "in").string(), (dir / "whole").string()}).status, 0);
  Outcome killed;
  ASSERT_NO_FATAL_FAILURE(cut_off_in_second_shard(dir, SIGKILL, killed));
  EXPECT_EQ(final_names(dir / "out"), std::set<std::string>{});
  const fs::path partial = dir / "out" / ("." + shard_name(0, 4) + ".partial");
  const struct stat first = status_of(partial);

  const Outcome resumed =
      run_octavo({"quantize", (dir / "in").string(), (dir / "out").string(), "--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("1 of 4 shards were finished before"));
  EXPECT_EQ(contents(dir / "out"), contents(dir / "whole"));
  const struct stat now = status_of(dir / "out" / shard_name(0, 4));
  EXPECT_EQ(now.st_ino, first.st_ino) << "written again";
  EXPECT_EQ(now.st_mtim.tv_sec, first.st_mtim.tv_sec);
  EXPECT_EQ(now.st_mtim.tv_nsec, first.st_mtim.tv_nsec);
}

TEST(Deq15, ASignalKeepsWhatIsFinished) {
  const TempDir dir;
  write_four_shards(dir / "in", 16384);
  ASSERT_EQ(run_octavo({"quantize", (dir / "in").string(), (dir / "whole").string()}).status, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    SCOPED_TRACE(signal);
    Outcome stopped;
    ASSERT_NO_FATAL_FAILURE(cut_off_in_second_shard(dir, signal, stopped));
    EXPECT_THAT(only_line(stopped),
                AllOf(HasSubstr("interrupted: 1 of 4 shards are finished"), HasSubstr("--resume")));
    std::set<std::string> names;
    for (const auto& [name, bytes] : contents(dir / "out")) names.insert(name);
    EXPECT_EQ(names, (std::set<std::string>{kJournal, "." + shard_name(0, 4) + ".partial"}));
    const Outcome resumed =
        run_octavo({"quantize", (dir / "in").string(), (dir / "out").string(), "--resume"});
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_EQ(contents(dir / "out"), contents(dir / "whole"));
  }
}

TEST(Deq15, WithoutResumeARunStartsAnewAndSaysSo) {
  const TempDir dir;
  write_four_shards(dir / "in", 16384);
  Outcome stopped;
  ASSERT_NO_FATAL_FAILURE(cut_off_in_second_shard(dir, SIGTERM, stopped));
  const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(only_line(run), AllOf(HasSubstr("holds an unfinished run: 1 of 4 shards"),
                                    HasSubstr("--resume would keep")));
  EXPECT_THAT(run.out, Not(HasSubstr("were finished before")));
  ASSERT_EQ(run_octavo({"quantize", (dir / "in").string(), (dir / "whole").string()}).status, 0);
  EXPECT_EQ(contents(dir / "out"), contents(dir / "whole"));
}

TEST(Deq16, SpaceIsCheckedBeforeAnythingIsWritten) {
  const TempDir dir;
  // Twice what is free as FP8, and no disk.
  const std::uint64_t rows = fs::space(dir / "").available / 4096 * 2 / 4 + 128;
  write_four_shards(dir / "in", rows * 4);
  const Outcome run = run_octavo({"quantize", (dir / "in").string(), (dir / "out").string()});
  EXPECT_EQ(run.status, 1);
  const std::string line = only_line(run);
  EXPECT_THAT(line,
              AllOf(HasSubstr(" are needed, "), HasSubstr(" are available there; free some")));
  const auto number_before = [&](const char* words) {
    const std::string head = line.substr(0, line.find(words));
    return std::stoull(head.substr(head.rfind(' ') + 1));
  };
  const std::uint64_t needed = number_before(" bytes (");
  EXPECT_GT(needed, 16 * rows * 1024);
  EXPECT_LT(needed, 16 * rows * 1024 * 101 / 100);
  EXPECT_FALSE(fs::exists(dir / "out"));
  EXPECT_EQ(run_octavo({"quantize", (dir / "in").string(), "--plan"}).status, 0);
}

// A limit on the size of files stands for a device too small for the last shard. 1024 or 512 KiB,
// as the shell counts; the last shard takes 2048, the others 128.
constexpr std::string_view kSmallDevice = "ulimit -f 1024; ";

TEST(Deq16, AFailedLastWriteLeavesNoModelAndCanBeResumed) {
  const TempDir dir;
  nlohmann::json map;
  for (int i = 0; i < 3; ++i) {
    write_tensor_file(dir / "in" / shard_name(i, 3),
                      {{weight_name(i), bf16_weight({i == 2 ? 2048u : 128u, 1024}, 1)}});
    map[weight_name(i)] = shard_name(i, 3);
  }
  write_index(dir / "in", map);
  write_string(dir / "in" / "config.json", kPlainConfig);
  const std::vector<std::string> command = {"quantize", (dir / "in").string(),
                                            (dir / "out").string()};
  const Outcome run = run_octavo(command, kSmallDevice);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(only_line(run),
              AllOf(HasSubstr("File too large"), HasSubstr("2 of 3 shards are finished and kept"),
                    HasSubstr("--resume")));
  EXPECT_EQ(final_names(dir / "out"), std::set<std::string>{});
  EXPECT_EQ(run_octavo({"inspect", (dir / "out").string()}).status, 1);

  std::vector<std::string> again = command;
  again.emplace_back("--resume");
  const Outcome resumed = run_octavo(again);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("2 of 3 shards"));
  ASSERT_EQ(run_octavo({"quantize", (dir / "in").string(), (dir / "whole").string()}).status, 0);
  EXPECT_EQ(contents(dir / "out"), contents(dir / "whole"));
  // It is a model now, and no unfinished run.
  EXPECT_EQ(run_octavo(again).status, 2);
}

TEST(Deq17, OutputOntoInputIsRefusedHoweverItIsSpelled) {
  for (const bool quantized : {false, true}) {
    const TempDir dir;
    Fp8Weight weight = fp8_weight({128, 128}, 1);
    const Tensors tensors =
        quantized ? Tensors{{"a.weight", weight.codes}, {"a.weight_scale_inv", weight.scales}}
                  : Tensors{{"a.weight", bf16_weight({128, 128}, 1)}};
    write_model(dir / "home" / "x", tensors, quantized ? kFp8Config : kPlainConfig);
    fs::create_directory_symlink(dir / "home" / "x", dir / "home" / "link");
    fs::create_directory_symlink("link", dir / "home" / "chain");
    const Contents before = contents(dir / "home");
    const auto written = fs::last_write_time(dir / "home" / "x");
    const std::string in_home = "cd '" + (dir / "home").string() + "'; ";
    const std::string absolute = (dir / "home" / "x").string();
    for (const std::string& source : {std::string("x"), absolute}) {
      for (const std::string& destination :
           {std::string("x"), std::string("./x"), std::string("x/"), std::string("x/."),
            std::string("link"), std::string("chain/"), std::string("../home/x"),
            std::string("x/../x"), std::string("nowhere/../x"), absolute, std::string("x/inner"),
            std::string("link/a/b"), std::string("."), std::string("..")}) {
        for (const char* flag : {"", "--overwrite", "--resume"}) {
          std::vector<std::string> command = {quantized ? "dequantize" : "quantize", source,
                                              destination};
          if (*flag != '\0') command.emplace_back(flag);
          const Outcome run = run_octavo(command, in_home);
          EXPECT_EQ(run.status, 2) << source << " " << destination << " " << flag;
          EXPECT_THAT(only_line(run), AllOf(HasSubstr("the "), HasSubstr("choose another")));
        }
      }
    }
    EXPECT_EQ(contents(dir / "home"), before);
    EXPECT_EQ(fs::last_write_time(dir / "home" / "x"), written) << "something was made in it";
  }
}

}  // namespace
}  // namespace octavo::tests
