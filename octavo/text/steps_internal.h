// What a tokenizer.json says, as flat lists of steps.
#pragma once

#include <string>
#include <vector>

#include "octavo/text/bpe_internal.h"
#include "octavo/text/pair_table_internal.h"
#include "octavo/text/regex_internal.h"
#include "octavo/text/tokenizer.h"
#include "octavo/text/unicode_internal.h"

namespace octavo::text {

// A literal text, or a regular expression.
struct Pattern {
  bool is_regex = false;
  std::string literal;  // not empty
  Regex regex;
};

struct NormalizerStep {
  enum class Kind { form, replace, prepend, strip, lowercase };
  Kind kind;
  NormalForm form{};
  Pattern pattern;      // replace
  std::string content;  // replace, prepend
  bool left = false;    // strip
  bool right = false;
};

// What becomes of the parts of a text that a pattern matches.
enum class Behavior { isolated, removed, contiguous, merged_with_previous, merged_with_next };

// Where Metaspace puts its sign in front.
enum class PrependScheme { always, first, never };

struct SplitStep {
  enum class Kind { pattern, byte_level, digits, punctuation, words, spaces, metaspace };
  Kind kind;
  Behavior behavior = Behavior::isolated;
  Pattern pattern;                // pattern; byte_level with `use_regex`
  bool invert = false;            // pattern: what it does not match is the match
  bool use_regex = false;         // byte_level
  bool add_prefix_space = false;  // byte_level
  std::string replacement;        // metaspace
  PrependScheme scheme = PrependScheme::always;
  bool split = true;  // metaspace
};

struct AddedToken {
  TokenId id = 0;
  std::string content;
  std::string decoded;  // the content, normalized where the token is
  bool single_word = false;
  bool left_strip = false;
  bool right_strip = false;
  bool normalized = false;
  bool special = false;
};

// The added tokens that a text is searched for.
struct TokenTrie {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  PairTable edges;                  // node, byte -> node
  std::vector<std::uint32_t> ends;  // by node: the token that ends there, or kNone
  std::array<bool, 256> begins{};   // whether any token begins with the byte

  void add(std::string_view text, std::uint32_t token);

  // The longest token that a text (not empty) begins with, and its bytes.
  struct Match {
    std::uint32_t token = kNone;
    std::size_t bytes = 0;
  };
  Match longest(std::string_view text) const;
};

struct TemplatePart {
  bool is_text;  // in place of what was encoded
  std::vector<TokenId> ids;
};

struct DecodeStep {
  enum class Kind { byte_level, byte_fallback, fuse, replace, strip, metaspace };
  Kind kind;
  Pattern pattern;        // replace
  std::string content;    // replace, metaspace; strip: one code point
  std::size_t start = 0;  // strip: of them at most
  std::size_t stop = 0;
  bool drop_first = false;  // metaspace: in the first token
};

struct TokenizerData {
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> pre_tokenizer;
  Bpe bpe;
  std::vector<AddedToken> added;           // in the order of the file
  std::vector<std::uint32_t> added_by_id;  // of `added`, or TokenTrie::kNone
  Vocabulary added_ids;
  TokenTrie plain;                                   // searched in the text
  TokenTrie normalized;                              // searched in the normalized text
  std::vector<std::vector<TemplatePart>> templates;  // one around the other
  bool has_decoder = false;                          // without, tokens are joined by spaces
  std::vector<DecodeStep> decoder;

  const AddedToken* added_token(TokenId id) const {
    return id < added_by_id.size() && added_by_id[id] != TokenTrie::kNone ? &added[added_by_id[id]]
                                                                          : nullptr;
  }
};

// `content` in place of each match; nullopt where the regular expression failed.
std::optional<std::string> replaced(const Pattern& pattern, std::string_view content,
                                    std::string_view text);

// nullopt where a regular expression failed. `at_start` stays where the first code point is kept.
std::optional<std::string> run_normalizer(const std::vector<NormalizerStep>& steps,
                                          std::string_view text, bool& at_start);

// `file` is what messages begin with.
Result<TokenizerData> read_tokenizer_json(std::string_view json, std::string_view file);

}  // namespace octavo::text
