// One text on its way to ids.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/steps_internal.h"

namespace octavo::text {

class Encoder {
 public:
  // `text` is valid UTF-8 and stays where it is.
  Encoder(const TokenizerData& data, std::string_view text, const EncodeOptions& options);

  Result<std::vector<TokenId>> run();
  std::uint64_t merge_steps() const { return bpe_.steps; }

 private:
  struct CachedWord {
    const char* begin = nullptr;
    std::size_t bytes = 0;
    std::size_t first = 0;  // of ids_
    std::size_t count = 0;
  };

  std::string_view keep(std::string text) { return kept_.emplace_back(std::move(text)); }
  template <class OnText>
  void find_added(const TokenTrie& trie, std::string_view text, const OnText& on_text);
  void normalize(std::string_view text, bool at_start);
  void pre_tokenize(std::size_t step, std::string_view text, bool at_start);
  void byte_level(std::size_t step, std::string_view text, bool at_start);
  void metaspace(std::size_t step, std::string_view text, bool at_start);
  template <class OnPart>
  bool split(const SplitStep& step, RegexScratch& scratch, std::string_view text,
             const OnPart& on_part);
  void word(std::string_view text, bool raw);
  void cached_word(std::string_view text, bool raw);

  const TokenizerData& data_;
  std::string_view text_;
  EncodeOptions options_;
  std::deque<std::string> kept_;       // texts that steps made; words of the cache point into them
  std::vector<RegexScratch> regexes_;  // one per step
  std::vector<CachedWord> cache_;      // by hash, a later word takes the place of an earlier one
  BpeScratch bpe_;
  std::vector<TokenId> ids_;
  const char* failure_ = nullptr;
};

}  // namespace octavo::text
