#include "octavo/text/jinja/renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

namespace octavo::text::jinja {
std::optional<Value> Loop::pull(Budget& budget) {
  if (!source) return std::nullopt;
  while (std::optional<Value> item = next_item(*source)) {
    budget.step();
    if (!accepts || accepts(*item)) return item;
  }
  return std::nullopt;
}

bool Loop::advance(Budget& budget) {
  std::optional<Value> item;
  if (!ahead.empty()) {
    item = std::move(ahead.front());
    ahead.pop_front();
  } else {
    item = pull(budget);
  }
  if (!item) return false;
  ++index0;
  previous = std::exchange(current, *std::move(item));
  return true;
}

const Value* Loop::peek(Budget& budget) {
  if (ahead.empty()) {
    std::optional<Value> item = pull(budget);
    if (!item) return nullptr;
    ahead.push_back(*std::move(item));
  }
  return &ahead.front();
}

std::int64_t Loop::length(Budget& budget) {
  while (std::optional<Value> item = pull(budget)) ahead.push_back(*std::move(item));
  return index0 + 1 + static_cast<std::int64_t>(ahead.size());
}

void Loop::close() {
  source = nullptr;
  accepts = nullptr;
  ahead.clear();
  previous = Value();
  current = Value();
  changed.reset();
}

const Value* Scope::find(std::string_view name, Budget& budget) const {
  std::size_t compared = 0;
  const Value* value = nullptr;
  for (const Scope* scope = this; scope != nullptr && value == nullptr; scope = scope->parent) {
    compared += 1 + scope->variables.size();
    const auto found =
        std::ranges::find(scope->variables, name, [](const auto& entry) { return entry.first; });
    if (found != scope->variables.end()) value = &found->second;
  }
  budget.search(compared);
  return value;
}

void Scope::set(std::string_view name, Value value, Budget& budget) {
  budget.search(variables.size());
  const auto found =
      std::ranges::find(variables, name, [](const auto& entry) { return entry.first; });
  if (found != variables.end()) {
    found->second = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

// A scope for as long as it lives, and longer where a macro sees it.
class Renderer::ScopeGuard {
 public:
  ScopeGuard(Renderer& renderer, Scope* parent)
      : renderer_(renderer), outer_(renderer.scope_), scope_(std::make_unique<Scope>()) {
    scope_->parent = parent;
    renderer.scope_ = scope_.get();
  }
  ~ScopeGuard() {
    renderer_.scope_ = outer_;
    if (scope_->kept) renderer_.kept_.push_back(std::move(scope_));
  }
  ScopeGuard(const ScopeGuard&) = delete;

 private:
  Renderer& renderer_;
  Scope* outer_;
  std::unique_ptr<Scope> scope_;
};

// What is written while it lives.
class Renderer::Capture {
 public:
  explicit Capture(Renderer& renderer) : renderer_(renderer), outer_(renderer.out_) {
    renderer.out_ = text_.get();
  }
  ~Capture() { renderer_.out_ = outer_; }
  Capture(const Capture&) = delete;
  Value take() { return Value::text(std::move(*text_)); }

 private:
  Renderer& renderer_;
  std::string* outer_;
  std::unique_ptr<std::string> text_ = std::make_unique<std::string>();
};

Renderer::Deeper::Deeper(Renderer& renderer, int line) : renderer_(renderer) {
  renderer.line_ = line;
  if (renderer.depth_ >= kMaxRunDepth)
    fail_render(fmt::format("more than {} levels of calls and blocks", kMaxRunDepth));
  ++renderer.depth_;
}

Renderer::Renderer(const Limits& limits, std::optional<Now> now) : budget_(limits), now_(now) {}

Renderer::~Renderer() {
  // Namespaces and scopes may hold each other.
  for (const auto& space : namespaces_) space->attributes.clear();
  for (const auto& scope : kept_) scope->variables.clear();
}

Now Renderer::now() const {
  if (now_) return *now_;
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return Now(std::chrono::seconds(seconds + local.tm_gmtoff));
}

Namespace* Renderer::make_namespace() {
  budget_.text(1024);  // more than one takes
  namespaces_.push_back(std::make_unique<Namespace>());
  return namespaces_.back().get();
}

std::string Renderer::render(const Block& block,
                             const std::vector<std::pair<std::string, Value>>& variables) {
  std::string result;
  out_ = &result;
  const ScopeGuard globals(*this, nullptr);
  scope_->variables = make_globals();
  const ScopeGuard given(*this, scope_);
  for (const auto& [name, value] : variables) scope_->set(name, value, budget_);
  const ScopeGuard own(*this, scope_);
  run(block);
  return result;
}

void Renderer::write(std::string_view text) {
  budget_.check_size(out_->size() + text.size());
  budget_.text(text.size());
  *out_ += text;
}

Flow Renderer::run(const Block& block) {
  for (const Statement& statement : block) {
    const Flow flow = run(statement);
    if (flow != Flow::go_on) return flow;
  }
  return Flow::go_on;
}

Flow Renderer::run(const Statement& statement) {
  const Deeper deeper(*this, statement.line);
  budget_.step();
  switch (statement.kind) {
    case StatementKind::data:
      write(statement.text);
      break;
    case StatementKind::output:
      for (const ExprPtr& value : statement.values) write(to_text(evaluate(*value), budget_));
      break;
    case StatementKind::condition:
      return run_condition(statement);
    case StatementKind::loop:
      return run_loop(statement);
    case StatementKind::set:
      assign(statement.targets[0], evaluate(*statement.values[0]));
      break;
    case StatementKind::set_block:
      return run_set_block(statement);
    case StatementKind::with:
      return run_with(statement);
    case StatementKind::macro: {
      Value macro = make_macro(*statement.macro);
      scope_->set(statement.macro->name, std::move(macro), budget_);
      break;
    }
    case StatementKind::call_block:
      run_call_block(statement);
      break;
    case StatementKind::filter_block:
      return run_filter_block(statement);
    case StatementKind::generation:
      run_generation(statement);
      break;
    case StatementKind::break_loop:
      return Flow::break_loop;
    case StatementKind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::go_on;
}

Flow Renderer::run_condition(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (!branch.condition || is_true(evaluate(*branch.condition))) return run(branch.body);
  }
  return Flow::go_on;
}

Flow Renderer::run_loop(const Statement& statement) {
  const auto loop = std::make_shared<Loop>();
  const struct Closer {
    Loop& loop;
    ~Closer() { loop.close(); }
  } closer{*loop};
  loop->source = iterate(evaluate(*statement.values[0]), budget_);
  Scope* const outer = scope_;
  if (statement.condition) {
    loop->accepts = [&](const Value& item) {
      const ScopeGuard guard(*this, outer);
      assign(statement.targets[0], item);
      return is_true(evaluate(*statement.condition));
    };
  }
  // As Jinja has it: `else` runs unless some turn came to the end of the body.
  bool completed = false;
  while (loop->advance(budget_)) {
    budget_.step();
    const ScopeGuard guard(*this, outer);
    scope_->set("loop", Value(loop), budget_);
    assign(statement.targets[0], loop->current);
    const Flow flow = run(statement.body);
    if (flow == Flow::break_loop) break;
    completed = completed || flow == Flow::go_on;
  }
  if (completed || statement.otherwise.empty()) return Flow::go_on;
  const ScopeGuard guard(*this, outer);
  return run(statement.otherwise);
}

Flow Renderer::run_set_block(const Statement& statement) {
  Value value;
  {
    const ScopeGuard guard(*this, scope_);
    Capture capture(*this);
    const Flow flow = run(statement.body);
    if (flow != Flow::go_on) return flow;
    value = capture.take();
    if (statement.values[0]) {
      const Value outer = std::exchange(body_, value);
      value = evaluate(*statement.values[0]);
      body_ = outer;
    }
  }
  assign(statement.targets[0], value);
  return Flow::go_on;
}

Flow Renderer::run_with(const Statement& statement) {
  const Values values = evaluate_all(statement.values);
  const ScopeGuard guard(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.targets[i], values[i]);
  return run(statement.body);
}

Flow Renderer::run_filter_block(const Statement& statement) {
  Value value;
  {
    const ScopeGuard guard(*this, scope_);
    Capture capture(*this);
    const Flow flow = run(statement.body);
    if (flow != Flow::go_on) return flow;
    value = capture.take();
    const Value outer = std::exchange(body_, value);
    value = evaluate(*statement.values[0]);
    body_ = outer;
  }
  write(to_text(value, budget_));
  return Flow::go_on;
}

void Renderer::run_call_block(const Statement& statement) {
  Value caller = make_macro(*statement.macro);
  write(to_text(evaluate_call(*statement.values[0], std::move(caller)), budget_));
}

void Renderer::run_generation(const Statement& statement) {
  const ScopeGuard guard(*this, scope_);
  run(statement.body);
}

void Renderer::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    const Values items = all_items(value, budget_);
    if (items.size() != target.items.size()) {
      fail_render(
          fmt::format("{} values are unpacked into {} names", items.size(), target.items.size()));
    }
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    scope_->set(target.name, value, budget_);
    return;
  }
  const Value* object = scope_->find(target.name, budget_);
  if (object == nullptr || !object->is<Namespace*>())
    fail_render(fmt::format("'{}' is not a namespace: its attributes cannot be set", target.name));
  if (target.attribute.starts_with('_'))
    fail_render(fmt::format("a namespace cannot have the attribute '{}'", target.attribute));
  budget_.text(sizeof(Value));
  (*object->get<Namespace*>())->set(target.attribute, value, budget_);
}

void Renderer::keep_scopes() {
  constexpr std::uint64_t kCost = 4096;  // more than a scope takes
  for (Scope* scope = scope_; scope != nullptr && !scope->kept; scope = scope->parent) {
    budget_.text(kCost);
    scope->kept = true;
  }
}

Value Renderer::make_macro(const Macro& macro) {
  keep_scopes();
  return make_function(fmt::format("<Macro '{}'>", macro.name),
                       [&macro, closure = scope_](Renderer& renderer, Arguments& arguments) {
                         return renderer.call_macro(macro, closure, arguments);
                       });
}

Value Renderer::call_macro(const Macro& macro, Scope* closure, Arguments& arguments) {
  const int line = line_;
  const ScopeGuard guard(*this, closure);
  set_parameters(macro, arguments);
  Capture capture(*this);
  run(macro.body);
  line_ = line;
  return capture.take();
}

void Renderer::set_parameters(const Macro& macro, Arguments& arguments) {
  Values& positional = arguments.positional;
  auto& named = arguments.named;
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    budget_.search(named.size());
    const auto found = std::ranges::find(
        named, name, [](const auto& entry) { return std::string_view(entry.first); });
    if (found == named.end()) return std::nullopt;
    Value value = std::move(found->second);
    named.erase(found);
    return value;
  };
  // All that were given first: a default may read a later parameter.
  std::vector<std::optional<Value>> given;
  const std::size_t count = macro.parameters.size();
  for (std::size_t i = 0; i < count; ++i)
    given.push_back(i < positional.size() ? positional[i] : take_named(macro.parameters[i].name));
  const bool own_caller = std::ranges::any_of(
      macro.parameters, [](const Parameter& parameter) { return parameter.name == "caller"; });
  if (macro.uses_caller && !own_caller) {
    std::optional<Value> caller = take_named("caller");
    scope_->set("caller", caller ? *std::move(caller) : Value::undefined("no caller is defined"),
                budget_);
  }
  if (macro.uses_kwargs) {
    auto kwargs = std::make_shared<Dict>(budget_);
    for (auto& [name, value] : named) kwargs->set(Value::text(name), std::move(value));
    scope_->set("kwargs", Value(std::shared_ptr<const Dict>(std::move(kwargs))), budget_);
  } else if (!named.empty()) {
    fail_render(fmt::format("macro '{}' takes no argument '{}'", macro.name, named.front().first));
  }
  if (macro.uses_varargs) {
    const auto rest = static_cast<std::ptrdiff_t>(std::min(count, positional.size()));
    scope_->set("varargs", Value::tuple(Values(positional.begin() + rest, positional.end())),
                budget_);
  } else if (positional.size() > count) {
    fail_render(fmt::format("macro '{}' takes not more than {} arguments", macro.name, count));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (given[i]) {
      scope_->set(parameter.name, *given[i], budget_);
    } else {
      scope_->set(parameter.name,
                  Value::undefined(fmt::format("parameter '{}' was not given", parameter.name)),
                  budget_);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (!given[i] && parameter.fallback)
      scope_->set(parameter.name, evaluate(*parameter.fallback), budget_);
  }
}

}  // namespace octavo::text::jinja
