#include "octavo/text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "octavo/base/file.h"

namespace octavo::text {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

std::string repeated(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

Result<std::string> render(std::string_view text, const ChatOptions& options = {}) {
  OCTAVO_TRY(const ChatTemplate chat_template,
             ChatTemplate::parse(text, "dir/chat_template.jinja"));
  return chat_template.render(OrderedJson::array(), nullptr, options);
}

std::string error_of(std::string_view text, const ChatOptions& options = {}) {
  const Result<std::string> got = render(text, options);
  EXPECT_FALSE(got) << text.substr(0, 100) << " renders to " << got->substr(0, 100);
  return got ? "" : got.error().message;
}

TEST(ChatTemplateErrors, NameFileAndLine) {
  const std::pair<const char*, const char*> kCases[] = {
      {"a\nb{% if x %}", "line 2: the template ends where {% elif %} or {% else %} or {% endif %}"},
      {"a\n\n{{ nope.x }}", "line 3: 'nope' is undefined"},
      {"{{ 1 }}\n{{\n\n1 / 0 }}", "line 4: division by zero"},
      {"\n{{ raise_exception('no\nsystem') }}", "line 2: the template refuses this: no\\x0Asystem"},
      {"\n{% block x %}", "line 2: the tag 'block' is not supported"},
      {"{{ 1 | nope }}", "line 1: there is no filter 'nope'"},
      {"{{ 1 | groupby }}", "line 1: the filter 'groupby' is not supported"},
      {"{{ messages.append(1) }}", "line 1: a template may not change its values"},
      {"{% macro m() %}\n{{ 1 + none }}{% endmacro %}\n{{ m() }}", "line 2: '+' does not take"},
      {"{% macro m() %}\n\n{% endmacro %}\n{{ m() + 1 }}", "line 4: '+' does not take 'str' and"},
      {"\xFF", "the template is not UTF-8"},
  };
  for (const auto& [text, message] : kCases) {
    EXPECT_THAT(error_of(text), StartsWith("dir/chat_template.jinja: ")) << text;
    EXPECT_THAT(error_of(text), HasSubstr(message)) << text;
  }
}

TEST(ChatTemplateErrors, MessagesAreAListOfObjects) {
  const Result<ChatTemplate> chat_template = ChatTemplate::parse("x", "t");
  ASSERT_TRUE(chat_template);
  for (const char* messages : {"{}", "null", "\"x\"", "[1]", "[null]", "[[]]"})
    EXPECT_FALSE(chat_template->render(OrderedJson::parse(messages), nullptr, {})) << messages;
  ChatOptions options;
  options.variables["x"] = 18446744073709551615ULL;
  EXPECT_THAT(error_of("x", options), HasSubstr("64 bits"));
}

// Each would take forever, or all memory, or the whole stack.
TEST(ChatTemplateLimits, HoldForHostileTemplates) {
  const std::string nines = "range(99999)";
  const std::string templates[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{{ 'x' * 99999999999 }}",
      "{{ '' * 99999999999 ~ 'x' * 9223372036854775807 }}",
      "{{ [1] * 99999999999 }}",
      "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s "
      "%}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% "
      "endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace(l=1) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor "
      "%}{{ ns.l }}",
      "{% set ns = namespace(l=1) %}{% for i in range(99) %}{% set ns.l = (ns.l, ns.l) %}{% endfor "
      "%}{{ {ns.l: 1} }}",
      "{% set ns = namespace(l=1) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor "
      "%}"
      "{% set m = namespace(l=1) %}{% for i in range(99) %}{% set m.l = [m.l, m.l] %}{% endfor "
      "%}{{ m.l == ns.l }}",
      "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
      "{% set ns = namespace(x=1) %}{% for i in range(999) %}{% set ns.x = namespace(x=ns.x) %}{% "
      "endfor %}{{ ns }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(k) %}{{ m(k) ~ m(k) }}{% endmacro %}{{ m(1) }}",
      "{{ ('a' * 999999).replace('', 'b' * 99999) }}",
      "{{ ('a' * 999999) | replace('a', 'b' * 99999) }}",
      "{{ ('a' * 999999).split('') }}",
      "{{ ('a' * 60000000) | list | length }}",
      "{{ 'a'.center(999999999999) }}",
      "{{ 'a' | indent(999999999999) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ [[[[]]]] | tojson(indent=999999999999) }}",
      "{{ range(99999) | slice(99999999999) | list }}",
      "{{ [1] | batch(99999999999, 0) | list }}",
      "{{ (" + nines + " | join) * 99999 }}",
      "{% for i in range(99999) %}{% set x = i %}{% for j in range(99999) %}{% macro m() %}{% "
      "endmacro %}{% endfor %}{% endfor %}",
      repeated("(", 200'000),
      "{{ " + repeated("(", 200'000),
      "{{ " + repeated("[", 200'000),
      "{{ " + repeated("not ", 200'000) + "1 }}",
      "{{ " + repeated("-", 200'000) + "1 }}",
      "{{ 1" + repeated(" + 1", 200'000) + " }}",
      "{{ x" + repeated(".x", 200'000) + " }}",
      "{{ x" + repeated("|abs", 200'000) + " }}",
      "{{ 1" + repeated(" if 1 else 1", 200'000) + " }}",
      "{{ 1" + repeated(" and 1", 200'000) + " }}",
      repeated("{% if 1 %}", 100'000),
      repeated("{% for i in x %}", 100'000),
      "{% set " + repeated("(", 100'000),
      repeated("{% raw %}", 100'000),
      repeated("{#", 100'000),
  };
  for (const std::string& text : templates) {
    // The one without a tag is text.
    if (text.starts_with('(')) {
      EXPECT_TRUE(render(text));
    } else {
      EXPECT_THAT(error_of(text), StartsWith("dir/chat_template.jinja: ")) << text.substr(0, 100);
    }
  }
}

// Loops that hold loops would be destroyed one inside the other, and a loop in itself never.
TEST(ChatTemplateLimits, ALoopThatIsOverHoldsNothing) {
  const Result<std::string> chain = render(
      "{%- set ns = namespace(c=1, chain=1) -%}{%- for i in range(100000) -%}"
      "{%- for j in [1] -%}{%- set ns.c = loop -%}{%- endfor -%}"
      "{%- set x = ns.c.changed(ns.chain) -%}{%- set ns.chain = ns.c -%}{%- endfor -%}");
  ASSERT_TRUE(chain) << chain.error().message;
  EXPECT_EQ(*chain, "");
  const Result<std::string> itself = render(
      "{% set ns = namespace() %}{% for i in [1] %}{% set ns.l = loop %}"
      "{{ loop.changed(loop) }} {{ loop.changed(loop) }} {% endfor %}"
      "{{ ns.l.changed(ns.l) }} {{ ns.l.changed(ns.l) }}");
  ASSERT_TRUE(itself) << itself.error().message;
  EXPECT_EQ(*itself, "True False True True");
}

TEST(ChatTemplateLimits, AreTheCallers) {
  ChatOptions options;
  options.limits.steps = 100;
  EXPECT_TRUE(render("{% for i in range(9) %}{{ i }}{% endfor %}", options));
  EXPECT_THAT(error_of("{% for i in range(99) %}{{ i }}{% endfor %}", options),
              HasSubstr("100 steps"));
  options.limits = {};
  options.limits.output_bytes = 10;
  EXPECT_TRUE(render("{{ 'x' * 10 }}", options));
  EXPECT_THAT(error_of("{{ 'x' * 11 }}", options), HasSubstr("10 bytes"));
  EXPECT_THAT(error_of("{{ 'xxxxxx' }}{{ 'xxxxxx' }}", options), HasSubstr("10 bytes"));
}

// The steps of a conversation grow with it, not with its square.
TEST(ChatTemplateLimits, StepsAreLinearInTheConversation) {
  const std::string text =
      "{% for m in messages[::-1] %}{{ loop.index0 }}{% endfor %}{% for m in messages %}"
      "{{ m.role }}{{ m.content.split('x')[-1] | trim }}{% if not loop.last and "
      "messages[loop.index0 + 1].role != 'tool' %},{% endif %}{% endfor %}";
  const Result<ChatTemplate> chat_template = ChatTemplate::parse(text, "t");
  ASSERT_TRUE(chat_template);
  for (const std::size_t count : {100U, 10'000U}) {
    OrderedJson messages = OrderedJson::array();
    for (std::size_t i = 0; i < count; ++i)
      messages.push_back({{"role", "user"}, {"content", "a text"}});
    ChatOptions options;
    options.limits.steps = 60 * count;
    const Result<std::string> got = chat_template->render(messages, nullptr, options);
    EXPECT_TRUE(got) << got.error().message;
  }
}

TEST(ChatTemplateMessages, KeepTheOrderOfKeys) {
  const Result<ChatTemplate> chat_template =
      ChatTemplate::parse("{{ messages[0].x | tojson }}{{ tools | tojson }}", "t");
  ASSERT_TRUE(chat_template);
  const Result<std::string> got =
      chat_template->render(OrderedJson::parse(R"([{"x": {"b": 1, "a": {"d": 2.0, "c": null}}}])"),
                            OrderedJson::parse(R"([{"z": 1, "y": 2}])"), {});
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(*got, R"({"b": 1, "a": {"d": 2.0, "c": null}}[{"z": 1, "y": 2}])");
}

// A list of 20,000 ranges that `range` makes of n, and how many of them differ.
std::string unique_ranges(const std::string& range) {
  return "{% set ns = namespace(all=[]) %}{% for i in range(200) %}{% set part = "
         "namespace(all=[]) %}{% for j in range(100) %}{% set n = i * 100 + j %}{% set part.all = "
         "part.all + [" +
         range + "] %}{% endfor %}{% set ns.all = ns.all + part.all %}{% endfor %}" +
         "{{ ns.all | unique | list | length }}";
}

// Keys of every kind spread over the buckets; those that do not are paid for.
TEST(ChatTemplateLimits, StepsAreLinearInTheKeys) {
  EXPECT_EQ(render(unique_ranges("range(n)")).value_or("failed"), "20000");
  // The same hash for all.
  EXPECT_THAT(error_of(unique_ranges("range(n * -1000003, n * -1000002)")), HasSubstr("steps"));
  ChatOptions options;
  options.limits.steps = 20'000 * 20;
  const std::string functions =
      "{{ (['a'] * 20000) | map(attribute='upper') | unique | list | length }}";
  EXPECT_EQ(render(functions, options).value_or("failed"), "20000");
}

// Names in a scope and in a namespace are searched one by one.
TEST(ChatTemplateLimits, LookingForNamesIsPaidFor) {
  std::string variables, attributes;
  for (int i = 0; i < 3200; ++i) {
    variables += "{% set a" + std::to_string(i) + " = 1 %}";
    attributes += "a" + std::to_string(i) + "=1, ";
  }
  const std::string templates[] = {
      variables + "{% for i in range(1000) %}{{ nope }}{% endfor %}",
      variables + "{% for i in range(1000) %}{{ a3199 }}{% endfor %}",
      "{% set ns = namespace(" + attributes +
          "z=1) %}{% for i in range(1000) %}{{ ns.z }}{% endfor %}",
      "{% set ns = namespace(" + attributes +
          "z=1) %}{% for i in range(1000) %}{% set ns.z = 1 %}{% endfor %}",
  };
  // 1,000 searches of 3,200 names are 200,000 steps, setting 3,200 variables is 320,000; all the
  // rest is less than 50,000.
  for (const std::string& text : templates) {
    const std::uint64_t set = text.starts_with("{% set a0") ? 320'000 : 0;
    ChatOptions options;
    options.limits.steps = set + 190'000;
    EXPECT_THAT(error_of(text, options), HasSubstr("steps")) << text.substr(text.size() - 60);
    options.limits.steps = set + 250'000;
    EXPECT_TRUE(render(text, options)) << text.substr(text.size() - 60);
  }
}

// `map` applies map: 2,000 levels would take 2,000,000 steps, the 1,000 that there may be less.
TEST(ChatTemplateLimits, FiltersOfFiltersAreCounted) {
  ChatOptions options;
  options.limits.steps = 1'750'000;
  const Result<std::string> made =
      render("{% set x = ['a'] | map(*(['map'] * 2000)) %}made", options);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(*made, "made");
}

// What Python computes, or the message that the number is too large.
TEST(ChatTemplateLimits, IntegersDoNotWrap) {
  const std::string low = "(-9223372036854775807 - 1)";
  const std::string high = "9223372036854775807";
  const std::string far = "range(" + low + ", " + high + ", 4611686018427387904)";  // 4 numbers
  const std::pair<std::string, std::string> kCases[] = {
      {far + "[3]", "4611686018427387904"},
      {far + "[-1]", "4611686018427387904"},
      {"4611686018427387904 in " + far, "True"},
      {"4611686018427387903 in " + far, "False"},
      {low + " in range(" + high + ", " + low + ", -4611686018427387904)", "False"},
      {"-1 in range(" + high + ", " + low + ", -4611686018427387904)", "True"},
      {"'a'.ljust(" + low + ")", "a"},
      {"'a'.rjust(" + low + ")", "a"},
      {"'a'.center(" + low + ")", "a"},
      {"'-a'.zfill(" + low + ")", "-a"},
      {"'-a'.zfill(4)", "-00a"},
      {"[1] | batch(" + low + ", 0) | list", "[[1]]"},
      {"'a b'.split(none, " + low + ")", "['a', 'b']"},
      {"'a b'.rsplit(none, " + low + ")", "['a', 'b']"},
      {"'abc'.replace('', 'x', 1)", "xabc"},
      {"'abc'.replace('', 'x', 4)", "xaxbxcx"},
  };
  for (const auto& [expression, expected] : kCases) {
    const Result<std::string> got = render("{{ " + expression + " }}");
    ASSERT_TRUE(got) << expression << ": " << got.error().message;
    EXPECT_EQ(*got, expected) << expression;
  }
  EXPECT_THAT(error_of("{{ " + far + "[:] }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ range(0, 10, 4)[::" + high + "] }}"), HasSubstr("64 bits"));
  EXPECT_THAT(error_of("{{ 'a' | truncate(" + low + ") }}"), HasSubstr("truncate: the length"));
}

class ReadChatTemplates : public testing::Test {
 protected:
  ReadChatTemplates() {
    directory_ = fs::path(testing::TempDir()) /
                 testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(directory_);
    fs::create_directories(directory_ / "additional_chat_templates");
  }
  ~ReadChatTemplates() override { fs::remove_all(directory_); }

  void write(const std::string& name, std::string_view text) {
    EXPECT_TRUE(write_text(directory_ / name, text));
  }
  std::string picked(bool with_tools = false) {
    const Result<ChatTemplates> templates = read_chat_templates(directory_);
    EXPECT_TRUE(templates) << templates.error().message;
    const ChatTemplateText* text = templates ? templates->pick(with_tools) : nullptr;
    return text == nullptr ? "(none)" : text->text;
  }

  fs::path directory_;
};

// Public case TOK-08.
TEST_F(ReadChatTemplates, TheFileBeatsTheField) {
  EXPECT_EQ(picked(), "(none)");
  write("chat_template.json", R"({"chat_template": "old"})");
  EXPECT_EQ(picked(), "old");
  write("tokenizer_config.json", R"({"chat_template": "field", "bos_token": "<s>"})");
  EXPECT_EQ(picked(), "field");
  write("chat_template.jinja", "file");
  EXPECT_EQ(picked(), "file");
  EXPECT_EQ(picked(true), "file");
  write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(picked(true), "tools");
  EXPECT_EQ(picked(), "file");
}

TEST_F(ReadChatTemplates, OfAListTheDefaultOrTheOneForTools) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "T"},
                              {"name": "rag", "template": "R"},
                              {"name": "default", "template": "D"}]})");
  EXPECT_EQ(picked(), "D");
  EXPECT_EQ(picked(true), "T");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "R"}]})");
  EXPECT_EQ(picked(), "(none)");
  for (const char* wrong : {"5", "[1]", "[{\"name\": \"x\"}]", "{}"}) {
    write("tokenizer_config.json", std::string("{\"chat_template\": ") + wrong + "}");
    const Result<ChatTemplates> templates = read_chat_templates(directory_);
    ASSERT_FALSE(templates) << wrong;
    EXPECT_THAT(templates.error().message, HasSubstr("tokenizer_config.json: chat_template"));
  }
}

TEST_F(ReadChatTemplates, AFileInThePlaceOfTheDirectoryIsAnError) {
  fs::remove(directory_ / "additional_chat_templates");
  EXPECT_EQ(picked(), "(none)");
  write("additional_chat_templates", "x");
  const Result<ChatTemplates> templates = read_chat_templates(directory_);
  ASSERT_FALSE(templates);
  EXPECT_THAT(templates.error().message, HasSubstr("additional_chat_templates: cannot list"));
}

TEST_F(ReadChatTemplates, SpecialTokensAreTextsOrObjects) {
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<b>", "lstrip": false}, "eos_token": "</s>",
            "pad_token": null, "unk_token": 5})");
  const Result<ChatTemplates> templates = read_chat_templates(directory_);
  ASSERT_TRUE(templates);
  EXPECT_EQ(templates->special_tokens.dump(), R"({"bos_token":"<b>","eos_token":"</s>"})");
}

}  // namespace
}  // namespace octavo::text
