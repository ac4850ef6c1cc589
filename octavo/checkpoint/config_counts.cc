#include "octavo/checkpoint/config_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace octavo {
namespace {

// Where the layers of a language model stand; other towers count for themselves.
constexpr std::array<std::string_view, 5> kLayerPrefixes = {
    "model.layers.", "model.language_model.layers.", "language_model.model.layers.",
    "language_model.layers.", "layers."};
constexpr std::array<std::string_view, 4> kEmbeddings = {
    "model.embed_tokens.weight", "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight", "embed.weight"};

struct Implied {
  std::uint64_t layers = 0;   // 0: no tensor says
  std::uint64_t experts = 0;  // per layer, stored one by one
  const TensorInfo* embedding = nullptr;
};

// The number at the beginning of `text`, if a dot follows.
std::optional<std::uint64_t> leading_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (error != std::errc() || end == text.end() || *end != '.') return std::nullopt;
  return number;
}

Implied implied_by(const Checkpoint& checkpoint) {
  constexpr std::string_view kExperts = ".experts.";
  Implied implied;
  for (const auto& [name, index] : checkpoint.by_name) {
    for (const std::string_view prefix : kLayerPrefixes) {
      if (!name.starts_with(prefix)) continue;
      const auto layer = leading_number(std::string_view(name).substr(prefix.size()));
      if (!layer) break;
      implied.layers = std::max(implied.layers, *layer + 1);
      const std::size_t at = name.find(kExperts);
      if (at == name.npos) break;
      const auto expert = leading_number(std::string_view(name).substr(at + kExperts.size()));
      if (expert) implied.experts = std::max(implied.experts, *expert + 1);
      break;
    }
  }
  for (const std::string_view name : kEmbeddings) {
    const CheckpointTensor* found = checkpoint.find(name);
    if (found != nullptr && found->info.shape.size() == 2) implied.embedding = &found->info;
  }
  return implied;
}

// The counts of one config object (the top, or text_config).
class CountCheck {
 public:
  CountCheck(const Survey& survey, const Json& object, Defects& defects)
      : object_(object),
        file_((survey.checkpoint.directory / "config.json").string()),
        complete_(survey.defects.empty()),
        defects_(defects) {}

  void run(const Implied& implied) {
    const auto layers = count("num_hidden_layers", 1);
    const auto heads = count("num_attention_heads", 1);
    const auto kv_heads = count("num_key_value_heads", 1);
    const auto vocabulary = count("vocab_size", 1);
    const auto hidden = count("hidden_size", 1);
    const auto chosen = count("num_experts_per_tok", 0);
    std::optional<std::uint64_t> experts;
    const char* experts_key = "";
    for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
      if (const auto found = count(key, 0)) {
        experts = found;
        experts_key = key;
      }
    }
    if (heads && kv_heads && *heads % *kv_heads != 0) {
      refuse("num_key_value_heads", *kv_heads,
             fmt::format("does not divide num_attention_heads {}", *heads));
    }
    if (experts && chosen && *chosen > *experts)
      refuse("num_experts_per_tok", *chosen, fmt::format("{} is {}", experts_key, *experts));
    if (!complete_) return;
    check_layers(implied.layers, layers);
    if (experts && implied.experts > 0 && *experts != implied.experts)
      refuse(experts_key, *experts, fmt::format("tensors have {} experts", implied.experts));
    if (implied.embedding == nullptr) return;
    const Shape& shape = implied.embedding->shape;
    const std::string what = fmt::format("{} is {}", implied.embedding->name, to_string(shape));
    if (vocabulary && *vocabulary > shape[0]) refuse("vocab_size", *vocabulary, what);
    if (hidden && *hidden != shape[1]) refuse("hidden_size", *hidden, what);
  }

 private:
  // nullopt where the key is absent, or null, or a list (one value per layer).
  std::optional<std::uint64_t> count(const char* key, std::uint64_t least) {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null() || found->is_array()) return std::nullopt;
    if (found->is_number_unsigned() && found->get<std::uint64_t>() >= least)
      return found->get<std::uint64_t>();
    refuse(key, found->dump(-1, ' ', false, Json::error_handler_t::replace),
           fmt::format("a whole number of at least {} is expected", least));
    return std::nullopt;
  }

  void check_layers(std::uint64_t implied, std::optional<std::uint64_t> layers) {
    if (!layers || implied == 0) return;
    const std::uint64_t more = count("num_nextn_predict_layers", 0).value_or(0);
    if (implied >= *layers && implied - *layers <= more) return;
    refuse("num_hidden_layers", *layers,
           fmt::format("tensors have {} layers{}", implied,
                       more == 0 ? "" : fmt::format(" (num_nextn_predict_layers is {})", more)));
  }

  template <class Value>
  void refuse(std::string_view key, const Value& value, std::string_view why) {
    defects_.push_back(make_defect(DefectCode::config_value, file_, "", {},
                                   fmt::format("{}: {} is {}, but {}", file_, key, value, why)));
  }

  const Json& object_;
  std::string file_;
  bool complete_;
  Defects& defects_;
};

}  // namespace

void check_config_counts(const Survey& survey, Defects& defects) {
  const Checkpoint& checkpoint = survey.checkpoint;
  const Implied implied = implied_by(checkpoint);
  CountCheck(survey, checkpoint.config, defects).run(implied);
  const auto text = checkpoint.config.find("text_config");
  if (text != checkpoint.config.end() && text->is_object())
    CountCheck(survey, *text, defects).run(implied);
}

}  // namespace octavo
