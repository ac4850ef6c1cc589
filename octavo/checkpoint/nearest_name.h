// The module that someone may have meant by a name that is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// Names that share whole dotted segments come first, then those of few edits; numbers count last,
// so that the layers of a model are one candidate. All look-ups of an object together are bounded:
// when that is used up, nothing is near any more.
class NearestName {
 public:
  explicit NearestName(const std::vector<std::string>& modules);

  // Empty: none is near. '*' in the name stands for nothing.
  std::string find(std::string_view name);

 private:
  struct Candidate {
    std::string pattern;                  // without wrappers, each number a '#'
    std::vector<std::uint32_t> segments;  // ids of what is no number, in the order of the name
    std::string first;                    // the first module with this pattern
  };

  std::uint32_t segment_id(std::string_view segment);
  std::vector<std::uint32_t> segments_of(std::string_view pattern);
  bool is_module(std::string_view name) const;

  std::vector<std::string> modules_;  // sorted
  std::vector<Candidate> candidates_;
  std::map<std::string, std::uint32_t, std::less<>> ids_;
  std::uint64_t budget_;
};

}  // namespace octavo
