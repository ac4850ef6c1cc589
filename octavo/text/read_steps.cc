// Normalizer, pre-tokenizer, post-processor and decoder of a tokenizer.json.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "octavo/text/read_internal.h"
#include "octavo/text/utf8.h"

namespace octavo::text {
namespace {

constexpr std::size_t kMaxSteps = 64;  // of each list; a text goes down a list by recursion
constexpr int kMaxNesting = 16;
constexpr std::size_t kMaxContentBytes = 256;
constexpr std::size_t kMaxGrowth = 1000;  // of a text by a whole list, in the worst case

// What GPT-2 splits by.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Calls on_step(node, type) for a step, and for each of a Sequence, whose list is `list`.
template <class OnStep>
Result<void> for_steps(const JsonNode& node, std::string_view list, int nesting,
                       const OnStep& on_step) {
  if (!node.value.is_object()) return node.bad("an object is expected");
  OCTAVO_TRY(const std::string_view type, node.text("type"));
  if (type != "Sequence") return on_step(node, type);
  if (nesting == kMaxNesting) return node.unsupported("sequences within sequences, too many");
  OCTAVO_TRY(const std::vector<JsonNode> items, node.items(list));
  for (const JsonNode& item : items) OCTAVO_CHECK(for_steps(item, list, nesting + 1, on_step));
  return {};
}

template <class Step>
Result<void> append(const JsonNode& node, std::vector<Step>& steps, Step step) {
  if (steps.size() == kMaxSteps)
    return node.unsupported(fmt::format("more than {} steps", kMaxSteps));
  steps.push_back(std::move(step));
  return {};
}

Result<Pattern> read_pattern(const JsonNode& node) {
  OCTAVO_TRY(const JsonNode pattern, node.get("pattern"));
  Pattern result;
  if (pattern.find("String")) {
    OCTAVO_TRY(result.literal, pattern.text("String"));
    if (result.literal.empty()) return pattern.unsupported("an empty text");
    return result;
  }
  OCTAVO_TRY(const std::string_view regex, pattern.text("Regex"));
  result.is_regex = true;
  OCTAVO_TRY(result.regex, Regex::compile(regex, pattern.where));
  return result;
}

Result<std::string> read_content(const JsonNode& node, std::string_view key) {
  OCTAVO_TRY(const std::string_view content, node.text(key));
  if (content.size() > kMaxContentBytes) {
    return node.unsupported(
        fmt::format("{} of {} bytes; at most {} are read", key, content.size(), kMaxContentBytes));
  }
  return std::string(content);
}

// How much longer a text may become where a pattern gives way to `content`.
std::size_t growth_of(const Pattern& pattern, std::string_view content) {
  if (pattern.is_regex) return content.size() + 1;  // it may match the empty text everywhere
  return content.size() / pattern.literal.size() + 1;
}

Result<void> grow(const JsonNode& node, std::size_t& growth, std::size_t factor) {
  growth *= factor;
  if (growth <= kMaxGrowth) return {};
  return node.unsupported(
      fmt::format("steps that make a text more than {} times as long", kMaxGrowth));
}

// A text of one code point.
Result<std::string> read_code_point(const JsonNode& node, std::string_view key) {
  OCTAVO_TRY(const std::string_view content, node.text(key));
  if (content.empty() || unit_bytes(content[0]) != content.size())
    return node.bad(fmt::format("{} is not one character", key));
  return std::string(content);
}

Result<Behavior> read_behavior(const JsonNode& node, std::string_view otherwise) {
  constexpr std::array<std::pair<std::string_view, Behavior>, 5> kNames = {
      {{"Isolated", Behavior::isolated},
       {"Removed", Behavior::removed},
       {"Contiguous", Behavior::contiguous},
       {"MergedWithPrevious", Behavior::merged_with_previous},
       {"MergedWithNext", Behavior::merged_with_next}}};
  OCTAVO_TRY(const std::string_view given,
             otherwise.empty() ? node.text("behavior") : node.text_or("behavior", otherwise));
  for (const auto& [name, behavior] : kNames)
    if (name == given) return behavior;
  return node.bad(fmt::format("no such behavior: {}", given));
}

Result<SplitStep> read_metaspace(const JsonNode& node) {
  SplitStep step{};
  step.kind = SplitStep::Kind::metaspace;
  step.behavior = Behavior::merged_with_next;
  OCTAVO_TRY(step.replacement, read_code_point(node, "replacement"));
  OCTAVO_TRY(const std::string_view scheme, node.text_or("prepend_scheme", "always"));
  OCTAVO_TRY(const bool prefix_space, node.flag_or("add_prefix_space", true));
  OCTAVO_TRY(step.split, node.flag_or("split", true));
  if (scheme != "always" && scheme != "first" && scheme != "never")
    return node.bad(fmt::format("no such prepend_scheme: {}", scheme));
  if (!prefix_space && node.find("prepend_scheme") && scheme != "never")
    return node.bad("add_prefix_space and prepend_scheme contradict each other");
  step.scheme = !prefix_space || scheme == "never" ? PrependScheme::never
                : scheme == "first"                ? PrependScheme::first
                                                   : PrependScheme::always;
  step.pattern.literal = step.replacement;
  return step;
}

Result<SplitStep> read_split_step(const JsonNode& node, std::string_view type) {
  using Kind = SplitStep::Kind;
  if (type == "Metaspace") return read_metaspace(node);
  SplitStep step{};
  if (type == "Split") {
    step.kind = Kind::pattern;
    OCTAVO_TRY(step.pattern, read_pattern(node));
    OCTAVO_TRY(step.behavior, read_behavior(node, ""));
    OCTAVO_TRY(step.invert, node.flag_or("invert", false));
  } else if (type == "ByteLevel") {
    step.kind = Kind::byte_level;
    OCTAVO_TRY(step.add_prefix_space, node.flag_or("add_prefix_space", true));
    OCTAVO_TRY(step.use_regex, node.flag_or("use_regex", true));
    step.pattern.is_regex = true;
    OCTAVO_TRY(step.pattern.regex, Regex::compile(kByteLevelPattern, node.where));
  } else if (type == "Digits") {
    step.kind = Kind::digits;
    OCTAVO_TRY(const bool individual, node.flag_or("individual_digits", false));
    step.behavior = individual ? Behavior::isolated : Behavior::contiguous;
  } else if (type == "Punctuation") {
    step.kind = Kind::punctuation;
    OCTAVO_TRY(step.behavior, read_behavior(node, "Isolated"));
  } else if (type == "Whitespace") {
    step.kind = Kind::words;
  } else if (type == "WhitespaceSplit") {
    step.kind = Kind::spaces;
    step.behavior = Behavior::removed;
  } else {
    return node.unsupported(fmt::format("the pre-tokenizer {} is not supported", type));
  }
  return step;
}

Result<NormalizerStep> read_normalizer_step(const JsonNode& node, std::string_view type) {
  using Kind = NormalizerStep::Kind;
  constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms = {
      {{"NFC", NormalForm::nfc},
       {"NFD", NormalForm::nfd},
       {"NFKC", NormalForm::nfkc},
       {"NFKD", NormalForm::nfkd}}};
  NormalizerStep step{};
  for (const auto& [name, form] : kForms) {
    if (name != type) continue;
    step.kind = Kind::form;
    step.form = form;
    return step;
  }
  if (type == "Replace") {
    step.kind = Kind::replace;
    OCTAVO_TRY(step.pattern, read_pattern(node));
    OCTAVO_TRY(step.content, read_content(node, "content"));
  } else if (type == "Prepend") {
    step.kind = Kind::prepend;
    OCTAVO_TRY(step.content, read_content(node, "prepend"));
  } else if (type == "Strip") {
    step.kind = Kind::strip;
    OCTAVO_TRY(step.left, node.flag_or("strip_left", true));
    OCTAVO_TRY(step.right, node.flag_or("strip_right", true));
  } else if (type == "Lowercase") {
    step.kind = Kind::lowercase;
  } else {
    return node.unsupported(fmt::format("the normalizer {} is not supported", type));
  }
  return step;
}

// Of "single": a list of {"SpecialToken": {"id": NAME}} and {"Sequence": {"id": "A"}}.
Result<std::vector<TemplatePart>> read_template(const JsonNode& node) {
  std::vector<TemplatePart> parts;
  OCTAVO_TRY(const std::vector<JsonNode> items, node.items("single"));
  bool has_text = false;
  for (const JsonNode& item : items) {
    if (const auto sequence = item.find("Sequence")) {
      OCTAVO_TRY(const std::string_view id, sequence->text("id"));
      if (id != "A") return item.bad("\"single\" has a second sequence");
      if (has_text) return item.unsupported("\"single\" has its sequence twice");
      has_text = true;
      parts.push_back({true, {}});
      continue;
    }
    OCTAVO_TRY(const JsonNode special, item.get("SpecialToken"));
    OCTAVO_TRY(const std::string_view name, special.text("id"));
    OCTAVO_TRY(const JsonNode tokens, node.get("special_tokens"));
    OCTAVO_TRY(const JsonNode token, tokens.get(name));
    OCTAVO_TRY(const std::vector<JsonNode> ids, token.items("ids"));
    TemplatePart part{false, {}};
    for (const JsonNode& id : ids) {
      std::uint64_t number = 0;
      if (id.value.get(number) || number > kMaxTokenId) return id.bad("not the id of a token");
      part.ids.push_back(static_cast<TokenId>(number));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<DecodeStep> read_decode_step(const JsonNode& node, std::string_view type) {
  using Kind = DecodeStep::Kind;
  constexpr std::uint64_t kMostCodes = 1024;
  DecodeStep step{};
  if (type == "ByteLevel") {
    step.kind = Kind::byte_level;
  } else if (type == "ByteFallback") {
    step.kind = Kind::byte_fallback;
  } else if (type == "Fuse") {
    step.kind = Kind::fuse;
  } else if (type == "Replace") {
    step.kind = Kind::replace;
    OCTAVO_TRY(step.pattern, read_pattern(node));
    OCTAVO_TRY(step.content, read_content(node, "content"));
  } else if (type == "Strip") {
    step.kind = Kind::strip;
    OCTAVO_TRY(step.content, read_code_point(node, "content"));
    OCTAVO_TRY(step.start, node.number("start", kMostCodes));
    OCTAVO_TRY(step.stop, node.number("stop", kMostCodes));
  } else if (type == "Metaspace") {
    step.kind = Kind::metaspace;
    OCTAVO_TRY(const SplitStep metaspace, read_metaspace(node));
    step.content = metaspace.replacement;
    step.drop_first = metaspace.scheme != PrependScheme::never;
  } else {
    return node.unsupported(fmt::format("the decoder {} is not supported", type));
  }
  return step;
}

}  // namespace

Result<void> read_normalizer(const JsonNode& document, TokenizerData& data) {
  const std::optional<JsonNode> node = document.find("normalizer");
  if (!node) return {};
  std::size_t growth = 1;
  return for_steps(*node, "normalizers", 0,
                   [&](const JsonNode& item, std::string_view type) -> Result<void> {
                     OCTAVO_TRY(NormalizerStep step, read_normalizer_step(item, type));
                     if (step.kind == NormalizerStep::Kind::replace)
                       OCTAVO_CHECK(grow(item, growth, growth_of(step.pattern, step.content)));
                     return append(item, data.normalizer, std::move(step));
                   });
}

Result<void> read_pre_tokenizer(const JsonNode& document, TokenizerData& data) {
  const std::optional<JsonNode> node = document.find("pre_tokenizer");
  if (!node) return {};
  return for_steps(*node, "pretokenizers", 0,
                   [&](const JsonNode& item, std::string_view type) -> Result<void> {
                     OCTAVO_TRY(SplitStep step, read_split_step(item, type));
                     return append(item, data.pre_tokenizer, std::move(step));
                   });
}

Result<void> read_post_processor(const JsonNode& document, TokenizerData& data) {
  const std::optional<JsonNode> node = document.find("post_processor");
  if (!node) return {};
  return for_steps(
      *node, "processors", 0, [&](const JsonNode& item, std::string_view type) -> Result<void> {
        if (type == "ByteLevel") return {};  // changes offsets only
        if (type != "TemplateProcessing") {
          return item.unsupported(fmt::format("the post-processor {} is not supported", type));
        }
        OCTAVO_TRY(std::vector<TemplatePart> parts, read_template(item));
        return append(item, data.templates, std::move(parts));
      });
}

Result<void> read_decoder(const JsonNode& document, TokenizerData& data) {
  const std::optional<JsonNode> node = document.find("decoder");
  if (!node) return {};
  data.has_decoder = true;
  std::size_t growth = 1;
  return for_steps(*node, "decoders", 0,
                   [&](const JsonNode& item, std::string_view type) -> Result<void> {
                     OCTAVO_TRY(DecodeStep step, read_decode_step(item, type));
                     if (step.kind == DecodeStep::Kind::replace)
                       OCTAVO_CHECK(grow(item, growth, growth_of(step.pattern, step.content)));
                     return append(item, data.decoder, std::move(step));
                   });
}

}  // namespace octavo::text
