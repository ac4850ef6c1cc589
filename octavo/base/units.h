// Words for numbers in messages.
#pragma once

#include <string>

namespace octavo {

std::string human_bytes(double bytes);  // "269.1 MB": powers of 1000, as disks and links are sold

}  // namespace octavo
