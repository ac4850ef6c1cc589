// STF cases about running a model whose files change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/support/tiny_model.h"

namespace octavo::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Stf10, MappedAndReadWeightsGiveTheSame) {
  const TinyModel model = fp8_model(tiny_model("llama3"));
  const Quality packed = quality(model, {"--weights", "packed"});
  const Quality mapped = quality(model, {"--weights", "mapped"});
  EXPECT_THAT(packed.err, Not(HasSubstr("left mapped")));
  EXPECT_THAT(mapped.err, HasSubstr("left mapped: 16 of 16 weights"));
  EXPECT_EQ(mapped.negative_log_likelihood, packed.negative_log_likelihood);
}

// A conversation that waits for its next line; what `meanwhile`, shell text, does to the run ($run)
// or to the model's file ($file) comes before it.
Outcome conversation(const std::string& placement, const std::string& meanwhile) {
  const TempDir dir;
  const std::filesystem::path model = dir / "model";
  tiny_model("llama3").write(model);
  write_string(model / "tokenizer_config.json",
               R"({"chat_template": "{{ messages[-1]['content'] }}"})");
  // $1 the program, $2 the model, $3 a directory, $4 how weights are placed, $5 what happens.
  constexpr const char* kScript = R"(
mkfifo "$3/in"
"$1" generate "$2" --chat -n 3 --weights "$4" < "$3/in" 2> "$3/err" &
run=$!
file="$2/model.safetensors"
exec 3> "$3/in"
tries=0
until grep -q '^context:' "$3/err" || [ $tries = 600 ]; do sleep 0.1; tries=$((tries + 1)); done
eval "$5"
echo hello >&3
exec 3>&-
wait $run
status=$?
cat "$3/err" >&2
exit $status
)";
  return run_program("/bin/sh", {"-c", kScript, "sh", octavo_program(), model.string(),
                                 (dir / "").string(), placement, meanwhile});
}

TEST(Stf10, AFileCutWhileItIsMappedIsOneLineAndStatusOne) {
  const std::string cut = ": > \"$file\"";
  const Outcome packed = conversation("packed", cut);
  EXPECT_EQ(packed.status, 0) << packed.err;
  const Outcome mapped = conversation("mapped", cut);
  EXPECT_EQ(mapped.status, 1) << mapped.err;
  EXPECT_THAT(mapped.err, AllOf(HasSubstr("model.safetensors: a page cannot be read"),
                                HasSubstr("--weights packed")));
}

// It has nothing to do with a page, and ends the run as it ends any other.
TEST(Stf10, ABusErrorThatIsSentEndsTheRun) {
  EXPECT_EQ(conversation("mapped", "kill -BUS $run; trap '' PIPE").status, 128 + SIGBUS);
  EXPECT_EQ(conversation("mapped", "true").status, 0);
}

}  // namespace
}  // namespace octavo::tests
