// What becomes of a run whose mapped files lose pages.
#pragma once

#include <span>

#include "octavo/base/file_mapping.h"

namespace octavo::app {

// From now on a page of these that cannot be read ends the program with a line that names the file
// and exit status 1, not by a signal. Once, before the mappings are used.
void catch_lost_pages(std::span<const FileMapping> mappings);

}  // namespace octavo::app
