// Regular expressions of tokenizer.json: written for Oniguruma (Ruby's syntax), run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "octavo/base/error.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace octavo::text {

// The same expression in PCRE2's syntax. unsupported, with the construct, where the two have none
// in common; `where` is what the message begins with.
Result<std::string> to_pcre2(std::string_view pattern, std::string_view where);

class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern, std::string_view where);

 private:
  friend class RegexMatches;
  std::shared_ptr<const pcre2_real_code_8> code_;
};

// What matching needs; one per thread and regex in use.
class RegexScratch {
 public:
  RegexScratch();

 private:
  friend class RegexMatches;
  std::shared_ptr<pcre2_real_match_context_8> context_;
  std::shared_ptr<pcre2_real_match_data_8> data_;
};

// The matches of a regex in a valid text, left to right. An empty match right behind another one is
// none. Backtracking is limited: a match may take a number of steps in proportion to the text.
class RegexMatches {
 public:
  RegexMatches(const Regex& regex, RegexScratch& scratch, std::string_view text);

  // Sets [begin, end). False where there are no more; then failed() says whether that is the truth.
  bool next(std::size_t& begin, std::size_t& end);
  bool failed() const { return failed_; }

 private:
  const Regex& regex_;
  RegexScratch& scratch_;
  std::string replaced_;  // the text where it holds code points that PCRE2 does not know
  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t last_end_;
  bool failed_ = false;
};

}  // namespace octavo::text
