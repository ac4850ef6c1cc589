#include "help_format.h"

#include <fmt/format.h>

namespace octavo::app {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kNameWidth = 34;  // "  --modules-to-not-convert NAMES" and a gap

// The lines of `text`, broken at spaces; a word that is longer than a line keeps its own.
std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    std::size_t space = text.rfind(' ', width);
    if (space == text.npos) space = text.find(' ');
    if (space == text.npos) break;
    lines.emplace_back(text.substr(0, space));
    text.remove_prefix(space + 1);
  }
  lines.emplace_back(text);
  return lines;
}

}  // namespace

HelpFormat::HelpFormat() {
  column_width(kNameWidth);
  label("SUBCOMMAND", "COMMAND");
}

std::string HelpFormat::make_help(const CLI::App* app, std::string name,
                                  CLI::AppFormatMode mode) const {
  std::string help = Formatter::make_help(app, std::move(name), mode);
  // Between groups the base class leaves several lines blank.
  while (help.find("\n\n\n") != help.npos) {
    help = CLI::detail::find_and_replace(std::move(help), "\n\n\n", "\n\n");
  }
  return help;
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  std::string name = "  " + make_option_name(option, is_positional);
  if (!is_positional) name += make_option_opts(option);
  std::string text;
  for (const std::string& line : wrapped(make_option_desc(option), kWidth - kNameWidth)) {
    text += fmt::format("{:<{}}{}\n", name, kNameWidth, line);
    name.clear();
  }
  return text;
}

// The word for the value alone: what it may be and its default stand in the description.
std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  return option->get_option_text().empty() ? "" : " " + option->get_option_text();
}

std::string HelpFormat::make_option_desc(const CLI::Option* option) const {
  const std::string fallback = option->get_default_str();
  return option->get_description() + (fallback.empty() ? "" : " (default " + fallback + ")");
}

}  // namespace octavo::app
