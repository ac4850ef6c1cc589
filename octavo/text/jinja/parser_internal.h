#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/text/jinja/lexer.h"
#include "octavo/text/jinja/syntax.h"

namespace octavo::text::jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Block parse_template();

 private:
  // Brackets, operators and statements inside each other; operators in a row build trees of height.
  static constexpr int kMaxNesting = 100;
  static constexpr int kMaxHeight = 300;

  class Nested {
   public:
    explicit Nested(Parser& parser);
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next();
  bool at(TokenKind kind) const { return current().kind == kind; }
  bool at_symbol(std::string_view symbol) const;
  bool at_name(std::string_view name) const;
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  void expect(TokenKind kind);
  std::string expect_name();
  [[noreturn]] void fail(std::string message) const { fail(std::move(message), current().line); }
  [[noreturn]] void fail(std::string message, int line) const;
  [[noreturn]] void fail_unsupported(std::string message, int line) const;
  std::string describe_current() const;

  // Expressions.
  ExprPtr make(ExprKind kind, int line, std::vector<ExprPtr> children = {}, std::string name = {});
  ExprPtr parse_expression(bool with_conditional = true);
  ExprPtr parse_binary(int level);
  ExprPtr parse_compare(ExprPtr first);
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters_and_tests(ExprPtr expr);
  ExprPtr parse_attribute(ExprPtr expr);
  ExprPtr parse_subscript(ExprPtr expr);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  ExprPtr parse_tuple(bool with_conditional = true, std::string_view end_name = {},
                      bool in_parentheses = false);
  CallArguments parse_arguments();
  void set_arguments(Expr& expr, CallArguments arguments);
  std::string parse_dotted_name();
  bool at_tuple_end(std::string_view end_name) const;

  // Statements.
  Block parse_block(std::initializer_list<std::string_view> ends);
  Block parse_body(std::initializer_list<std::string_view> ends);
  void parse_body_to(Block& body, std::string_view end);
  Statement parse_statement();
  Statement parse_output();
  Statement parse_print();
  Statement parse_if();
  Statement parse_for();
  Statement parse_set();
  Statement parse_with();
  Statement parse_macro();
  Statement parse_call_block();
  Statement parse_filter_block();
  Statement parse_generation();
  Statement parse_loop_control(StatementKind kind);
  std::vector<Parameter> parse_parameters();
  // A function of its own: no loop around it, its own set of special names.
  void parse_macro_body(Macro& macro, std::string_view end);
  Target parse_target(std::string_view end_name, bool with_attribute);
  Target parse_single_target(bool with_attribute);
  [[noreturn]] void fail_missing(std::initializer_list<std::string_view> ends) const;

  void check_known(bool known, bool exists, std::string_view what, const std::string& name,
                   int line);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;      // around this place that `break` can leave
  int all_loops_ = 0;  // around this place, through macros as well
  // Jinja refuses unknown filters and tests when it reads a template, unless an `if` guards them.
  bool guarded_ = false;
  std::vector<Failure> unknown_;
  std::vector<Macro*> macros_;  // around this place
};

}  // namespace octavo::text::jinja
