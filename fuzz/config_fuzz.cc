// config.json and hf_quant_config.json: what they say of the quantization, and edits of their text.
#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "octavo/base/json.h"
#include "octavo/checkpoint/quant_config.h"

namespace octavo::fuzz {
namespace {

constexpr std::string_view kName = "config.json";
constexpr std::string_view kValue = R"({"fmt": ["}", 1e-05]})";
constexpr std::size_t kMaxDepth = 500;  // comparing and copying in this file recurses

using Path = std::vector<std::string>;

bool is_shallow(std::string_view text) {
  return static_cast<std::size_t>(
             std::ranges::count_if(text, [](char c) { return c == '[' || c == '{'; })) < kMaxDepth;
}

void check_quantization(const Result<QuantConfig>& got) {
  if (!got) return require_message(got.error().message, kName);
  if (got->weight_block_size) {
    require(got->weight_block_size->rows > 0 && got->weight_block_size->cols > 0,
            "blocks are not empty");
  }
  require(got->present || (got->quant_method.empty() && got->skip.empty()),
          "nothing comes from a section that is not there");
  require(got->skip.empty() || !got->skip_key.empty(), "a skip list has a key");
}

// The object that `path` leads to, or nullptr.
Json* object_at(Json& json, const Path& path) {
  Json* at = &json;
  for (const std::string& key : path) {
    const auto found = at->find(key);
    if (found == at->end()) return nullptr;
    at = &*found;
    if (!at->is_object()) return nullptr;
  }
  return at;
}

// Bytes at the beginning and at the end that both texts share.
std::size_t shared_bytes(std::string_view a, std::string_view b) {
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t head = 0;
  while (head < most && a[head] == b[head]) ++head;
  std::size_t tail = 0;
  while (tail < most - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  return head + tail;
}

// Whether `part` is what is left of `text` after some of it was taken out.
bool is_left_of(std::string_view part, std::string_view text) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < text.size() && at < part.size(); ++i) at += text[i] == part[at];
  return at == part.size();
}

Json parsed(const std::string& text) {
  Result<Json> json = parse_json_object(text, kName);
  require(json.has_value(), "an edited text is JSON");
  return *std::move(json);
}

void check_edits(std::string_view text, const Json& json, const Path& path,
                 const std::string& key) {
  const std::string set = set_json_member(text, path, key, kValue);
  const std::string removed = remove_json_member(text, path, key);
  Json expected = json;
  Json* object = object_at(expected, path);
  if (object == nullptr) {
    require(set == text && removed == text, "no object, no edit");
    return;
  }
  const bool had_members = !object->empty();
  const bool had = object->contains(key);
  object->erase(key);
  require(parsed(removed) == expected, "removing takes this member and no other");
  require(had || removed == text, "nothing to remove, no edit");
  require(remove_json_member(removed, path, key) == removed, "a member is removed once");
  (*object)[key] = Json::parse(kValue);
  require(parsed(set) == expected, "setting changes this member and no other");
  require(set_json_member(set, path, key, kValue) == set, "a member is set once");
  // In an object without members a new one decides the white space.
  if (had) require(shared_bytes(text, set) + kValue.size() >= set.size(), "only the value changes");
  if (!had && had_members)
    require(shared_bytes(text, set) >= text.size(), "the text around a new member stays");
  require(is_left_of(removed, text), "removing adds nothing");
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace octavo;
  using namespace octavo::fuzz;
  const std::string_view text = as_text(data, size);
  const Result<Json> json = parse_json_object(text, kName);
  if (!json) {
    require_message(json.error().message, kName);
    return 0;
  }
  check_quantization(read_quant_config(*json, kName));
  check_quantization(read_hf_quant_config(*json, kName));
  if (!is_shallow(text)) return 0;
  for (const Path& path : {Path{}, Path{"text_config"}, Path{"a", "b"}}) {
    for (const char* key : {"quantization_config", "torch_dtype", "b"})
      check_edits(text, *json, path, key);
  }
  return 0;
}
