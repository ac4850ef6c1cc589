#include "octavo/text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "octavo/text/jinja/filters.h"
#include "octavo/text/jinja/parser_internal.h"

namespace octavo::text::jinja {
namespace {

// How tightly binary operators bind. A compare takes a row of operands at once.
enum Level { kOr = 1, kAnd, kNot, kCompare, kAdd, kConcat, kMultiply, kPower };

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> all) {
  return std::ranges::find(all, text) != all.end();
}

int level_of(const Token& token, const Token& after) {
  if (token.kind == TokenKind::name) {
    if (token.text == "or") return kOr;
    if (token.text == "and") return kAnd;
    if (token.text == "in") return kCompare;
    const bool not_in = token.text == "not" && after.kind == TokenKind::name && after.text == "in";
    return not_in ? kCompare : 0;
  }
  if (token.kind != TokenKind::symbol) return 0;
  if (is_one_of(token.text, {"==", "!=", "<", "<=", ">", ">="})) return kCompare;
  if (is_one_of(token.text, {"+", "-"})) return kAdd;
  if (token.text == "~") return kConcat;
  if (is_one_of(token.text, {"*", "/", "//", "%"})) return kMultiply;
  return token.text == "**" ? kPower : 0;
}

}  // namespace

Parser::Nested::Nested(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) {
    --parser_.nesting_;  // no destructor runs
    parser_.fail(fmt::format("nested more than {} levels deep", kMaxNesting));
  }
}

Token Parser::next() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::at_symbol(std::string_view symbol) const {
  return at(TokenKind::symbol) && current().text == symbol;
}

bool Parser::at_name(std::string_view name) const {
  return at(TokenKind::name) && current().text == name;
}

bool Parser::skip_symbol(std::string_view symbol) {
  if (!at_symbol(symbol)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  next();
  return true;
}

void Parser::expect_symbol(std::string_view symbol) {
  if (!skip_symbol(symbol)) fail(fmt::format("expected '{}', got {}", symbol, describe_current()));
}

void Parser::expect(TokenKind kind) {
  if (!at(kind)) {
    const char* what = kind == TokenKind::block_end ? "'%}'" : "'}}'";
    fail(fmt::format("expected {}, got {}", what, describe_current()));
  }
  next();
}

std::string Parser::expect_name() {
  if (!at(TokenKind::name)) fail(fmt::format("expected a name, got {}", describe_current()));
  return next().text;
}

void Parser::fail(std::string message, int line) const {
  throw Failure{ErrorCode::bad_file, std::move(message), line};
}

void Parser::fail_unsupported(std::string message, int line) const {
  throw Failure{ErrorCode::unsupported, std::move(message), line};
}

std::string Parser::describe_current() const {
  switch (current().kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::variable_begin:
      return "'{{'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::string:
      return "a string";
    case TokenKind::integer:
    case TokenKind::real:
      return "a number";
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::name:
    case TokenKind::symbol:
      break;
  }
  return fmt::format("'{}'", current().text);
}

ExprPtr Parser::make(ExprKind kind, int line, std::vector<ExprPtr> children, std::string name) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  expr->name = std::move(name);
  for (const ExprPtr& child : children) {
    if (child) expr->height = std::max(expr->height, child->height + 1);
  }
  if (expr->height > kMaxHeight)
    fail(fmt::format("an expression of more than {} levels", kMaxHeight), line);
  expr->children = std::move(children);
  return expr;
}

namespace {
template <class... Ptrs>
std::vector<ExprPtr> children(Ptrs... ptrs) {
  std::vector<ExprPtr> result;
  (result.push_back(std::move(ptrs)), ...);
  return result;
}
}  // namespace

ExprPtr Parser::parse_expression(bool with_conditional) {
  const Nested nested(*this);
  const int line = current().line;
  const std::size_t unknown = unknown_.size();
  ExprPtr expr = parse_binary(kOr);
  while (with_conditional && skip_name("if")) {
    ExprPtr condition = parse_binary(kOr);
    ExprPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    expr = make(ExprKind::conditional, line,
                children(std::move(condition), std::move(expr), std::move(otherwise)));
    unknown_.resize(unknown);  // guarded by this condition
  }
  return expr;
}

ExprPtr Parser::parse_binary(int level) {
  const Nested nested(*this);
  ExprPtr left;
  if (level <= kNot && at_name("not")) {
    const int line = next().line;
    left = make(ExprKind::negation, line, children(parse_binary(kNot)));
  } else {
    left = parse_unary();
  }
  while (true) {
    const int line = current().line;
    const int found = level_of(current(), ahead());
    if (found == 0 || found < level) return left;
    if (found == kCompare) {
      left = parse_compare(std::move(left));
    } else if (found == kConcat) {
      std::vector<ExprPtr> parts = children(std::move(left));
      while (skip_symbol("~")) parts.push_back(parse_binary(kConcat + 1));
      left = make(ExprKind::concat, line, std::move(parts));
    } else {
      const std::string symbol = next().text;
      const ExprKind kind = found == kOr    ? ExprKind::either
                            : found == kAnd ? ExprKind::both
                                            : ExprKind::binary;
      ExprPtr right = parse_binary(found + 1);
      left = make(kind, line, children(std::move(left), std::move(right)), symbol);
    }
  }
}

