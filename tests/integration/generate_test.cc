// octavo generate, perplexity and info MODEL: what they read, what they refuse and how they say it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace octavo::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Generate : public ::testing::Test {
 protected:
  void SetUp() override { tiny_model("llama3").write(model_); }

  Outcome generate(const std::vector<std::string>& options, std::string_view before = "") const {
    std::vector<std::string> arguments{"generate", model_.string(), "-n", "5"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_octavo(arguments, before);
  }
  // One line, nothing else, and the status.
  void refuses(int status, const std::vector<std::string>& options,
               const ::testing::Matcher<const std::string&>& words,
               std::string_view before = "") const {
    const Outcome run = generate(options, before);
    EXPECT_EQ(run.status, status) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(only_line(run), words) << run.err;
  }

  const TempDir dir_;
  const std::filesystem::path model_ = dir_ / "model";
};

TEST_F(Generate, ReadsAPromptFromWhereverItIs) {
  const std::string expected = generate({"-q", "-p", "Once upon"}).out;
  EXPECT_NE(expected, "");
  write_string(dir_ / "prompt", "Once upon");
  const std::string file = (dir_ / "prompt").string(), in = "cat '" + file + "' | ";
  EXPECT_EQ(generate({"-q", "--file", file}).out, expected);
  EXPECT_EQ(generate({"-q"}, in).out, expected);
  EXPECT_EQ(generate({"-q", "-f", "-"}, in).out, expected);
  EXPECT_EQ(generate({"-q", "-f", "/dev/stdin"}, in).out, expected);
  const auto perplexity = [&](const std::string& from, std::string_view before) {
    return run_octavo({"perplexity", model_.string(), "-q", "-f", from}, before).out;
  };
  EXPECT_THAT(perplexity(file, ""), HasSubstr("perplexity "));
  EXPECT_EQ(perplexity("-", in), perplexity(file, ""));
  EXPECT_EQ(run_octavo({"tokenize", model_.string(), "-f", "-"}, in).out,
            run_octavo({"tokenize", model_.string(), "Once upon"}).out);
}

TEST_F(Generate, ClosedStandardStreams) {
  const std::string words = "standard input is closed, and there is no other input";
  // A shell that closes it for the program.
  const std::string closed = "exec 0<&-; ";
  refuses(1, {"-q"}, words, closed);
  refuses(1, {"-q", "-f", "-"}, words, closed);
  refuses(1, {"-q", "--chat"}, words, closed);
  const Outcome tokenize = run_octavo({"tokenize", model_.string()}, closed);
  EXPECT_EQ(tokenize.status, 1);
  EXPECT_EQ(only_line(tokenize), words);
  EXPECT_EQ(generate({"-q", "-p", "abc"}, closed).out, generate({"-q", "-p", "abc"}).out);
}

// While it waits for a line, for the rest of one, and before it first waits.
TEST_F(Generate, ASignalEndsAConversation) {
  write_string(model_ / "chat_template.jinja", "{{ messages[0].content }}");
  // $1 the program, $2 the model, $3 a directory, $4 what is typed before. The input stays open.
  // A run that goes on is killed, which is another status.
  constexpr const char* kScript = R"(
rm -f "$3/in"
mkfifo "$3/in"
"$1" generate "$2" --chat -n 3 < "$3/in" > "$3/out" 2> "$3/err" &
run=$!
exec 3> "$3/in"
(sleep 60; kill -KILL $run) > "$3/dog" 2>&1 &
dog=$!
until grep -q '^context:' "$3/err" || ! kill -0 $run; do sleep 0.01; done
printf "$4" >&3
[ "$4" = 'a\n' ] && until grep -q '^generate:' "$3/err" || ! kill -0 $run; do sleep 0.01; done
kill -TERM $run
wait $run
status=$?
kill $dog
exit $status
)";
  for (const char* typed : {"", "abc", "a\\n"}) {
    const Outcome run = run_program("/bin/sh", {"-c", kScript, "sh", octavo_program(),
                                                model_.string(), (dir_ / "").string(), typed});
    EXPECT_EQ(run.status, 128 + 15) << typed << run.err;
  }
}

TEST_F(Generate, LinesOfAConversation) {
  write_string(model_ / "chat_template.jinja", "{{ messages[0].content }}");
  const auto outputs = [&](const std::string& typed) {
    return generate({"-q", "--chat"}, "printf '" + typed + "' | ").out;
  };
  const std::string answer = generate({"-q", "--chat", "-p", "abc"}).out;
  EXPECT_EQ(outputs("abc"), answer);
  EXPECT_EQ(outputs("abc\\n"), answer);
  EXPECT_EQ(outputs(""), "");
  EXPECT_EQ(outputs("abc\\nabc"), answer + answer);  // the template shows the first message
  refuses(1, {"-q", "--chat"}, "standard input: a line of more than 67108864 bytes",
          "head -c 70000000 /dev/zero | ");
}

