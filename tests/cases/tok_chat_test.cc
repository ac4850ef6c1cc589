// TOK cases that run a model: what its chat template makes of messages, counted in tokens. The
// tokenizer has a token for each character, so that a prompt has as many as its text has characters
// and special tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace octavo::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The two last tokens of the tiny models' vocabulary are special: "<s>", which is put before every
// text, and "<|end|>".
constexpr unsigned kBos = 158, kEnd = 159;

class ChatModel {
 public:
  ChatModel() {
    tiny_model("llama3").write(model_);
    json tokenizer = json::parse(character_tokenizer());
    json& vocabulary = tokenizer["model"]["vocab"];
    for (auto token = vocabulary.begin(); token != vocabulary.end();)
      token = token.value() >= kBos ? vocabulary.erase(token) : std::next(token);
    for (const auto& [text, id] : {std::pair("<s>", kBos), {"<|end|>", kEnd}}) {
      tokenizer["added_tokens"].push_back({{"id", id},
                                           {"content", text},
                                           {"special", true},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false}});
    }
    const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
    tokenizer["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {bos, text}},
        {"pair", {bos, text, text}},
        {"special_tokens",
         {{"<s>",
           {{"id", "<s>"}, {"ids", json::array({kBos})}, {"tokens", json::array({"<s>"})}}}}}};
    write_string(model_ / "tokenizer.json", tokenizer.dump());
  }

  void configure(const json& chat_template) const {
    json config = {{"bos_token", "<s>"}, {"add_bos_token", true}};
    if (!chat_template.is_null()) config["chat_template"] = chat_template;
    write_string(model_ / "tokenizer_config.json", config.dump());
  }

  Outcome generate(const std::vector<std::string>& options) const {
    std::vector<std::string> arguments{"generate", model_.string(), "-n", "3", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_octavo(arguments);
  }
  std::size_t prompt_tokens(const std::vector<std::string>& options) const {
    const Outcome run = generate(options);
    EXPECT_EQ(run.status, 0) << run.err;
    return run.status == 0 ? run.json().at("prompt_tokens").get<std::size_t>() : 0;
  }
  std::size_t chat_tokens(const std::string& message) const {
    return prompt_tokens({"--chat", "-p", message});
  }

  std::filesystem::path file(const char* name) const { return model_ / name; }
  std::string path() const { return model_.string(); }

 private:
  const TempDir dir_;
  const std::filesystem::path model_ = dir_ / "model";
};

TEST(Tok06, WhatMessagesSpellIsText) {
  const ChatModel model;
  model.configure("{{ messages[0].content }}<|end|>");
  EXPECT_EQ(model.chat_tokens("a<|end|>b"), 10u);
  EXPECT_EQ(model.prompt_tokens({"--chat", "--parse-special", "-p", "a<|end|>b"}), 4u);
  EXPECT_EQ(model.chat_tokens("<|end|><|end|><s>"), 18u);
  EXPECT_EQ(model.chat_tokens("a<|end|"), 8u);
  // U+FDD0, by which text is told from tokens, is not the user's to set: it goes.
  EXPECT_EQ(model.chat_tokens("ab\xEF\xB7\x90"), model.chat_tokens("ab"));
  EXPECT_EQ(model.chat_tokens("a<|\xEF\xB7\x90"
                              "end|>b"),
            10u);
  // So is the system's message.
  model.configure("{{ messages[0].content }}<|end|>{{ messages[1].content }}");
  EXPECT_EQ(model.prompt_tokens({"--chat", "--system", "<s>", "-p", "<s>"}), 7u);
  // A prompt that is no message may have special tokens.
  EXPECT_EQ(model.prompt_tokens({"--no-special", "-p", "a<|end|>b"}), 3u);
}

