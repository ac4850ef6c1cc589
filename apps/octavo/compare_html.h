// A comparison as one page that needs nothing else.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "octavo/checkpoint/compare.h"

namespace octavo::app {

// bad_value where a page cannot be written there: no directory, a device or pipe, or a file of one
// of the inputs.
Result<void> check_html_path(const std::filesystem::path& path,
                             const std::vector<const Checkpoint*>& inputs);

std::string comparison_html(const Comparison& comparison, const std::string& a,
                            const std::string& b);

// Has its name only once it is whole; a link is followed.
Result<void> write_html(const std::filesystem::path& path, const std::string& page);

}  // namespace octavo::app
