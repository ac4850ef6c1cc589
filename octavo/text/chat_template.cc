#include "octavo/text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "octavo/base/file.h"
#include "octavo/text/jinja/json_text.h"
#include "octavo/text/jinja/parser.h"
#include "octavo/text/jinja/renderer.h"

namespace octavo::text {
namespace {

std::unexpected<Error> failed(std::string_view name, const jinja::Failure& failure, int line) {
  if (failure.line > 0) line = failure.line;
  return fail(failure.code, line > 0 ? fmt::format("{}: line {}: {}", name, line, failure.message)
                                     : fmt::format("{}: {}", name, failure.message));
}

// The names under which templates look for reasoning, the usual one first.
constexpr const char* kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

OrderedJson normalized(const OrderedJson& message) {
  OrderedJson result = OrderedJson::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) result[key] = value;
  }
  for (const char* name : kReasoning) {
    if (!result.contains(name)) continue;
    const OrderedJson reasoning = result[name];
    if (result.contains("thinking")) {
      result["reasoning_content"] = reasoning;
      return result;
    }
    OrderedJson first = OrderedJson::object();
    first["thinking"] = reasoning;
    first.insert(result.begin(), result.end());
    first["reasoning_content"] = reasoning;
    return first;
  }
  return result;
}

Result<OrderedJson> normalized_messages(const OrderedJson& messages) {
  if (!messages.is_array()) return fail(ErrorCode::bad_value, "messages: a list was expected");
  OrderedJson result = OrderedJson::array();
  for (const OrderedJson& message : messages) {
    if (!message.is_object()) {
      return fail(ErrorCode::bad_value,
                  fmt::format("messages: an object like {{\"role\": ..., \"content\": ...}} was "
                              "expected, this is {}",
                              message.type_name()));
    }
    result.push_back(normalized(message));
  }
  return result;
}

}  // namespace

struct ChatTemplate::Tree {
  jinja::Block block;
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view text, std::string_view name) {
  try {
    return ChatTemplate(std::make_shared<const Tree>(Tree{jinja::parse(text)}), std::string(name));
  } catch (const jinja::Failure& failure) {
    return failed(name, failure, 0);
  }
}

Result<std::string> ChatTemplate::render(const OrderedJson& messages, const OrderedJson& tools,
                                         const ChatOptions& options) const {
  OCTAVO_TRY(const OrderedJson chat, normalized_messages(messages));
  jinja::Renderer renderer(options.limits, options.now);
  try {
    std::vector<std::pair<std::string, jinja::Value>> variables;
    variables.emplace_back("messages", jinja::from_json(chat, renderer.budget()));
    variables.emplace_back("tools", jinja::from_json(tools, renderer.budget()));
    variables.emplace_back("documents", jinja::Value());
    variables.emplace_back("add_generation_prompt", jinja::Value(options.add_generation_prompt));
    for (const auto& [key, value] : options.variables.items())
      variables.emplace_back(key, jinja::from_json(value, renderer.budget()));
    return renderer.render(tree_->block, variables);
  } catch (const jinja::Failure& failure) {
    return failed(name_, failure, renderer.line());
  }
}

const ChatTemplateText* ChatTemplates::pick(bool with_tools) const {
  const auto find = [&](std::string_view name) -> const ChatTemplateText* {
    const auto found = std::ranges::find(all, name, &ChatTemplateText::name);
    return found == all.end() ? nullptr : &*found;
  };
  const ChatTemplateText* tool_use = with_tools ? find("tool_use") : nullptr;
  return tool_use != nullptr ? tool_use : find("default");
}

namespace {

namespace fs = std::filesystem;

Result<void> read_template_files(const fs::path& directory, ChatTemplates& templates) {
  std::error_code ignored;
  std::vector<std::pair<std::string, fs::path>> files;
  if (fs::is_regular_file(directory / "chat_template.jinja", ignored))
    files.emplace_back("default", directory / "chat_template.jinja");
  const fs::path additional = directory / "additional_chat_templates";
  std::error_code error;
  for (fs::directory_iterator entry(additional, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".jinja")
      files.emplace_back(entry->path().stem().string(), entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return fail(ErrorCode::io,
                fmt::format("{}: cannot list this: {}", additional.string(), error.message()));
  }
  std::ranges::sort(files);
  for (const auto& [name, path] : files) {
    OCTAVO_TRY(std::string text, read_text(path));
    templates.all.push_back({name, std::move(text), path.string()});
  }
  return {};
}

// A chat_template as a configuration has it.
Result<void> take_templates(const Json& config, const std::string& file, ChatTemplates& templates) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return {};
  if (found->is_string()) {
    templates.all.push_back({"default", found->get<std::string>(), file});
    return {};
  }
  const auto text_at = [](const Json& item, const char* key) {
    return item.is_object() && item.contains(key) && item[key].is_string();
  };
  if (!found->is_array() || !std::ranges::all_of(*found, [&](const Json& item) {
        return text_at(item, "name") && text_at(item, "template");
      })) {
    return fail(ErrorCode::bad_file,
                file + ": chat_template: a text or a list of {name, template} was expected");
  }
  for (const Json& item : *found) {
    const auto name = item["name"].get<std::string>();
    // The last of several with one name counts.
    std::erase_if(templates.all, [&](const ChatTemplateText& t) { return t.name == name; });
    templates.all.push_back({name, item["template"].get<std::string>(), file});
  }
  return {};
}

// "bos_token": "<s>" or {"content": "<s>", ...}.
void take_special_tokens(const Json& config, OrderedJson& tokens) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                          "cls_token", "mask_token"}) {
    const auto found = config.find(key);
    if (found == config.end()) continue;
    const Json& value = found->is_object() ? found->value("content", Json()) : *found;
    if (value.is_string()) tokens[key] = value.get<std::string>();
  }
}

}  // namespace

Result<ChatTemplates> read_chat_templates(const fs::path& directory) {
  ChatTemplates templates;
  OCTAVO_CHECK(read_template_files(directory, templates));
  std::error_code ignored;
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const fs::path path = directory / name;
    if (!fs::exists(path, ignored)) continue;
    OCTAVO_TRY(const std::string text, read_text(path));
    OCTAVO_TRY(const Json config, parse_json_object(text, path.string()));
    if (name == std::string_view("tokenizer_config.json"))
      take_special_tokens(config, templates.special_tokens);
    if (templates.all.empty()) OCTAVO_CHECK(take_templates(config, path.string(), templates));
  }
  return templates;
}

}  // namespace octavo::text
