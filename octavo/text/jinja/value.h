// The values of a template, as Python has them: one type, immutable but for namespaces, loops and
// iterators.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/text/jinja/limits.h"

namespace octavo::text::jinja {

// Thrown inside this folder only; parse() and render() turn it into an Error. Line 0: the renderer
// knows it.
struct Failure {
  ErrorCode code;
  std::string message;
  int line = 0;
};

[[noreturn]] void fail_render(std::string message);
[[noreturn]] void fail_unsupported(std::string message);

// What a rendering has used. Every loop over elements or text is paid for here, first.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}
  void step(std::uint64_t count = 1);
  void text(std::uint64_t bytes);   // read
  void build(std::uint64_t bytes);  // one text of this size
  void build_elements(std::uint64_t count);
  void check_size(std::uint64_t bytes) const;           // of a text that grows
  void search(std::size_t names) { step(names / 16); }  // comparing names is cheap

 private:
  Limits limits_;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;
};

class Value;
class Renderer;
struct Loop;

using Values = std::vector<Value>;

struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};
struct Text {
  std::string bytes;
  bool markup = false;  // made by `safe` or `escape`
};
// `depth` is 1 plus the largest of the elements: destruction and printing recurse that deep.
struct List {
  Values items;
  int depth = 1;
};
struct Tuple {
  Values items;
  int depth = 1;
  bool hashable = true;    // all its elements are
  std::size_t weight = 1;  // elements, those of elements included; stops at kMaxWeight
};
struct Dict;
struct Range {
  std::int64_t start, stop, step;
  std::int64_t size() const;
  bool operator==(const Range& other) const;
};
enum class DictPart { keys, values, items };
struct View {
  DictPart part;
  std::shared_ptr<const Dict> dict;
};
// A Python generator: what is left of it. `failure` is what comes after the last item.
struct Iterator {
  Values items;
  std::size_t next = 0;
  std::optional<Failure> failure;
  int depth = 1;
};
// Owned by the renderer, as it may hold itself.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* find(std::string_view name, Budget& budget) const;
  void set(std::string_view name, Value value, Budget& budget);
};
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};
struct Function {
  std::string description;  // as Python prints it
  std::function<Value(Renderer&, Arguments&)> call;
  int depth = 1;
};

class Value {
 public:
  using Variant =
      std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                   std::shared_ptr<const List>, std::shared_ptr<const Tuple>,
                   std::shared_ptr<const Dict>, Range, View, std::shared_ptr<Iterator>, Namespace*,
                   std::shared_ptr<const Function>, std::shared_ptr<Loop>>;

  Value() : data_(None{}) {}
  template <class T>
    requires(!std::is_same_v<std::remove_cvref_t<T>, Value>)
  explicit Value(T&& data) : data_(std::forward<T>(data)) {}

  static Value undefined(std::string why);
  static Value text(std::string bytes, bool markup = false);
  // Depth is checked: fail_render beyond kMaxDepth.
  static Value list(Values items);
  static Value tuple(Values items);

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  const std::string* as_text() const;  // nullptr for other kinds
  const Values* as_sequence() const;   // of a list or tuple
  const Dict* as_dict() const;
  bool is_text() const { return is<std::shared_ptr<const Text>>(); }
  bool is_markup() const;
  bool is_number() const { return is<bool>() || is<std::int64_t>() || is<double>(); }
  std::optional<std::int64_t> as_integer() const;  // also of a boolean, as in Python
  double as_double() const;                        // of a number
  int depth() const;
  const Variant& data() const { return data_; }

 private:
  Variant data_;
};

inline constexpr int kMaxDepth = 200;
inline constexpr std::size_t kMaxWeight = 100;  // of a tuple as a key: hashing visits every element
int depth_of(const Values& items);              // 1 plus the largest; checked

// Of keys, paid for like everything that visits text or elements.
struct ValueHash {
  Budget* budget;
  std::size_t operator()(const Value& value) const;
};
struct KeyEqual {
  Budget* budget;
  bool operator()(const Value& a, const Value& b) const;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  std::unordered_map<Value, std::size_t, ValueHash, KeyEqual> index;
  int depth = 1;

  // The budget outlives the dict.
  explicit Dict(Budget& budget) : index(0, ValueHash{&budget}, KeyEqual{&budget}) {}
  void set(Value key, Value value);  // fail_render where the key is not hashable
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

bool is_hashable(const Value& value);
bool is_true(const Value& value);
// "str", "list", "NoneType": Python's names.
std::string_view type_name(const Value& value);
bool equal(const Value& a, const Value& b, Budget& budget);
// a < b as Python orders values; fail_render where it does not.
bool less(const Value& a, const Value& b, Budget& budget);
std::string to_text(const Value& value, Budget& budget);  // str()
std::string repr(const Value& value, Budget& budget);
std::string repr(std::string_view text);
std::string float_repr(double value);
std::string escape_html(std::string_view text);

}  // namespace octavo::text::jinja
