#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "octavo/text/jinja/parser.h"
#include "octavo/text/jinja/parser_internal.h"

namespace octavo::text::jinja {
namespace {

Statement make_statement(StatementKind kind, int line) {
  Statement statement;
  statement.kind = kind;
  statement.line = line;
  return statement;
}

// A variable of the parser that has another value for a while.
template <class T>
class Scoped {
 public:
  Scoped(T& variable, T value) : variable_(variable), old_(std::exchange(variable, value)) {}
  ~Scoped() { variable_ = old_; }
  Scoped(const Scoped&) = delete;

 private:
  T& variable_;
  T old_;
};

}  // namespace

Block parse(std::string_view source) { return Parser(tokenize(source)).parse_template(); }

Block Parser::parse_template() {
  Block block = parse_block({});
  if (!unknown_.empty()) throw unknown_.front();
  return block;
}

void Parser::fail_missing(std::initializer_list<std::string_view> ends) const {
  fail(
      fmt::format("the template ends where {{% {} %}} is expected", fmt::join(ends, " %} or {% ")));
}

// Up to a tag with one of these names, whose name is then the current token; to the end of the
// template without names.
Block Parser::parse_block(std::initializer_list<std::string_view> ends) {
  Block block;
  while (!at(TokenKind::end)) {
    if (at(TokenKind::data)) {
      Statement data = make_statement(StatementKind::data, current().line);
      data.text = next().text;
      block.push_back(std::move(data));
    } else if (at(TokenKind::variable_begin)) {
      block.push_back(parse_output());
    } else {
      next();
      if (std::ranges::any_of(ends, [&](std::string_view end) { return at_name(end); }))
        return block;
      block.push_back(parse_statement());
      expect(TokenKind::block_end);
    }
  }
  if (ends.size() > 0) fail_missing(ends);
  return block;
}

// The rest of an opening tag and what follows it.
Block Parser::parse_body(std::initializer_list<std::string_view> ends) {
  skip_symbol(":");
  expect(TokenKind::block_end);
  return parse_block(ends);
}

void Parser::parse_body_to(Block& body, std::string_view end) {
  const Scoped guarded(guarded_, false);
  body = parse_body({end});
  next();
}

Statement Parser::parse_output() {
  Statement output = make_statement(StatementKind::output, next().line);
  output.values.push_back(parse_tuple());
  expect(TokenKind::variable_end);
  return output;
}

Statement Parser::parse_statement() {
  const Nested nested(*this);
  if (!at(TokenKind::name)) fail(fmt::format("expected a tag, got {}", describe_current()));
  const std::string& tag = current().text;
  if (tag == "if") return parse_if();
  if (tag == "for") return parse_for();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block();
  if (tag == "filter") return parse_filter_block();
  if (tag == "with") return parse_with();
  if (tag == "print") return parse_print();
  if (tag == "generation") return parse_generation();
  if (tag == "break") return parse_loop_control(StatementKind::break_loop);
  if (tag == "continue") return parse_loop_control(StatementKind::continue_loop);
  for (const char* known : {"block", "extends", "include", "import", "from", "autoescape"}) {
    if (tag == known)
      fail_unsupported(fmt::format("the tag '{}' is not supported", tag), current().line);
  }
  if (tag.starts_with("end") || tag == "else" || tag == "elif")
    fail(fmt::format("the tag '{}' has no beginning", tag));
  fail(fmt::format("there is no tag '{}'", tag));
}

Statement Parser::parse_print() {
  Statement output = make_statement(StatementKind::output, next().line);
  while (!at(TokenKind::block_end)) {
    if (!output.values.empty()) expect_symbol(",");
    output.values.push_back(parse_expression());
  }
  return output;
}

Statement Parser::parse_if() {
  const Scoped guarded(guarded_, true);
  Statement statement = make_statement(StatementKind::condition, current().line);
  next();
  while (true) {
    Branch branch;
    branch.condition = parse_tuple(false);
    branch.body = parse_body({"elif", "else", "endif"});
    statement.branches.push_back(std::move(branch));
    const bool more = at_name("elif");
    const bool last = at_name("else");
    next();
    if (more) continue;
    if (last) {
      Branch otherwise;
      otherwise.body = parse_body({"endif"});
      next();
      statement.branches.push_back(std::move(otherwise));
    }
    return statement;
  }
}

Statement Parser::parse_for() {
  Statement statement = make_statement(StatementKind::loop, next().line);
  const Scoped all_loops(all_loops_, all_loops_ + 1);
  statement.targets.push_back(parse_target("in", false));
  if (!skip_name("in")) fail(fmt::format("expected 'in', got {}", describe_current()));
  statement.values.push_back(parse_tuple(false, "recursive"));
  const Scoped guarded(guarded_, false);
  if (skip_name("if")) statement.condition = parse_expression();
  if (at_name("recursive")) fail_unsupported("recursive loops are not supported", statement.line);
  {
    const Scoped loops(loops_, loops_ + 1);
    statement.body = parse_body({"endfor", "else"});
  }
  if (next().text == "else") {
    statement.otherwise = parse_body({"endfor"});
    next();
  }
  return statement;
}

Target Parser::parse_single_target(bool with_attribute) {
  const int line = current().line;
  if (skip_symbol("(")) {
    // As many levels of brackets as an expression may have.
    const Nested nested(*this);
    Target target = parse_target({}, with_attribute);
    expect_symbol(")");
    return target;
  }
  if (!at(TokenKind::name)) fail(fmt::format("cannot assign to {}", describe_current()));
  Target target{line, next().text, {}, {}};
  for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
    if (target.name == constant) fail(fmt::format("cannot assign to '{}'", target.name), line);
  }
  if (with_attribute && skip_symbol(".")) {
    target.attribute = expect_name();
  } else if (target.name == "loop" && all_loops_ > 0) {
    fail("cannot assign to 'loop' inside a for loop", line);
  }
  return target;
}