TEST_F(Generate, EmptyValuesOfOptions) {
  for (const char* command : {"generate", "perplexity", "tokenize", "info"}) {
    const Outcome run = run_octavo({command, ""});
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_THAT(only_line(run), HasSubstr("MODEL: it is empty")) << command;
  }
  refuses(2, {"-q", "-p", ""}, HasSubstr("prompt 1 has no tokens"));
  for (const char* option : {"--save", "--file", "--seed", "--temp", "--top-k", "--top-p",
                             "--min-p", "--repetition-penalty", "-c", "--threads", "--prompt-chunk",
                             "--weight-block-size", "--quantize", "--activations"}) {
    refuses(2, {"-q", "-p", "abc", option, ""}, HasSubstr(option));
  }
  refuses(2, {"-q", "-p", "abc", "--stop", ""}, HasSubstr("a stop string is empty"));
}

TEST_F(Generate, ValuesThatMakeNoSense) {
  for (const auto& [option, value, words] :
       {std::tuple("--repetition-penalty", "1e-45", "repetition_penalty is 1e-45"),
        {"--repetition-penalty", "0", "repetition_penalty is 0"},
        {"--repetition-penalty", "nan", "repetition_penalty is nan"},
        {"--temp", "-1", "temperature is -1"},
        {"--top-p", "1.5", "top_p is 1.5"},
        {"--min-p", "-0.1", "min_p is -0.1"},
        {"--top-k", "-1", "--top-k"},
        {"--seed", "x", "--seed"},
        {"--ctx-size", "512", "--ctx-size 512: the model knows positions up to 256"}})
    refuses(2, {"-q", "-p", "abc", option, value}, HasSubstr(words));
  refuses(2, {"-q", "-p", "abc", "--save", "x"}, HasSubstr("add --quantize"));
  refuses(2, {"-q", "-p", "abc", "--system", "x"}, HasSubstr("--system goes with --chat"));
  refuses(2, {"-q", "-p", "abc", "--modules-to-convert", "x"}, HasSubstr("go with --quantize"));
}

TEST_F(Generate, BadInput) {
  refuses(1, {"-q", "--file", (dir_ / "none").string()}, HasSubstr((dir_ / "none").string()));
  refuses(1, {"-q", "--file", (dir_ / "").string()}, HasSubstr("not a regular file"));
  const std::string invalid = "a\xFF\x62";
  refuses(2, {"-q", "-p", "ab", "-p", invalid}, "prompt 2: not valid UTF-8 at offset 1");
  write_string(dir_ / "invalid", invalid);
  const std::string file = (dir_ / "invalid").string();
  refuses(1, {"-q", "--file", file}, file + ": not valid UTF-8 at offset 1");
  refuses(1, {"-q"}, "standard input: not valid UTF-8 at offset 1", "cat '" + file + "' | ");
  const std::string long_prompt(300, 'a');
  refuses(2, {"-q", "-p", long_prompt},
          "prompt 1 has 300 tokens, which leave no room in a context of 256, all that the model "
          "knows: a shorter prompt is needed");
  refuses(2, {"-q", "-p", long_prompt, "-c", "100"},
          "prompt 1 has 300 tokens, which leave no room in a context of 100: a shorter prompt, or "
          "a larger --ctx-size");
}

TEST_F(Generate, TemplatesThatFail) {
  for (const auto& [text, words] :
       {std::tuple("\n{{ raise_exception('roles must alternate') }}",
                   "line 2: the template refuses this: roles must alternate"),
        {"{{ messages[0].absent.more }}", "line 1: "},
        {"{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
         "line 1: "},
        {"{% if %}", "line 1: "}}) {
    write_string(model_ / "chat_template.jinja", text);
    refuses(1, {"-q", "--chat", "-p", "abc"},
            AllOf(HasSubstr("chat_template.jinja: "), HasSubstr(words)));
  }
}

