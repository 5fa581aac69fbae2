// A parsed template.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libcore/text/jinja/arithmetic.h"
#include "libcore/text/jinja/value.h"

namespace rw::jinja {

enum class ExprKind : uint8_t {
  literal,    // value
  name,       // name
  list,       // args
  tuple,      // args
  dict,       // args: key, value, key, value, ...
  attribute,  // args[0].name
  item,       // args[0][args[1]]
  slice,      // args[0][args[1]:args[2]:args[3]], null where left out
  call,       // args[0](args[1], ..., named)
  filter,     // args[0] | name(args[1], ..., named); args[0] null: what a block wrote
  test,       // args[0] is name(args[1], ..., named)
  invert,     // not args[0]
  negate,     // -args[0]
  positive,   // +args[0]
  compute,    // args[0] op args[1]
  concat,     // args joined as text
  compare,    // args[0] comparisons[0] args[1] comparisons[1] args[2] ...
  both,       // args[0] and args[1]
  either,     // args[0] or args[1]
  condition,  // args[1] if args[0] else args[2]; args[2] may be null
  field       // name.text, where a set tag assigns
};

enum class Comparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;
using NamedExpr = std::pair<std::string, ExprPtr>;  // "*" and "**": spread arguments

struct Expr {
  ExprKind kind;
  int64_t line = 0;
  std::string name = {}, text = {};
  Value value = {};
  Operator op = Operator::add;
  std::vector<ExprPtr> args = {};
  std::vector<NamedExpr> named = {};
  std::vector<Comparison> comparisons = {};
  int64_t depth = 1;
};

enum class StmtKind : uint8_t {
  text,          // text as it is
  output,        // expr printed
  loop,          // for target in expr if condition: body, else otherwise
  branch,        // branches, else otherwise
  set,           // target = expr
  set_block,     // target = what body writes, through the filters of expr
  macro,         // name, parameters, body
  call,          // expr (a call) with body as its caller(parameters)
  filter_block,  // what body writes, through the filters of expr
  scope,         // body with the targets of assignments set, in a scope of its own
  leave,         // break
  next           // continue
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Branch {
  ExprPtr condition;
  Body body;
};

struct Parameter {
  std::string name;
  ExprPtr otherwise;  // null: none
};

// A macro's, or a call block's. The special names are bound only where the body uses them.
struct Signature {
  std::vector<Parameter> parameters = {};
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Assignment {
  ExprPtr target, value;
};

struct Stmt {
  StmtKind kind;
  int64_t line = 0;
  std::string text = {};  // text, or a macro's name
  ExprPtr target = {}, expr = {}, condition = {};
  std::vector<Branch> branches = {};
  std::vector<Assignment> assignments = {};
  Signature signature = {};
  Body body = {}, otherwise = {};
  bool recursive = false;
};

}  // namespace rw::jinja
