// STF cases about running a model whose files change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// The file is cut while a conversation waits for its next line.
TEST(Stf10, AFileCutWhileItIsMappedIsOneLineAndStatusOne) {
  const TempDir dir;
  const std::filesystem::path model = dir / "model";
  tiny_model("llama3").write(model);
  write_string(model / "tokenizer_config.json",
               R"({"chat_template": "{{ messages[-1]['content'] }}"})");
  // $1 the program, $2 the model, $3 a directory, $4 how weights are placed.
  constexpr const char* kScript = R"(
mkfifo "$3/in"
"$1" generate "$2" --chat -n 3 --weights "$4" < "$3/in" 2> "$3/err" &
exec 3> "$3/in"
tries=0
until grep -q '^run:' "$3/err" || [ $tries = 600 ]; do sleep 0.1; tries=$((tries + 1)); done
: > "$2/model.safetensors"
echo hello >&3
exec 3>&-
wait $!
status=$?
cat "$3/err" >&2
exit $status
)";
  for (const char* placement : {"mapped", "packed"}) {
    SCOPED_TRACE(placement);
    tiny_model("llama3").write(model);
    std::filesystem::create_directory(dir / placement);
    const Outcome run =
        run_program("/bin/sh", {"-c", kScript, "sh", octavo_program(), model.string(),
                                (dir / placement).string(), placement});
    if (placement == std::string("packed")) {
      EXPECT_EQ(run.status, 0) << run.err;
      continue;
    }
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_THAT(run.err, AllOf(HasSubstr("model.safetensors: a page cannot be read"),
                               HasSubstr("--weights packed")));
  }
}

}  // namespace
}  // namespace octavo::tests
