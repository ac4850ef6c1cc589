// How --help looks: two columns, 100 characters wide.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace octavo::app {

class HelpFormat : public CLI::Formatter {
 public:
  HelpFormat();

 private:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace octavo::app
