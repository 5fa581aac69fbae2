// The interpreter's statements.
#include <fmt/core.h>

#include <algorithm>

#include "libcore/text/jinja/interpreter.h"
#include "libcore/text/jinja/loop.h"
#include "libcore/text/jinja/print.h"

namespace rw::jinja {

void Interpreter::check_output(const TextBuilder& out) const {
  if (out.size() > heap_.limits().output_bytes)
    throw Fault(fmt::format("the template writes more than {} bytes", heap_.limits().output_bytes));
}

Interpreter::Flow Interpreter::run(const Body& body, const ScopePtr& scope, TextBuilder& out) {
  const Heap::Level level(heap_);
  for (const Stmt& stmt : body) {
    heap_.work(1);
    line_ = stmt.line;
    const Flow flow = run_one(stmt, scope, out);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::run_one(const Stmt& stmt, const ScopePtr& scope, TextBuilder& out) {
  switch (stmt.kind) {
    case StmtKind::text:
      out.append(stmt.text);
      check_output(out);
      return Flow::on;
    case StmtKind::output:
      print(out, eval(*stmt.expr, scope));
      check_output(out);
      return Flow::on;
    case StmtKind::branch: return run_branch(stmt, scope, out);
    case StmtKind::loop: return run_loop(stmt, scope, out);
    case StmtKind::set:
      check_namespaces(*stmt.target, scope);
      assign(*stmt.target, eval(*stmt.expr, scope), scope);
      return Flow::on;
    case StmtKind::set_block:
    case StmtKind::filter_block: return run_captured(stmt, scope, out);
    case StmtKind::macro: scope->set(stmt.text, make_macro(stmt, stmt.text, scope)); return Flow::on;
    case StmtKind::call: {
      const Value caller = make_macro(stmt, "", scope);
      print(out, eval_call(*stmt.expr, scope, &caller));
      check_output(out);
      return Flow::on;
    }
    case StmtKind::scope: return run_with(stmt, scope, out);
    case StmtKind::leave: return Flow::leave;
    case StmtKind::next: return Flow::next;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::run_branch(const Stmt& stmt, const ScopePtr& scope, TextBuilder& out) {
  for (const Branch& branch : stmt.branches)
    if (truth(eval(*branch.condition, scope))) return run(branch.body, scope, out);
  return run(stmt.otherwise, scope, out);
}

Interpreter::Flow Interpreter::run_captured(const Stmt& stmt, const ScopePtr& scope, TextBuilder& out) {
  const ScopePtr body = inner(scope);
  TextBuilder text(heap_);
  const Flow flow = run(stmt.body, body, text);
  if (flow != Flow::on) return flow;  // what was written is lost, as the loop goes on elsewhere
  Value value = text.value();
  if (stmt.expr != nullptr) value = eval_filter(*stmt.expr, body, &value);
  if (stmt.kind == StmtKind::filter_block) {
    print(out, value);
    check_output(out);
  } else {
    check_namespaces(*stmt.target, scope);
    assign(*stmt.target, value, scope);
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::run_with(const Stmt& stmt, const ScopePtr& scope, TextBuilder& out) {
  const ScopePtr body = inner(scope);
  for (const Assignment& assignment : stmt.assignments)
    assign(*assignment.target, eval(*assignment.value, scope), body);
  return run(stmt.body, body, out);
}

Interpreter::Flow Interpreter::run_loop(const Stmt& stmt, const ScopePtr& scope, TextBuilder& out) {
  const Value items = eval(*stmt.expr, scope);
  line_ = stmt.line;
  return run_items(stmt, scope, items, 0, out);
}

Interpreter::Flow Interpreter::run_items(const Stmt& stmt, const ScopePtr& scope, const Value& items, int64_t depth,
                                         TextBuilder& out) {
  const Heap::Level level(heap_);
  std::function<bool(const Value&)> wanted;
  if (stmt.condition != nullptr) {
    wanted = [this, &stmt, scope](const Value& item) {
      const ScopePtr test = inner(scope);
      assign(*stmt.target, item, test);
      return truth(eval(*stmt.condition, test));
    };
  }
  const auto loop = std::make_shared<Loop>(heap_, items, std::move(wanted), depth);
  const struct Ending {
    Loop& loop;
    ~Ending() { loop.end(); }
  } ending{*loop};
  const Value self = heap_.object("LoopContext");
  self.object().attribute = [loop](std::string_view name) { return loop->attribute(loop, name); };
  self.object().length = [loop] { return loop->length(); };
  // Not the scope itself: it may hold this object, or one like it that holds another, and so on.
  self.object().call = [this, &stmt, held = std::weak_ptr(scope), depth](const Arguments& arguments) {
    const ScopePtr scope = held.lock();
    if (!stmt.recursive || scope == nullptr) throw Fault("only a loop marked recursive can be called, while it runs");
    if (arguments.positional.size() != 1) throw Fault("a loop is called with what it iterates over");
    TextBuilder text(heap_);
    run_items(stmt, scope, arguments.positional[0], depth + 1, text);
    return text.value();
  };
  return run_body(stmt, scope, *loop, self, out);
}

Interpreter::Flow Interpreter::run_body(const Stmt& stmt, const ScopePtr& scope, Loop& loop, const Value& self,
                                        TextBuilder& out) {
  // As in Jinja, "else" also follows a loop none of whose bodies came to its end.
  bool completed = false;
  while (loop.advance()) {
    heap_.work(1);
    const ScopePtr body = inner(scope);
    assign(*stmt.target, loop.current(), body);
    body->set("loop", self);
    const Flow flow = run(stmt.body, body, out);
    if (flow == Flow::leave) break;
    completed |= flow == Flow::on;
  }
  if (completed || stmt.otherwise.empty()) return Flow::on;
  return run(stmt.otherwise, inner(scope), out);
}

void Interpreter::check_namespaces(const Expr& target, const ScopePtr& scope) {
  for (const ExprPtr& part : target.args) check_namespaces(*part, scope);
  if (target.kind != ExprKind::field) return;
  const Value* found = scope->find(heap_, target.name);
  if (found == nullptr || !found->is(Kind::object) || !found->object().is_namespace)
    throw Fault(fmt::format("cannot assign to {}.{}: expected a namespace", target.name, target.text));
}

void Interpreter::assign(const Expr& target, const Value& value, const ScopePtr& scope) {
  if (target.kind == ExprKind::name) return scope->set(target.name, value);
  if (target.kind == ExprKind::tuple) {
    const std::vector<Value> items = iterate(heap_, value);
    if (items.size() != target.args.size())
      throw Fault(fmt::format("expected {} values to unpack, found {}", target.args.size(), items.size()));
    for (size_t i = 0; i < items.size(); ++i) assign(*target.args[i], items[i], scope);
    return;
  }
  if (target.text.starts_with('_')) throw Fault("a namespace's fields do not begin with an underscore");
  const Value* found = scope->find(heap_, target.name);
  if (found == nullptr || !found->is(Kind::object) || !found->object().is_namespace)
    throw Fault(fmt::format("cannot assign to {}.{}: expected a namespace", target.name, target.text));
  Object& object = found->object();
  heap_.work(static_cast<int64_t>(object.fields.size()) / 16);
  for (auto& [name, old] : object.fields) {
    if (name != target.text) continue;
    old = value;
    return;
  }
  object.charge.grow(static_cast<int64_t>(sizeof(NamedValue) + target.text.size()));
  object.fields.emplace_back(target.text, value);
}

Value Interpreter::make_macro(const Stmt& stmt, const std::string& name, const ScopePtr& scope) {
  if (!scope->kept) {
    scope->kept = true;
    heap_.at_end([scope] { scope->names.clear(); });
  }
  const Value macro = heap_.object(
      name.empty() ? "Macro anonymous" : fmt::format("Macro '{}'", name),
      [this, &stmt, name, scope](const Arguments& arguments) { return call_macro(stmt, name, scope, arguments); });
  macro.object().attribute = [this, name](std::string_view attribute) {
    if (attribute == "name" && !name.empty()) return heap_.text(name);
    return heap_.undefined(fmt::format("a macro has no attribute '{}'", attribute));
  };
  return macro;
}

Value Interpreter::call_macro(const Stmt& stmt, const std::string& name, const ScopePtr& scope,
                              const Arguments& arguments) {
  const Heap::Level level(heap_);
  const Signature& signature = stmt.signature;
  const ScopePtr body = inner(scope);
  std::vector<NamedValue> named = arguments.named;
  const auto take = [&](const std::string& wanted) -> const Value* {
    for (auto it = named.begin(); it != named.end(); ++it) {
      if (it->first != wanted) continue;
      body->set(wanted, it->second);
      named.erase(it);
      return body->find(heap_, wanted);
    }
    return nullptr;
  };
  std::vector<const Parameter*> missing;
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    const Parameter& p = signature.parameters[i];
    if (i < arguments.positional.size()) {
      body->set(p.name, arguments.positional[i]);
    } else if (take(p.name) == nullptr) {
      body->set(p.name, heap_.undefined(fmt::format("parameter '{}' was not provided", p.name)));
      missing.push_back(&p);
    }
  }
  if (signature.uses_caller && take("caller") == nullptr) body->set("caller", heap_.undefined("there is no caller"));
  if (signature.uses_kwargs) {
    std::vector<Pair> pairs;
    for (const auto& [key, value] : named) pairs.emplace_back(heap_.text(key), value);
    body->set("kwargs", heap_.dict(std::move(pairs)));
  } else if (!named.empty()) {
    throw Fault(fmt::format("macro '{}' has no parameter '{}'", name, named[0].first));
  }
  const size_t n = signature.parameters.size();
  if (signature.uses_varargs) {
    const auto& all = arguments.positional;
    const auto rest = all.begin() + static_cast<std::ptrdiff_t>(std::min(n, all.size()));
    body->set("varargs", heap_.tuple({rest, all.end()}));
  } else if (arguments.positional.size() > n) {
    throw Fault(fmt::format("macro '{}' has {} parameters, found {} arguments", name, n, arguments.positional.size()));
  }
  for (const Parameter* p : missing)
    if (p->otherwise != nullptr) body->set(p->name, eval(*p->otherwise, body));
  TextBuilder out(heap_);
  run(stmt.body, body, out);
  return out.value();
}

}  // namespace rw::jinja
