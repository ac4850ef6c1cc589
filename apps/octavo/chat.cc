#include "chat.h"

namespace octavo::app {

Result<Chat> Chat::open(const RunningModel& running, bool parse_special) {
  const std::filesystem::path& directory = running.checkpoint.directory;
  OCTAVO_TRY(text::ChatTemplates templates, text::read_chat_templates(directory));
  const text::ChatTemplateText* chosen = templates.pick(false);
  if (chosen == nullptr) {
    return fail(
        ErrorCode::bad_model,
        fmt::format("{}: the model has no chat template; leave --chat out", directory.string()));
  }
  OCTAVO_TRY(text::ChatTemplate parsed, text::ChatTemplate::parse(chosen->text, chosen->file));
  return Chat(running, parse_special, std::move(parsed), std::move(templates.special_tokens));
}

void Chat::add(const char* role, const std::string& content) {
  messages_.push_back(
      {{"role", role},
       {"content", parse_special_ ? content : running_->tokenizer->mark_literal(content)}});
}

Result<std::vector<std::int32_t>> Chat::prompt() const {
  text::ChatOptions options;
  options.add_generation_prompt = true;
  options.variables = special_tokens_;
  OCTAVO_TRY(const std::string text, template_.render(messages_, nullptr, options));
  return encode(*running_, text, {.add_special_tokens = false, .literal_marks = !parse_special_});
}

Result<std::vector<std::int32_t>> encode(const RunningModel& running, const std::string& text,
                                         const text::EncodeOptions& options) {
  OCTAVO_TRY(const std::vector<text::TokenId> ids, running.tokenizer->encode(text, options));
  return std::vector<std::int32_t>(ids.begin(), ids.end());
}

}  // namespace octavo::app
