// Walks a template's tree. Everything here throws Failure.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/text/jinja/syntax.h"
#include "octavo/text/jinja/value.h"

namespace octavo::text::jinja {

using Now = std::chrono::local_seconds;

// What `loop` is. Items are pulled one by one, since a filter may depend on what the body does.
struct Loop {
  std::shared_ptr<Iterator> source;
  std::function<bool(const Value&)> accepts;  // the loop's `if`; may be empty
  std::deque<Value> ahead;                    // pulled before their turn
  std::int64_t index0 = -1;
  Value previous, current;
  std::optional<Values> changed;

  std::optional<Value> pull(Budget& budget);
  bool advance(Budget& budget);  // whether there is another item
  const Value* peek(Budget& budget);
  std::int64_t length(Budget& budget);
  void close();  // the loop is over: what it holds may hold the loop
};

// Variables; nested ones hide those of `parent`. Names belong to the tree or to the caller.
struct Scope {
  Scope* parent;
  std::vector<std::pair<std::string_view, Value>> variables;
  bool kept = false;  // a macro sees it: it lives until the rendering ends

  const Value* find(std::string_view name, Budget& budget) const;
  void set(std::string_view name, Value value, Budget& budget);
};

enum class Flow { go_on, break_loop, continue_loop };

class Renderer {
 public:
  Renderer(const Limits& limits, std::optional<Now> now);
  ~Renderer();
  Renderer(const Renderer&) = delete;

  std::string render(const Block& block,
                     const std::vector<std::pair<std::string, Value>>& variables);

  Budget& budget() { return budget_; }
  int line() const { return line_; }
  Now now() const;
  Namespace* make_namespace();
  Value call(const Value& callee, Arguments& arguments);

  // Nested evaluation, through macros and filters that apply filters: a bound on the stack.
  static constexpr int kMaxRunDepth = 1000;
  class Deeper {
   public:
    Deeper(Renderer& renderer, int line);
    ~Deeper() { --renderer_.depth_; }
    Deeper(const Deeper&) = delete;

   private:
    Renderer& renderer_;
  };

 private:
  class ScopeGuard;
  class Capture;

  // Statements.
  Flow run(const Block& block);
  Flow run(const Statement& statement);
  Flow run_condition(const Statement& statement);
  Flow run_loop(const Statement& statement);
  Flow run_set_block(const Statement& statement);
  Flow run_with(const Statement& statement);
  Flow run_filter_block(const Statement& statement);
  void run_call_block(const Statement& statement);
  void run_generation(const Statement& statement);
  void assign(const Target& target, const Value& value);
  void write(std::string_view text);
  Value make_macro(const Macro& macro);
  Value call_macro(const Macro& macro, Scope* closure, Arguments& arguments);
  void set_parameters(const Macro& macro, Arguments& arguments);
  void keep_scopes();

  // Expressions.
  Value evaluate(const Expr& expr);
  Value evaluate_name(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_conditional(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_call(const Expr& expr, std::optional<Value> caller);
  Value evaluate_filter(const Expr& expr);
  Value evaluate_test(const Expr& expr);
  Values evaluate_all(const std::vector<ExprPtr>& exprs);
  Arguments evaluate_arguments(const CallArguments& arguments);

  Budget budget_;
  std::optional<Now> now_;
  int line_ = 0;
  int depth_ = 0;
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;
  Value body_;  // what ExprKind::body is
  std::vector<std::unique_ptr<Scope>> kept_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

// What Python calls `value` when it iterates over it: an iterator itself, not a copy.
std::shared_ptr<Iterator> iterate(const Value& value, Budget& budget);
// The next item, or nothing at the end; its failure where there is one.
std::optional<Value> next_item(Iterator& iterator);
Values all_items(const Value& value, Budget& budget);
// An iterator over what `produce` adds, up to where it fails: generators fail when they are read.
Value generate(Budget& budget, const std::function<void(Values&)>& produce);
std::optional<std::int64_t> length_of(const Value& value, Budget& budget);

Value make_function(std::string description, std::function<Value(Renderer&, Arguments&)> call,
                    int depth = 0);
// Arguments in the order of `names`; an empty name is for a positional one only. Fails where one
// is unknown, given twice or, of the first `required`, missing.
std::vector<std::optional<Value>> bind(Arguments& arguments, std::string_view callee,
                                       std::initializer_list<std::string_view> names,
                                       std::size_t required = 0);
// Values of the kind that a function takes; a TypeError otherwise.
const std::string& need_text(const Value& value, std::string_view callee);
std::int64_t need_integer(const Value& value, std::string_view callee);

std::vector<std::pair<std::string_view, Value>> make_globals();

}  // namespace octavo::text::jinja