ExprPtr Parser::parse_compare(ExprPtr first) {
  const int line = current().line;
  std::vector<ExprPtr> operands = children(std::move(first));
  std::vector<std::string> operators;
  while (level_of(current(), ahead()) == kCompare) {
    std::string symbol = next().text;
    if (symbol == "not") {
      next();
      symbol = "not in";
    }
    operators.push_back(std::move(symbol));
    operands.push_back(parse_binary(kCompare + 1));
  }
  ExprPtr expr = make(ExprKind::compare, line, std::move(operands));
  expr->operators = std::move(operators);
  return expr;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  const Nested nested(*this);
  const int line = current().line;
  ExprPtr expr;
  if (skip_symbol("-")) {
    expr = make(ExprKind::minus, line, children(parse_unary(false)));
  } else if (skip_symbol("+")) {
    expr = make(ExprKind::plus, line, children(parse_unary(false)));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filter ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_name() {
  const Token token = next();
  const std::string& name = token.text;
  const bool yes = name == "true" || name == "True";
  ExprPtr expr = make(ExprKind::constant, token.line);
  if (yes || name == "false" || name == "False") {
    expr->constant = Value(yes);
  } else if (name != "none" && name != "None") {
    expr->kind = ExprKind::name;
    expr->name = name;
    for (Macro* macro : macros_) {
      macro->uses_caller = macro->uses_caller || name == "caller";
      macro->uses_kwargs = macro->uses_kwargs || name == "kwargs";
      macro->uses_varargs = macro->uses_varargs || name == "varargs";
    }
  }
  return expr;
}

ExprPtr Parser::parse_primary() {
  const Token& token = current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::name:
      return parse_name();
    case TokenKind::string: {
      std::string text;
      while (at(TokenKind::string)) text += next().text;
      ExprPtr expr = make(ExprKind::constant, line);
      expr->constant = Value::text(std::move(text));
      return expr;
    }
    case TokenKind::integer: {
      ExprPtr expr = make(ExprKind::constant, line);
      expr->constant = Value(next().integer);
      return expr;
    }
    case TokenKind::real: {
      ExprPtr expr = make(ExprKind::constant, line);
      expr->constant = Value(next().real);
      return expr;
    }
    default:
      break;
  }
  if (skip_symbol("(")) {
    ExprPtr expr = parse_tuple(true, {}, true);
    expect_symbol(")");
    return expr;
  }
  if (at_symbol("[")) return parse_list();
  if (at_symbol("{")) return parse_dict();
  fail(fmt::format("unexpected {}", describe_current()));
}

ExprPtr Parser::parse_list() {
  const int line = next().line;
  std::vector<ExprPtr> items;
  while (!at_symbol("]")) {
    if (!items.empty()) expect_symbol(",");
    if (at_symbol("]")) break;
    items.push_back(parse_expression());
  }
  expect_symbol("]");
  return make(ExprKind::list, line, std::move(items));
}

ExprPtr Parser::parse_dict() {
  const int line = next().line;
  std::vector<ExprPtr> items;
  while (!at_symbol("}")) {
    if (!items.empty()) expect_symbol(",");
    if (at_symbol("}")) break;
    items.push_back(parse_expression());
    expect_symbol(":");
    items.push_back(parse_expression());
  }
  expect_symbol("}");
  return make(ExprKind::dict, line, std::move(items));
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  return at(TokenKind::variable_end) || at(TokenKind::block_end) || at_symbol(")") ||
         (!end_name.empty() && at_name(end_name));
}

ExprPtr Parser::parse_tuple(bool with_conditional, std::string_view end_name, bool in_parentheses) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_symbol(",");
    if (at_tuple_end(end_name)) break;
    items.push_back(parse_expression(with_conditional));
    if (!at_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!in_parentheses) fail(fmt::format("expected an expression, got {}", describe_current()));
  }
  return make(ExprKind::tuple, line, std::move(items));
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (at_symbol(".")) {
      expr = parse_attribute(std::move(expr));
    } else if (at_symbol("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (at_symbol("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expr) {
  while (true) {
    if (skip_symbol("|")) {
      expr = parse_filter(std::move(expr));
    } else if (at_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (at_symbol("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_attribute(ExprPtr expr) {
  const int line = next().line;
  if (at(TokenKind::name))
    return make(ExprKind::attribute, line, children(std::move(expr)), next().text);
  if (!at(TokenKind::integer)) fail("expected a name or a number after '.'");
  ExprPtr index = make(ExprKind::constant, line);
  index->constant = Value(next().integer);
  return make(ExprKind::item, line, children(std::move(expr), std::move(index)));
}

ExprPtr Parser::parse_subscript(ExprPtr expr) {
  const int line = next().line;
  // Up to three parts between colons.
  std::vector<ExprPtr> parts;
  bool is_slice = false;
  parts.push_back(at_symbol(":") || at_symbol("]") ? nullptr : parse_expression());
  while (parts.size() < 3 && skip_symbol(":")) {
    is_slice = true;
    parts.push_back(at_symbol(":") || at_symbol("]") ? nullptr : parse_expression());
  }
  if (at_symbol(",")) {
    if (is_slice) fail_unsupported("slices of several dimensions are not supported", line);
    std::vector<ExprPtr> items = children(std::move(parts[0]));
    while (skip_symbol(",")) items.push_back(parse_expression());
    parts[0] = make(ExprKind::tuple, line, std::move(items));
  }
  expect_symbol("]");
  if (is_slice) {
    parts.resize(3);
    return make(
        ExprKind::slice, line,
        children(std::move(expr), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])));
  }
  if (!parts[0]) parts[0] = make(ExprKind::tuple, line);
  return make(ExprKind::item, line, children(std::move(expr), std::move(parts[0])));
}

CallArguments Parser::parse_arguments() {
  const int line = current().line;
  expect_symbol("(");
  CallArguments result;
  const auto ensure = [&](bool holds) {
    if (!holds) fail("arguments are in an order that a call does not take", line);
  };
  bool first = true;
  while (!at_symbol(")")) {
    if (!std::exchange(first, false)) {
      expect_symbol(",");
      if (at_symbol(")")) break;
    }
    const bool named =
        at(TokenKind::name) && ahead().kind == TokenKind::symbol && ahead().text == "=";
    if (skip_symbol("*")) {
      ensure(!result.star && !result.double_star);
      result.star = parse_expression();
    } else if (skip_symbol("**")) {
      ensure(!result.double_star);
      result.double_star = parse_expression();
    } else if (named) {
      ensure(!result.double_star);
      std::string name = next().text;
      next();
      for (const auto& [other, value] : result.named) ensure(other != name);
      result.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!result.star && !result.double_star && result.named.empty());
      result.positional.push_back(parse_expression());
    }
  }
  expect_symbol(")");
  return result;
}

void Parser::set_arguments(Expr& expr, CallArguments arguments) {
  const auto count = [&](const ExprPtr& child) {
    if (child) expr.height = std::max(expr.height, child->height + 1);
  };
  for (const ExprPtr& value : arguments.positional) count(value);
  for (const auto& [name, value] : arguments.named) count(value);
  count(arguments.star);
  count(arguments.double_star);
  if (expr.height > kMaxHeight)
    fail(fmt::format("an expression of more than {} levels", kMaxHeight), expr.line);
  expr.arguments = std::move(arguments);
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  ExprPtr expr = make(ExprKind::call, current().line, children(std::move(callee)));
  set_arguments(*expr, parse_arguments());
  return expr;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_symbol(".")) name += "." + expect_name();
  return name;
}

void Parser::check_known(bool known, bool exists, std::string_view what, const std::string& name,
                         int line) {
  if (known) return;
  const std::string message = exists ? fmt::format("the {} '{}' is not supported", what, name)
                                     : fmt::format("there is no {} '{}'", what, name);
  if (!guarded_) unknown_.push_back({ErrorCode::unsupported, message, line});
}

ExprPtr Parser::parse_filter(ExprPtr input) {
  const int line = current().line;
  std::string name = parse_dotted_name();
  check_known(is_filter(name), is_unsupported_filter(name), "filter", name, line);
  ExprPtr expr = make(ExprKind::filter, line, children(std::move(input)), std::move(name));
  if (at_symbol("(")) set_arguments(*expr, parse_arguments());
  return expr;
}

ExprPtr Parser::parse_test(ExprPtr input) {
  const int line = next().line;
  const bool negated = skip_name("not");
  std::string name = parse_dotted_name();
  check_known(is_test(name), false, "test", name, line);
  ExprPtr expr = make(ExprKind::test, line, children(std::move(input)), std::move(name));
  const bool literal = at(TokenKind::string) || at(TokenKind::integer) || at(TokenKind::real) ||
                       at_symbol("[") || at_symbol("{");
  if (at_symbol("(")) {
    set_arguments(*expr, parse_arguments());
  } else if (literal ||
             (at(TokenKind::name) && !at_name("else") && !at_name("or") && !at_name("and"))) {
    if (at_name("is")) fail("tests in a row: 'is' cannot follow 'is'");
    CallArguments arguments;
    arguments.positional.push_back(parse_postfix(parse_primary()));
    set_arguments(*expr, std::move(arguments));
  }
  return negated ? make(ExprKind::negation, line, children(std::move(expr))) : std::move(expr);
}

}  // namespace octavo::text::jinja
