#include <optional>

#include "octavo/text/steps_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

std::string_view stripped(const NormalizerStep& step, std::string_view text) {
  while (step.left && !text.empty() && is_space(first_code(text)))
    text.remove_prefix(unit_bytes(text[0]));
  while (step.right && !text.empty() && is_space(last_code(text))) {
    std::string last;
    append_utf8(last, last_code(text));
    text.remove_suffix(last.size());
  }
  return text;
}

}  // namespace

std::optional<std::string> replaced(const Pattern& pattern, std::string_view content,
                                    std::string_view text) {
  std::string result;
  result.reserve(text.size());
  std::size_t done = 0;
  const auto replace = [&](std::size_t begin, std::size_t end) {
    result += text.substr(done, begin - done);
    result += content;
    done = end;
  };
  if (pattern.is_regex) {
    RegexScratch scratch;
    RegexMatches matches(pattern.regex, scratch, text);
    std::size_t begin = 0;
    std::size_t end = 0;
    while (matches.next(begin, end)) replace(begin, end);
    if (matches.failed()) return std::nullopt;
  } else {
    const std::string& literal = pattern.literal;
    for (std::size_t at = text.find(literal); at != text.npos; at = text.find(literal, done))
      replace(at, at + literal.size());
  }
  result += text.substr(done);
  return result;
}

std::optional<std::string> run_normalizer(const std::vector<NormalizerStep>& steps,
                                          std::string_view text, bool& at_start) {
  std::string now(text);
  for (const NormalizerStep& step : steps) {
    switch (step.kind) {
      case NormalizerStep::Kind::form:
        now = normalized(step.form, now);
        break;
      case NormalizerStep::Kind::replace: {
        std::optional<std::string> next = replaced(step.pattern, step.content, now);
        if (!next) return std::nullopt;
        now = *std::move(next);
        break;
      }
      case NormalizerStep::Kind::prepend:
        if (!now.empty()) now.insert(0, step.content);
        break;
      case NormalizerStep::Kind::strip:
        if (step.left && !now.empty() && is_space(first_code(now))) at_start = false;
        now = std::string(stripped(step, now));
        break;
      case NormalizerStep::Kind::lowercase:
        now = lowered(now);
        break;
    }
  }
  return now;
}

}  // namespace octavo::text
