#include "octavo/runtime/stop.h"

#include <algorithm>
#include <cstddef>

#include "octavo/text/utf8.h"

namespace octavo::runtime {
namespace {

// Length of the longest end of `text` that is a beginning of `stop`, not all of it.
std::size_t overlap(std::string_view text, std::string_view stop) {
  for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

Result<StopStrings> StopStrings::create(std::vector<std::string> stops) {
  for (const std::string& stop : stops) {
    if (stop.empty()) return fail(ErrorCode::bad_value, "a stop string is empty");
  }
  StopStrings result;
  result.stops_ = std::move(stops);
  return result;
}

std::string StopStrings::push(std::string_view piece) {
  if (!found_.empty()) return "";
  held_ += piece;
  std::size_t first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at == held_.npos) continue;
    const std::size_t end = at + stop.size();
    if (end < first_end || (end == first_end && stop.size() > found_.size())) {
      first_end = end;
      found_ = stop;
    }
  }
  if (!found_.empty()) {
    std::string shown = held_.substr(0, first_end - found_.size());
    held_.clear();
    return shown;
  }
  std::size_t keep = text::cut_bytes(held_);
  for (const std::string& stop : stops_) keep = std::max(keep, overlap(held_, stop));
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopStrings::finish() {
  std::string shown = std::move(held_);
  held_.clear();
  if (const std::size_t cut = text::cut_bytes(shown); cut > 0)
    shown.replace(shown.size() - cut, cut, text::kReplacementText);
  return shown;
}

}  // namespace octavo::runtime
