#include "octavo/text/jinja/search.h"

#include <string.h>  // memmem

#include <algorithm>
#include <set>

namespace octavo::text::jinja {
namespace {

// The code point that ends at the end of `text`, in bytes.
std::size_t last_code_point(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0 && is_continuation(text[--begin])) {
  }
  return text.size() - begin;
}

std::size_t without_space_until(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t next = at;
    if (is_space(next_code_point(text, next))) break;
    at = next;
  }
  return at;
}

bool is_line_end(CodePoint code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

std::size_t find_text(std::string_view text, std::string_view part) {
  if (part.empty()) return 0;
  if (part.size() > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data(), text.size(), part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last_text(std::string_view text, std::string_view part) {
  const std::string backwards(text.rbegin(), text.rend());
  const std::string part_backwards(part.rbegin(), part.rend());
  const std::size_t found = find_text(backwards, part_backwards);
  return found == std::string::npos ? found : text.size() - found - part.size();
}

std::size_t count_text(std::string_view text, std::string_view part) {
  if (part.empty()) return count_code_points(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = 0;; ++count) {
    const std::size_t found = find_text(text.substr(at), part);
    if (found == text.npos) return count;
    at += found + part.size();
  }
}

std::string replace_text(std::string_view text, std::string_view old, std::string_view now,
                         std::int64_t most) {
  std::string result;
  std::size_t at = 0;
  const auto left = [&] { return most < 0 || (most > 0 && most-- > 0); };
  if (old.empty()) {
    for (const std::string_view code : code_points(text)) {
      if (left()) result += now;
      result += code;
    }
    if (left()) result += now;
    return result;
  }
  while (true) {
    const std::size_t found = find_text(text.substr(at), old);
    if (found == text.npos || !left()) return result += text.substr(at);
    result += text.substr(at, found);
    result += now;
    at += found + old.size();
  }
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    std::int64_t most) {
  std::vector<std::string_view> parts;
  while (most < 0 || most-- > 0) {
    const std::size_t found = find_text(text, separator);
    if (found == text.npos) break;
    parts.push_back(text.substr(0, found));
    text.remove_prefix(found + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_last(std::string_view text, std::string_view separator,
                                         std::int64_t most) {
  // Split backwards: from the end, and parts and text from end to beginning.
  const std::string backwards(text.rbegin(), text.rend());
  const std::string separator_backwards(separator.rbegin(), separator.rend());
  std::vector<std::string_view> parts = split(backwards, separator_backwards, most);
  for (std::string_view& part : parts) {
    const auto begin = static_cast<std::size_t>(part.data() - backwards.data());
    part = text.substr(text.size() - begin - part.size(), part.size());
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_space(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  text.remove_prefix(leading_space(text));
  while (!text.empty()) {
    if (most == 0) {
      parts.push_back(text);  // with the space at its end
      break;
    }
    if (most > 0) --most;
    const std::size_t end = without_space_until(text, 0);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(leading_space(text));
  }
  return parts;
}

std::vector<std::string_view> split_space_last(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  text.remove_suffix(trailing_space(text));
  while (!text.empty()) {
    if (most == 0) {
      parts.push_back(text);  // with the space at its beginning
      break;
    }
    if (most > 0) --most;
    std::size_t begin = text.size();
    while (begin > 0) {
      const std::size_t bytes = last_code_point(text.substr(0, begin));
      std::size_t at = begin - bytes;
      if (is_space(next_code_point(text, at))) break;
      begin -= bytes;
    }
    parts.push_back(text.substr(begin));
    text = text.substr(0, begin);
    text.remove_suffix(trailing_space(text));
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const CodePoint code = next_code_point(text, at);
    if (!is_line_end(code)) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string_view strip(std::string_view text, const std::string* characters, bool left,
                       bool right) {
  if (characters == nullptr) {
    if (left) text.remove_prefix(leading_space(text));
    if (right) text.remove_suffix(trailing_space(text));
    return text;
  }
  std::set<std::string_view> codes;
  for (const std::string_view code : code_points(*characters)) codes.insert(code);
  while (left && !text.empty()) {
    std::size_t bytes = 0;
    next_code_point(text, bytes);
    if (!codes.contains(text.substr(0, bytes))) break;
    text.remove_prefix(bytes);
  }
  while (right && !text.empty()) {
    const std::size_t bytes = last_code_point(text);
    if (!codes.contains(text.substr(text.size() - bytes))) break;
    text.remove_suffix(bytes);
  }
  return text;
}

}  // namespace octavo::text::jinja
