#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/jinja/filters.h"
#include "octavo/text/jinja/operators.h"
#include "octavo/text/jinja/renderer.h"

namespace octavo::text::jinja {

Value Renderer::evaluate(const Expr& expr) {
  budget_.step();
  const Deeper deeper(*this, expr.line);
  const auto child = [&](std::size_t i) { return evaluate(*expr.children[i]); };
  switch (expr.kind) {
    case ExprKind::constant:
      return expr.constant;
    case ExprKind::name:
      return evaluate_name(expr);
    case ExprKind::body:
      return body_;
    case ExprKind::list:
      return Value::list(evaluate_all(expr.children));
    case ExprKind::tuple:
      return Value::tuple(evaluate_all(expr.children));
    case ExprKind::dict:
      return evaluate_dict(expr);
    case ExprKind::conditional:
      return evaluate_conditional(expr);
    case ExprKind::either: {
      Value left = child(0);
      return is_true(left) ? left : child(1);
    }
    case ExprKind::both: {
      Value left = child(0);
      return is_true(left) ? child(1) : left;
    }
    case ExprKind::negation:
      return Value(!is_true(child(0)));
    case ExprKind::compare:
      return evaluate_compare(expr);
    case ExprKind::binary: {
      const Value left = child(0);
      const Value right = child(1);
      line_ = expr.line;
      return binary_operator(expr.name, left, right, budget_);
    }
    case ExprKind::concat:
      return evaluate_concat(expr);
    case ExprKind::minus:
      return negated(child(0));
    case ExprKind::plus:
      return unary_plus(child(0));
    case ExprKind::attribute:
      return get_attribute(child(0), expr.name, budget_);
    case ExprKind::item: {
      const Value value = child(0);
      const Value key = child(1);
      line_ = expr.line;
      return get_item(value, key, budget_);
    }
    case ExprKind::slice:
      return evaluate_slice(expr);
    case ExprKind::call:
      return evaluate_call(expr, std::nullopt);
    case ExprKind::filter:
      return evaluate_filter(expr);
    case ExprKind::test:
      return evaluate_test(expr);
  }
  return Value();
}

Value Renderer::evaluate_name(const Expr& expr) {
  if (const Value* value = scope_->find(expr.name, budget_)) return *value;
  if (expr.name == "lipsum") fail_unsupported("the function 'lipsum' is not supported");
  return Value::undefined(fmt::format("'{}' is undefined", expr.name));
}

Values Renderer::evaluate_all(const std::vector<ExprPtr>& exprs) {
  budget_.text(exprs.size() * sizeof(Value));
  Values values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(evaluate(*expr));
  return values;
}

Value Renderer::evaluate_dict(const Expr& expr) {
  budget_.text(expr.children.size() * sizeof(Value));
  auto dict = std::make_shared<Dict>(budget_);
  for (std::size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    Value key = evaluate(*expr.children[i]);
    Value value = evaluate(*expr.children[i + 1]);
    dict->set(std::move(key), std::move(value));
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Value Renderer::evaluate_conditional(const Expr& expr) {
  if (is_true(evaluate(*expr.children[0]))) return evaluate(*expr.children[1]);
  if (expr.children[2]) return evaluate(*expr.children[2]);
  return Value::undefined("the condition of an inline 'if' without 'else' is false");
}

Value Renderer::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1]);
    line_ = expr.line;
    if (!compare(expr.operators[i], left, right, budget_)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Renderer::evaluate_concat(const Expr& expr) {
  std::string result;
  for (const ExprPtr& part : expr.children) {
    result += to_text(evaluate(*part), budget_);
    budget_.check_size(result.size());
  }
  budget_.build(result.size());
  return Value::text(std::move(result));
}

Value Renderer::evaluate_slice(const Expr& expr) {
  const Value value = evaluate(*expr.children[0]);
  Value parts[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1]) parts[i] = evaluate(*expr.children[i + 1]);
  }
  line_ = expr.line;
  return get_slice(value, parts[0], parts[1], parts[2], budget_);
}

Arguments Renderer::evaluate_arguments(const CallArguments& given) {
  Arguments arguments;
  arguments.positional = evaluate_all(given.positional);
  for (const auto& [name, value] : given.named)
    arguments.named.emplace_back(name, evaluate(*value));
  if (given.star) {
    for (Value& item : all_items(evaluate(*given.star), budget_))
      arguments.positional.push_back(std::move(item));
  }
  if (!given.double_star) return arguments;
  const Value more = evaluate(*given.double_star);
  const Dict* dict = more.as_dict();
  if (dict == nullptr) fail_render("what follows ** is not a dict");
  for (const auto& [key, value] : dict->items) {
    budget_.step(1 + arguments.named.size());
    const std::string* name = key.as_text();
    if (name == nullptr) fail_render("names of arguments are text");
    for (const auto& [other, ignored] : arguments.named) {
      if (other == *name) fail_render(fmt::format("the argument '{}' is given twice", *name));
    }
    arguments.named.emplace_back(*name, value);
  }
  return arguments;
}

Value Renderer::call(const Value& callee, Arguments& arguments) {
  if (const auto* undefined = callee.get<Undefined>()) fail_render(*undefined->why);
  const auto* function = callee.get<std::shared_ptr<const Function>>();
  if (callee.is<std::shared_ptr<Loop>>()) fail_unsupported("recursive loops are not supported");
  if (function == nullptr)
    fail_render(fmt::format("a value of type '{}' cannot be called", type_name(callee)));
  // A macro may run for long and drop its own name.
  const std::shared_ptr<const Function> keep = *function;
  return keep->call(*this, arguments);
}

Value Renderer::evaluate_call(const Expr& expr, std::optional<Value> caller) {
  const Value callee = evaluate(*expr.children[0]);
  Arguments arguments = evaluate_arguments(expr.arguments);
  if (caller) arguments.named.emplace_back("caller", *std::move(caller));
  line_ = expr.line;
  return call(callee, arguments);
}

Value Renderer::evaluate_filter(const Expr& expr) {
  const Value value = evaluate(*expr.children[0]);
  Arguments arguments = evaluate_arguments(expr.arguments);
  line_ = expr.line;
  return apply_filter(*this, expr.name, value, arguments);
}

Value Renderer::evaluate_test(const Expr& expr) {
  const Value value = evaluate(*expr.children[0]);
  Arguments arguments = evaluate_arguments(expr.arguments);
  line_ = expr.line;
  return Value(apply_test(*this, expr.name, value, arguments));
}

}  // namespace octavo::text::jinja