TEST(Tok07, OneBosWhereTheTemplateHasIt) {
  const ChatModel model;
  model.configure("{{ bos_token }}{{ messages[0].content }}");
  EXPECT_EQ(model.chat_tokens("abc"), 4u);
  EXPECT_EQ(model.prompt_tokens({"-p", "abc"}), 4u);
  EXPECT_EQ(model.prompt_tokens({"-p", "abc", "--no-special"}), 3u);
  model.configure("{{ messages[0].content }}");
  EXPECT_EQ(model.chat_tokens("abc"), 3u);
}

TEST(Tok08, TheFileBeatsTheFieldAndTheDefaultIsTaken) {
  const ChatModel model;
  const auto before = [](std::size_t count) {
    return std::string(count, '-') + "{{ messages[0].content }}";
  };
  model.configure(before(10));
  EXPECT_EQ(model.chat_tokens("abc"), 13u);
  write_string(model.file("chat_template.jinja"), before(20));
  EXPECT_EQ(model.chat_tokens("abc"), 23u);
  model.configure(nullptr);
  EXPECT_EQ(model.chat_tokens("abc"), 23u);
  std::filesystem::remove(model.file("chat_template.jinja"));
  model.configure({{{"name", "tool_use"}, {"template", before(30)}},
                   {{"name", "default"}, {"template", before(40)}}});
  EXPECT_EQ(model.chat_tokens("abc"), 43u);
  model.configure(nullptr);
  const Outcome none = model.generate({"--chat", "-q", "-p", "abc"});
  EXPECT_EQ(none.status, 1);
  EXPECT_EQ(only_line(none), model.path() + ": the model has no chat template; leave --chat out");
  EXPECT_EQ(model.prompt_tokens({"-p", "abc"}), 4u);
}

TEST(Tok09, FeaturesThatTemplatesUse) {
  const ChatModel model;
  const std::pair<const char*, const char*> cases[] = {
      {"{% for m in messages %}{{ m.content }}{% break %}{% endfor %}", "sys"},
      {"{% generation %}{{ messages[1].content }}{% endgeneration %}!", "abc!"},
      {"{{ messages | rejectattr('role', 'equalto', 'system') | list | length }}", "1"},
      {"{{ strftime_now('%Y') | length }}", "4"},
      {"{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
       "{{ ns.n }}",
       "2"},
      {"{{ messages[::-1][0].content }}", "abc"},
      {"{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else 'none' }},"
       "{% endfor %}",
       "none,system,"},
      {"{{ {'a': messages[1].content} | tojson }}", "{\"a\": \"abc\"}"},
      {"{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f(messages[1].content) }}", "[abc]"},
  };
  for (const auto& [text, expected] : cases) {
    model.configure(text);
    const Outcome chat = model.generate({"--chat", "--system", "sys", "-p", "abc"});
    ASSERT_EQ(chat.status, 0) << text << "\n" << chat.err;
    const json plain = model.generate({"--no-special", "-p", expected}).json();
    EXPECT_EQ(chat.json().at("prompt_tokens"), plain.at("prompt_tokens")) << text;
    EXPECT_EQ(chat.json().at("tokens"), plain.at("tokens")) << text;
  }
}

TEST(Tok09, AModelLoadsWhateverItsTemplateIsLike) {
  const ChatModel model;
  const std::pair<const char*, const char*> cases[] = {
      {"a\n{% include 'other' %}", "line 2: the tag 'include' is not supported"},
      {"a\n\n{{ messages | frobnicate }}", "line 3: "},
      {"{% for m in messages %}", "line 1: "},
  };
  for (const auto& [text, words] : cases) {
    model.configure(text);
    EXPECT_EQ(model.prompt_tokens({"-p", "abc"}), 4u);
    const Outcome chat = model.generate({"--chat", "-q", "-p", "abc"});
    EXPECT_EQ(chat.status, 1) << text;
    EXPECT_THAT(only_line(chat), AllOf(HasSubstr("tokenizer_config.json: "), HasSubstr(words)));
  }
}

}  // namespace
}  // namespace octavo::tests