// Messages name options of the command that prints them.
TEST_F(Generate, SaysWhatToDoHere) {
  const TinyModel wide = tiny_model("llama3"), fp8 = fp8_model(wide);
  fp8.write(model_);
  refuses(1, {"-q", "-p", "abc", "--quantize", "float"},
          AllOf(HasSubstr("quantized already"), HasSubstr("leave --quantize out"),
                HasSubstr("`octavo quantize --requantize`")));
  TinyModel unscaled = fp8;
  unscaled.tensors.erase("model.layers.0.mlp.up_proj.weight_scale_inv");
  unscaled.write(model_);
  refuses(1, {"-q", "-p", "abc"},
          AllOf(HasSubstr("model.layers.0.mlp.up_proj.weight"),
                HasSubstr("--missing-scale-as-one takes 1")));
  EXPECT_EQ(generate({"-p", "abc", "--missing-scale-as-one"}).status, 0);

  wide.write(model_);
  const std::string saved = (dir_ / "saved").string();
  write_string(dir_ / "saved" / "file", "x");
  refuses(2, {"-q", "-p", "abc", "--quantize", "float", "--save", saved},
          "--save " + saved + ": it is there already; a new or an empty directory is expected");
  const Outcome nothing = generate({"-p", "abc", "--dequantize"});
  EXPECT_EQ(nothing.status, 0);
  EXPECT_THAT(nothing.err,
              HasSubstr("octavo: warning: --dequantize: no weight is in FP8, nothing is "
                        "dequantized\n"));
}

// As `verify` finds it, one line each; the tensors count.
TEST_F(Generate, ConfigsThatContradictFp8Tensors) {
  const TinyModel fp8 = fp8_model(tiny_model("llama3"));
  fp8.write(model_);
  const std::string expected = generate({"-q", "-p", "abc"}).out;
  EXPECT_EQ(generate({"-p", "abc"}).err.find("warning"), std::string::npos);
  const auto warns = [&](const TinyModel& model, const std::string& words) {
    model.write(model_);
    const Outcome run = generate({"-p", "abc"});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, expected);
    EXPECT_EQ(count_of(run.err, "warning"), 1u) << run.err;
    EXPECT_THAT(run.err, HasSubstr(words));
    const Outcome verify = run_octavo({"verify", model_.string(), "--json"});
    EXPECT_THAT(verify.out, HasSubstr(words));
  };
  TinyModel silent = fp8;
  silent.config.erase("quantization_config");
  warns(silent, "config.json: no quantization_config, but 14 weights are quantized");
  TinyModel lists = fp8;
  lists.config["quantization_config"]["modules_to_not_convert"].push_back("down_proj");
  warns(lists, "2 tensors are named in modules_to_not_convert in config.json but quantized");
  TinyModel codes = fp8;
  codes.config["quantization_config"]["fmt"] = "e5m2";
  warns(codes, "but 14 of 14 quantized weights differ");

  // Blocks that only the config could tell have to be said.
  TinyModel small = fp8_model(tiny_model("llama3"), {"--weight-block-size", "32,32"});
  small.write(model_);
  const std::string same = generate({"-q", "-p", "abc"}).out;
  small.config.erase("quantization_config");
  small.write(model_);
  refuses(1, {"-q", "-p", "abc"}, HasSubstr("--weight-block-size gives the right one"));
  EXPECT_EQ(generate({"-q", "-p", "abc", "--weight-block-size", "32,32"}).out, same);
}

TEST_F(Generate, WarnsOfAnEndThatNoTokenIs) {
  write_string(model_ / "generation_config.json", R"({"eos_token_id": [2, 40000, 7]})");
  const Outcome run = generate({"-p", "Once"});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, HasSubstr("warning: eos_token_id 40000 is no token of the vocabulary of "));
  EXPECT_THAT(run.err, Not(HasSubstr("eos_token_id 2 ")));
  EXPECT_THAT(generate({"-p", "Once", "-q"}).err, Not(HasSubstr("eos_token_id")));
}

TEST_F(Generate, InfoOfAModelIsItsExplanation) {
  fp8_model(tiny_model("qwen3")).write(model_);
  const Outcome text = run_octavo({"info", model_.string()});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.out, generate({"--explain"}).out);
  EXPECT_THAT(text.out, AllOf(HasSubstr("model.layers.*.mlp.up_proj"), HasSubstr("e4m3fn")));
  const json layers = run_octavo({"info", model_.string(), "--json"}).json().at("layers");
  EXPECT_EQ(layers, generate({"--explain", "--json"}).json().at("layers"));
  EXPECT_EQ(layers.size(), 15u);
  for (const json& layer : layers) {
    EXPECT_NE(layer.at("decode").at("kernel"), "");
    EXPECT_NE(layer.at("prompt").at("why"), "");
  }
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--op", "gemm"}, {"--activations", "f32"}, {"--m", "3"}}) {
    std::vector<std::string> arguments{"info", model_.string()};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    const Outcome run = run_octavo(arguments);
    EXPECT_EQ(run.status, 2);
    EXPECT_THAT(only_line(run), HasSubstr(wrong.front()));
  }
  const Outcome none = run_octavo({"info", (dir_ / "none").string()});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(only_line(none), HasSubstr("none"));
}

}  // namespace
}  // namespace octavo::tests
