// Renders chat templates for the differential tests: a JSON object per line of standard input with
// template, messages, tools, variables, add_generation_prompt and now (seconds, local time), one
// with text or error per line of standard output.
#include <chrono>
#include <iostream>
#include <string>

#include "octavo/text/chat_template.h"

namespace {

octavo::Result<std::string> render(const octavo::OrderedJson& job) {
  OCTAVO_TRY(const octavo::text::ChatTemplate chat_template,
             octavo::text::ChatTemplate::parse(job["template"].get<std::string>(), "template"));
  octavo::text::ChatOptions options;
  options.add_generation_prompt = job["add_generation_prompt"].get<bool>();
  options.variables = job["variables"];
  options.now = std::chrono::local_seconds(std::chrono::seconds(job["now"].get<long>()));
  return chat_template.render(job["messages"], job["tools"], options);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const octavo::Result<std::string> text = render(octavo::OrderedJson::parse(line));
    octavo::OrderedJson result;
    if (text) {
      result["text"] = *text;
    } else {
      result["error"] = text.error().message;
    }
    std::cout << result.dump() << "\n";
  }
  return 0;
}
