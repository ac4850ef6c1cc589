// A conversation with a model: its chat template, and the messages so far.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model_options.h"
#include "octavo/text/chat_template.h"

namespace octavo::app {

class Chat {
 public:
  // bad_model: a model without a chat template. parse_special: special tokens that messages spell
  // out are such tokens, not text. `running` outlives it.
  static Result<Chat> open(const RunningModel& running, bool parse_special);

  void add(const char* role, const std::string& content);

  // The tokens of all messages and of what begins an answer. bad_model: where the template fails.
  Result<std::vector<std::int32_t>> prompt() const;

 private:
  Chat(const RunningModel& running, bool parse_special, text::ChatTemplate parsed,
       OrderedJson special_tokens)
      : running_(&running),
        parse_special_(parse_special),
        template_(std::move(parsed)),
        special_tokens_(std::move(special_tokens)) {}

  const RunningModel* running_;
  bool parse_special_;
  text::ChatTemplate template_;
  OrderedJson special_tokens_;
  OrderedJson messages_ = OrderedJson::array();
};

// The tokens of a text. bad_model: those of a tokenizer that cannot take it.
Result<std::vector<std::int32_t>> encode(const RunningModel& running, const std::string& text,
                                         const text::EncodeOptions& options);

}  // namespace octavo::app
