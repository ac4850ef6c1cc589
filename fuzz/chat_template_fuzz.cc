// A template, and a conversation that it renders, with limits that keep a run short.
#include <string>

#include "fuzz/check.h"
#include "octavo/text/chat_template.h"

namespace octavo::fuzz {
namespace {

constexpr std::string_view kName = "chat_template.jinja";
constexpr std::size_t kOutput = 1 << 16;

OrderedJson conversation() {
  return OrderedJson::parse(R"([
    {"role": "system", "content": "S"},
    {"role": "user", "content": [{"type": "text", "text": " \u00e9 "}, {"type": "image"}]},
    {"role": "assistant", "content": "<think>\nx\n</think>\n\ny", "reasoning_content": "r",
     "tool_calls": [{"id": "abc123DEF", "function": {"name": "f", "arguments": {"a": 1.5}}}]},
    {"role": "tool", "content": "21", "tool_call_id": "abc123DEF"}])");
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace octavo;
  using namespace octavo::fuzz;
  using namespace octavo::text;
  const Result<ChatTemplate> chat_template = ChatTemplate::parse(as_text(data, size), kName);
  if (!chat_template) {
    require_message(chat_template.error().message, kName);
    return 0;
  }
  ChatOptions options;
  options.add_generation_prompt = true;
  options.variables["bos_token"] = "<s>";
  options.now = std::chrono::local_seconds(std::chrono::seconds(1'700'000'000));
  options.limits = {20'000, 1 << 22, kOutput};
  const OrderedJson tools = OrderedJson::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {}}}}])");
  const Result<std::string> text = chat_template->render(conversation(), tools, options);
  if (!text) {
    require_message(text.error().message, kName);
    return 0;
  }
  require(text->size() <= kOutput, "the output is within its limit");
  require(chat_template->render(conversation(), tools, options) == *text,
          "a template renders the same every time");
  return 0;
}
