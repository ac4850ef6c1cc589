// Chat templates: what turns messages into the text that a model was trained on. The language is
// Jinja as Transformers sets it up (sandboxed, values cannot be changed, `{% generation %}`,
// `break`, `continue`, its own `tojson`).
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json.h"
#include "octavo/text/jinja/limits.h"

namespace octavo::text {

struct ChatOptions {
  bool add_generation_prompt = false;
  // What else the template may read, an object: ChatTemplates::special_tokens, enable_thinking,
  // documents...
  OrderedJson variables = OrderedJson::object();
  // For strftime_now; the time of this machine where it is not given.
  std::optional<std::chrono::local_seconds> now;
  jinja::Limits limits;
};

class ChatTemplate {
 public:
  // `name` is the file, for messages. bad_file with the line where the text is no template;
  // unsupported where it uses what Octavo lacks.
  static Result<ChatTemplate> parse(std::string_view text, std::string_view name);

  // `messages` is a list of objects, `tools` a list or null. As Transformers does, a member of a
  // message that is null counts as absent, and reasoning under one of its names is found under
  // `reasoning_content` too. bad_value with the line where the template fails or raises.
  Result<std::string> render(const OrderedJson& messages, const OrderedJson& tools,
                             const ChatOptions& options) const;

 private:
  struct Tree;
  ChatTemplate(std::shared_ptr<const Tree> tree, std::string name)
      : tree_(std::move(tree)), name_(std::move(name)) {}

  std::shared_ptr<const Tree> tree_;
  std::string name_;
};

// The templates of a model directory, not parsed: a model loads whatever its template is like.
struct ChatTemplateText {
  std::string name;  // "default", "tool_use"...
  std::string text;
  std::string file;  // where it stands, for messages
};
struct ChatTemplates {
  std::vector<ChatTemplateText> all;
  OrderedJson special_tokens = OrderedJson::object();  // bos_token, eos_token... of the tokenizer

  // `tool_use` where there are tools and it exists, else `default`; nullptr where there is neither.
  const ChatTemplateText* pick(bool with_tools) const;
};

// In this order: chat_template.jinja and additional_chat_templates/NAME.jinja; the chat_template of
// tokenizer_config.json, a text or a list of {name, template}; that of chat_template.json. Empty
// where the model has none.
Result<ChatTemplates> read_chat_templates(const std::filesystem::path& directory);

}  // namespace octavo::text
