// Against what jinja2 3.1.6 makes of the same templates: tests/golden/chat_templates.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "octavo/base/file.h"
#include "octavo/text/chat_template.h"

namespace octavo::text {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(OCTAVO_GOLDEN_DIR) / "chat_templates";

OrderedJson golden(const std::string& name) {
  const Result<std::string> text = read_text(kGolden / name);
  return text ? OrderedJson::parse(*text) : OrderedJson();
}

Result<std::string> render(const std::string& text, const OrderedJson& messages,
                           const OrderedJson& tools, const OrderedJson& variables, bool prompt,
                           const OrderedJson& now) {
  OCTAVO_TRY(const ChatTemplate chat_template, ChatTemplate::parse(text, "template"));
  ChatOptions options;
  options.add_generation_prompt = prompt;
  options.variables = variables;
  options.now = std::chrono::local_seconds(std::chrono::seconds(now.get<long>()));
  return chat_template.render(messages, tools, options);
}

// `expected` is a text, or null for an error.
void expect_same(const Result<std::string>& got, const OrderedJson& expected,
                 const std::string& what) {
  if (expected.is_null()) {
    EXPECT_FALSE(got) << what << "\nrenders to " << *got << "\nand jinja2 fails";
  } else if (!got) {
    ADD_FAILURE() << what << "\n" << got.error().message;
  } else {
    EXPECT_EQ(*got, expected.get<std::string>()) << what;
  }
}

TEST(ChatTemplateGolden, Snippets) {
  const OrderedJson all = golden("snippets.json");
  ASSERT_GE(all["snippets"].size(), 600U);
  for (const OrderedJson& snippet : all["snippets"]) {
    const auto text = snippet["template"].get<std::string>();
    expect_same(render(text, OrderedJson::array(), nullptr, all["variables"], false, all["now"]),
                snippet["text"], text);
  }
}

TEST(ChatTemplateGolden, WhatOctavoRefusesIsSaidByName) {
  const OrderedJson all = golden("snippets.json");
  for (const OrderedJson& snippet : all["refused"]) {
    const auto text = snippet.get<std::string>();
    const Result<std::string> got =
        render(text, OrderedJson::array(), nullptr, all["variables"], false, all["now"]);
    ASSERT_FALSE(got) << text;
    const std::string& message = got.error().message;
    EXPECT_TRUE(message.starts_with("template: line 1: ")) << message;
    EXPECT_TRUE(message.find("not supported") != message.npos ||
                message.find("64 bits") != message.npos)
        << text << ": " << message;
  }
}

TEST(ChatTemplateGolden, Conversations) {
  const OrderedJson all = golden("conversations.json");
  std::size_t count = 0;
  for (const std::string file :
       {"header_ids.jinja", "instructions.jinja", "macros.jinja", "plain.jinja", "turns.jinja"}) {
    const OrderedJson& results = all["results"][file];
    const Result<std::string> text = read_text(kGolden / "templates" / file);
    ASSERT_TRUE(text) << file;
    for (const OrderedJson& result : results) {
      const auto name = result["conversation"].get<std::string>();
      const OrderedJson& chat = all["conversations"][name];
      expect_same(render(*text, chat["messages"], chat["tools"], chat["variables"],
                         result["prompt"].get<bool>(), all["now"]),
                  result["text"], file + ", " + name);
      ++count;
    }
  }
  EXPECT_GE(count, 300U);
}

}  // namespace
}  // namespace octavo::text
