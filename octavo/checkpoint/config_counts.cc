#include "octavo/checkpoint/config_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "octavo/base/words.h"

namespace octavo {
namespace {

// Where the layers of a language model stand; other towers count for themselves.
constexpr std::array<std::string_view, 5> kLayerPrefixes = {
    "model.layers.", "model.language_model.layers.", "language_model.model.layers.",
    "language_model.layers.", "layers."};
constexpr std::array<std::string_view, 4> kEmbeddings = {
    "model.embed_tokens.weight", "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight", "embed.weight"};

constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 62;  // no number in a name may overflow

struct Implied {
  std::uint64_t layers = 0;   // 0: no tensor says
  std::uint64_t experts = 0;  // per layer, stored one by one
  const TensorInfo* embedding = nullptr;
  const TensorInfo* query = nullptr;  // (heads x head size, hidden size)
  const TensorInfo* key = nullptr;

  std::string layers_words() const {
    return layers == 0 ? "" : "tensors have " + counted(layers, "layer");
  }
  std::string experts_words() const {
    return experts == 0 ? "" : "tensors have " + counted(experts, "expert");
  }
};

std::string words_of(const TensorInfo* tensor) {
  return tensor == nullptr ? "" : fmt::format("{} is {}", tensor->name, to_string(tensor->shape));
}

// Rows and columns of packed integers would say something else.
bool is_matrix_of_numbers(const TensorInfo& tensor) {
  return tensor.shape.size() == 2 && (is_wide_float(tensor.dtype) || is_fp8(tensor.dtype));
}

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
      if (*layer < kMaxCount) implied.layers = std::max(implied.layers, *layer + 1);
      const TensorInfo& info = checkpoint.tensors[index].info;
      if (name.ends_with(".self_attn.q_proj.weight") && is_matrix_of_numbers(info))
        implied.query = &info;
      if (name.ends_with(".self_attn.k_proj.weight") && is_matrix_of_numbers(info))
        implied.key = &info;
      const std::size_t at = name.find(kExperts);
      if (at == name.npos) break;
      const auto expert = leading_number(std::string_view(name).substr(at + kExperts.size()));
      if (expert && *expert < kMaxCount) implied.experts = std::max(implied.experts, *expert + 1);
      break;
    }
  }
  for (const std::string_view name : kEmbeddings) {
    const CheckpointTensor* found = checkpoint.find(name);
    if (found != nullptr && is_matrix_of_numbers(found->info)) implied.embedding = &found->info;
  }
  return implied;
}

// The counts of one config object (the top, or text_config).
class CountCheck {
 public:
  CountCheck(const Survey& survey, const Json& object, Defects& defects)
      : object_(object),
        file_((survey.checkpoint.directory / "config.json").string()),
        complete_(survey.complete),
        defects_(defects) {}

  void run(const Implied& all) {
    const Implied implied = complete_ ? all : Implied{};
    const std::string embedding = words_of(implied.embedding);
    const auto layers = count("num_hidden_layers", 1, implied.layers_words());
    const auto heads = count("num_attention_heads", 1, words_of(implied.query));
    const auto kv_heads = count("num_key_value_heads", 1, words_of(implied.key));
    const auto vocabulary = count("vocab_size", 1, embedding);
    const auto hidden = count("hidden_size", 1, embedding);
    const auto chosen = count("num_experts_per_tok", 0, implied.experts_words());
    std::optional<std::uint64_t> experts;
    const char* experts_key = "";
    for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
      if (const auto found = count(key, 0, implied.experts_words())) {
        experts = found;
        experts_key = key;
      }
    }
    if (heads && kv_heads && *heads % *kv_heads != 0) {
      refuse("num_key_value_heads", *kv_heads,
             joined(fmt::format("it does not divide num_attention_heads {}", *heads),
                    words_of(implied.key)));
    }
    if (experts && chosen && *chosen > *experts) {
      refuse("num_experts_per_tok", *chosen,
             joined(fmt::format("{} is {}", experts_key, *experts), implied.experts_words()));
    }
    check_layers(implied.layers, implied.layers_words(), layers);
    if (experts && implied.experts > 0 && *experts != implied.experts)
      refuse(experts_key, *experts, implied.experts_words());
    if (implied.embedding == nullptr) return;
    const Shape& shape = implied.embedding->shape;
    if (vocabulary && *vocabulary > shape[0]) refuse("vocab_size", *vocabulary, embedding);
    if (hidden && *hidden != shape[1]) refuse("hidden_size", *hidden, embedding);
  }

 private:
  static std::string joined(const std::string& a, const std::string& b) {
    return b.empty() ? a : a + "; " + b;
  }

  // nullopt where the key is absent, or null, or a list (one value per layer). `tensors`: what they
  // say of it.
  std::optional<std::uint64_t> count(const char* key, std::uint64_t least,
                                     const std::string& tensors) {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null() || found->is_array()) return std::nullopt;
    if (found->is_number_unsigned() && found->get<std::uint64_t>() >= least)
      return found->get<std::uint64_t>();
    refuse(key, found->dump(-1, ' ', false, Json::error_handler_t::replace),
           joined(fmt::format("a whole number of at least {} is expected", least), tensors));
    return std::nullopt;
  }

  void check_layers(std::uint64_t implied, const std::string& words,
                    std::optional<std::uint64_t> layers) {
    if (!layers || implied == 0) return;
    const std::uint64_t more = count("num_nextn_predict_layers", 0, words).value_or(0);
    if (implied >= *layers && implied - *layers <= more) return;
    refuse("num_hidden_layers", *layers,
           joined(words, more == 0 ? "" : fmt::format("num_nextn_predict_layers is {}", more)));
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
