// The tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "octavo/text/jinja/value.h"

namespace octavo::text::jinja {

enum class ExprKind {
  constant,     // constant
  name,         // name
  body,         // the text of the block that a filter stands on
  list,         // children
  tuple,        // children
  dict,         // children: key, value, key, value...
  conditional,  // children: condition, then, else (may be null)
  either,       // `or`; children: two
  both,         // `and`; children: two
  negation,     // `not`; one child
  compare,      // children: n; operators: n - 1
  binary,       // name: the operator; children: two
  concat,       // `~`; children: n
  minus,        // one child
  plus,         // one child
  attribute,    // name; one child
  item,         // children: of what, which
  slice,        // children: of what, start, stop, step (null where left out)
  call,         // one child, arguments
  filter,       // name, one child, arguments
  test,         // name, one child, arguments
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *args
  ExprPtr double_star;  // **kwargs
};

struct Expr {
  ExprKind kind;
  int line;
  int height = 1;  // of the tree: evaluation recurses that deep
  std::string name;
  Value constant;
  std::vector<ExprPtr> children;
  std::vector<std::string> operators;
  CallArguments arguments;
};

struct Target {
  int line;
  std::string name;           // empty: items
  std::string attribute;      // of the namespace `name`; empty: the name itself
  std::vector<Target> items;  // of a tuple
  bool is_tuple = false;
};

struct Statement;
using Block = std::vector<Statement>;

struct Branch {
  ExprPtr condition;  // null: else
  Block body;
};

struct Parameter {
  std::string name;
  ExprPtr fallback;
};

struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
};

enum class StatementKind {
  data,          // text
  output,        // values
  condition,     // branches
  loop,          // targets[0], values[0], condition, body, otherwise
  set,           // targets[0], values[0]
  set_block,     // targets[0], values[0]: a filter on the body or null, body
  with,          // targets, values, body
  macro,         // macro
  call_block,    // values[0]: the call, macro: the caller
  filter_block,  // values[0]: a filter on the body, body
  generation,    // body
  break_loop,
  continue_loop,
};

struct Statement {
  StatementKind kind;
  int line;
  std::string text;
  std::vector<ExprPtr> values;
  std::vector<Target> targets;
  ExprPtr condition;
  std::vector<Branch> branches;
  Block body;
  Block otherwise;
  std::unique_ptr<Macro> macro;
};

}  // namespace octavo::text::jinja