Target Parser::parse_target(std::string_view end_name, bool with_attribute) {
  Target tuple{current().line, {}, {}, {}, true};
  bool is_tuple = false;
  while (true) {
    if (!tuple.items.empty()) expect_symbol(",");
    if (at_tuple_end(end_name)) break;
    tuple.items.push_back(parse_single_target(with_attribute));
    if (!at_symbol(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (tuple.items.empty()) fail(fmt::format("expected a name, got {}", describe_current()));
  Target only = std::move(tuple.items[0]);
  return only;
}

Statement Parser::parse_set() {
  Statement statement = make_statement(StatementKind::set, next().line);
  statement.targets.push_back(parse_target({}, true));
  if (skip_symbol("=")) {
    statement.values.push_back(parse_tuple());
    return statement;
  }
  statement.kind = StatementKind::set_block;
  ExprPtr filter;
  while (skip_symbol("|"))
    filter = parse_filter(filter ? std::move(filter) : make(ExprKind::body, statement.line));
  statement.values.push_back(std::move(filter));
  parse_body_to(statement.body, "endset");
  return statement;
}

Statement Parser::parse_with() {
  Statement statement = make_statement(StatementKind::with, next().line);
  while (!at(TokenKind::block_end) && !at_symbol(":")) {
    if (!statement.targets.empty()) expect_symbol(",");
    statement.targets.push_back(parse_single_target(false));
    expect_symbol("=");
    statement.values.push_back(parse_expression());
  }
  parse_body_to(statement.body, "endwith");
  return statement;
}

std::vector<Parameter> Parser::parse_parameters() {
  std::vector<Parameter> parameters;
  expect_symbol("(");
  while (!at_symbol(")")) {
    if (!parameters.empty()) expect_symbol(",");
    Parameter parameter{expect_name(), nullptr};
    for (const Parameter& other : parameters) {
      if (other.name == parameter.name)
        fail(fmt::format("two parameters are named '{}'", parameter.name));
    }
    if (skip_symbol("=")) {
      parameter.fallback = parse_expression();
    } else if (!parameters.empty() && parameters.back().fallback) {
      fail(fmt::format("the parameter '{}' needs a default, as one before it has one",
                       parameter.name));
    }
    parameters.push_back(std::move(parameter));
  }
  next();
  return parameters;
}

void Parser::parse_macro_body(Macro& macro, std::string_view end) {
  const Scoped loops(loops_, 0);
  macros_.push_back(&macro);
  parse_body_to(macro.body, end);
  macros_.pop_back();
  for (const Parameter& parameter : macro.parameters) {
    if (parameter.name == "caller" && macro.uses_caller && !parameter.fallback)
      fail("the parameter 'caller' needs a default or must be left out");
    if (parameter.name == "kwargs") macro.uses_kwargs = false;
    if (parameter.name == "varargs") macro.uses_varargs = false;
  }
}

Statement Parser::parse_macro() {
  Statement statement = make_statement(StatementKind::macro, next().line);
  statement.macro = std::make_unique<Macro>();
  statement.macro->name = expect_name();
  statement.macro->parameters = parse_parameters();
  parse_macro_body(*statement.macro, "endmacro");
  return statement;
}

Statement Parser::parse_call_block() {
  Statement statement = make_statement(StatementKind::call_block, next().line);
  statement.macro = std::make_unique<Macro>();
  statement.macro->name = "caller";
  if (at_symbol("(")) statement.macro->parameters = parse_parameters();
  statement.values.push_back(parse_expression());
  if (statement.values[0]->kind != ExprKind::call) fail("expected a call", statement.line);
  parse_macro_body(*statement.macro, "endcall");
  return statement;
}

Statement Parser::parse_filter_block() {
  Statement statement = make_statement(StatementKind::filter_block, next().line);
  ExprPtr filter = parse_filter(make(ExprKind::body, statement.line));
  while (skip_symbol("|")) filter = parse_filter(std::move(filter));
  statement.values.push_back(std::move(filter));
  parse_body_to(statement.body, "endfilter");
  return statement;
}

Statement Parser::parse_generation() {
  Statement statement = make_statement(StatementKind::generation, next().line);
  const Scoped loops(loops_, 0);
  parse_body_to(statement.body, "endgeneration");
  return statement;
}

Statement Parser::parse_loop_control(StatementKind kind) {
  if (loops_ == 0) fail(fmt::format("'{}' outside a loop", current().text));
  return make_statement(kind, next().line);
}

}  // namespace octavo::text::jinja
