// Ends a stream of text at the first stop string, which is never shown, nor a beginning of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"

namespace octavo::runtime {

// How the text is cut into pieces changes nothing but when it comes out. Pieces may end inside a
// UTF-8 character; what comes out never does.
class StopStrings {
 public:
  StopStrings() = default;
  // bad_value: an empty string, which would end everything.
  static Result<StopStrings> create(std::vector<std::string> stops);

  // What may be shown now. After a stop string was found: nothing.
  std::string push(std::string_view piece);

  // What was held back, once no more text comes. A character that was cut becomes U+FFFD.
  std::string finish();

  // The stop string that ended the text, or empty. Of several, the one that was complete first;
  // of those complete at once, the longest.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string found_;
};

}  // namespace octavo::runtime
