// Runs a parsed template.
#pragma once
#include "libcore/text/jinja/ast.h"
#include "libcore/text/jinja/scope.h"

namespace rw::jinja {

class Loop;

class Interpreter {
 public:
  explicit Interpreter(Heap& heap) : heap_(heap) {}

  // Whether a loop's body ran to its end.
  enum class Flow : uint8_t { on, leave, next };
  Flow run(const Body& body, const ScopePtr& scope, TextBuilder& out);
  Value eval(const Expr& expr, const ScopePtr& scope);
  int64_t line() const { return line_; }  // of what is run, or was when a Fault came

 private:
  // Expressions.
  Value eval_node(const Expr& expr, const ScopePtr& scope);
  Value eval_name(const Expr& expr, const ScopePtr& scope);
  Value eval_dict(const Expr& expr, const ScopePtr& scope);
  Value eval_slice(const Expr& expr, const ScopePtr& scope);
  Value eval_compare(const Expr& expr, const ScopePtr& scope);
  Value eval_concat(const Expr& expr, const ScopePtr& scope);
  Value eval_call(const Expr& expr, const ScopePtr& scope, const Value* caller);
  Value eval_filter(const Expr& expr, const ScopePtr& scope, const Value* written);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs, const ScopePtr& scope);
  Arguments eval_arguments(const Expr& expr, const ScopePtr& scope);

  // Statements.
  Flow run_one(const Stmt& stmt, const ScopePtr& scope, TextBuilder& out);
  Flow run_branch(const Stmt& stmt, const ScopePtr& scope, TextBuilder& out);
  Flow run_captured(const Stmt& stmt, const ScopePtr& scope, TextBuilder& out);
  Flow run_with(const Stmt& stmt, const ScopePtr& scope, TextBuilder& out);
  Flow run_loop(const Stmt& stmt, const ScopePtr& scope, TextBuilder& out);
  // The iterations over `items`; `depth`: of loops that call themselves.
  Flow run_items(const Stmt& stmt, const ScopePtr& scope, const Value& items, int64_t depth, TextBuilder& out);
  Flow run_body(const Stmt& stmt, const ScopePtr& scope, Loop& loop, const Value& self, TextBuilder& out);
  void check_output(const TextBuilder& out) const;
  void assign(const Expr& target, const Value& value, const ScopePtr& scope);
  void check_namespaces(const Expr& target, const ScopePtr& scope);

  // Macros and call blocks: `stmt` has signature and body.
  Value make_macro(const Stmt& stmt, const std::string& name, const ScopePtr& scope);
  Value call_macro(const Stmt& stmt, const std::string& name, const ScopePtr& scope, const Arguments& arguments);
  ScopePtr inner(const ScopePtr& scope) { return std::make_shared<Scope>(heap_, scope); }

  Heap& heap_;
  int64_t line_ = 1;
};

}  // namespace rw::jinja
