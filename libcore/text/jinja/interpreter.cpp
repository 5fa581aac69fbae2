#include "libcore/text/jinja/interpreter.h"

#include <fmt/core.h>

#include "libcore/text/jinja/access.h"
#include "libcore/text/jinja/arguments.h"
#include "libcore/text/jinja/compare.h"
#include "libcore/text/jinja/filters.h"
#include "libcore/text/jinja/print.h"
#include "libcore/text/jinja/tests.h"

namespace rw::jinja {

void Scope::set(const std::string& name, Value value) {
  for (auto& [other, old] : names) {
    if (other != name) continue;
    old = std::move(value);
    return;
  }
  charge.grow(static_cast<int64_t>(sizeof(NamedValue) + name.size()));
  names.emplace_back(name, std::move(value));
}

const Value* Scope::find(Heap& heap, const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    heap.work(static_cast<int64_t>(scope->names.size()) / 16);
    for (const auto& [other, value] : scope->names)
      if (other == name) return &value;
  }
  return nullptr;
}

Value Interpreter::eval(const Expr& expr, const ScopePtr& scope) {
  const Heap::Level level(heap_);
  heap_.work(1);
  line_ = expr.line;
  return eval_node(expr, scope);
}

Value Interpreter::eval_node(const Expr& expr, const ScopePtr& scope) {
  const auto arg = [&](size_t i) { return eval(*expr.args[i], scope); };
  switch (expr.kind) {
    case ExprKind::literal: return expr.value;
    case ExprKind::name: return eval_name(expr, scope);
    case ExprKind::list: return heap_.list(eval_all(expr.args, scope));
    case ExprKind::tuple: return heap_.tuple(eval_all(expr.args, scope));
    case ExprKind::dict: return eval_dict(expr, scope);
    case ExprKind::attribute: {
      const Value value = arg(0);
      line_ = expr.line;
      return get_attribute(heap_, value, expr.name);
    }
    case ExprKind::item: {
      const Value value = arg(0), key = arg(1);
      line_ = expr.line;
      return get_item(heap_, value, key);
    }
    case ExprKind::slice: return eval_slice(expr, scope);
    case ExprKind::call: return eval_call(expr, scope, nullptr);
    case ExprKind::filter: return eval_filter(expr, scope, nullptr);
    case ExprKind::test: {
      const Value value = arg(0);
      const Arguments arguments = eval_arguments(expr, scope);
      line_ = expr.line;
      return Value::boolean(apply_test(heap_, expr.name, value, arguments));
    }
    case ExprKind::invert: return Value::boolean(!truth(arg(0)));
    case ExprKind::negate: return negate(arg(0));
    case ExprKind::positive: return positive(arg(0));
    case ExprKind::compute: {
      const Value a = arg(0), b = arg(1);
      line_ = expr.line;
      return compute(heap_, expr.op, a, b);
    }
    case ExprKind::concat: return eval_concat(expr, scope);
    case ExprKind::compare: return eval_compare(expr, scope);
    case ExprKind::both: {
      Value left = arg(0);
      return truth(left) ? arg(1) : left;
    }
    case ExprKind::either: {
      Value left = arg(0);
      return truth(left) ? left : arg(1);
    }
    case ExprKind::condition:
      if (truth(arg(0))) return arg(1);
      return expr.args[2] != nullptr ? arg(2) : heap_.undefined("the condition is false and there is no else");
    case ExprKind::field: break;  // only assigned to
  }
  throw Fault("not an expression");
}

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& exprs, const ScopePtr& scope) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(eval(*expr, scope));
  return values;
}

Value Interpreter::eval_name(const Expr& expr, const ScopePtr& scope) {
  const Value* found = scope->find(heap_, expr.name);
  return found != nullptr ? *found : heap_.undefined(fmt::format("'{}' is undefined", expr.name));
}

Value Interpreter::eval_dict(const Expr& expr, const ScopePtr& scope) {
  std::vector<Pair> pairs;
  for (size_t i = 0; i < expr.args.size(); i += 2) {
    const Value key = eval(*expr.args[i], scope);
    Value value = eval(*expr.args[i + 1], scope);
    check_hashable(key);
    bool found = false;
    for (auto& [other, old] : pairs) {
      if (!equals(heap_, other, key)) continue;
      old = value;
      found = true;
    }
    if (!found) pairs.emplace_back(key, std::move(value));
  }
  return heap_.dict(std::move(pairs));
}

Value Interpreter::eval_slice(const Expr& expr, const ScopePtr& scope) {
  const Value value = eval(*expr.args[0], scope);
  const auto part = [&](size_t i) { return expr.args[i] == nullptr ? Value() : eval(*expr.args[i], scope); };
  Slice slice;
  slice.start = part(1);
  slice.stop = part(2);
  slice.step = part(3);
  line_ = expr.line;
  return get_slice(heap_, value, slice);
}

// a < b < c: b is evaluated once, and c only when a < b.
Value Interpreter::eval_compare(const Expr& expr, const ScopePtr& scope) {
  Value left = eval(*expr.args[0], scope);
  for (size_t i = 0; i < expr.comparisons.size(); ++i) {
    Value right = eval(*expr.args[i + 1], scope);
    line_ = expr.line;
    const auto holds = [&] {
      switch (expr.comparisons[i]) {
        case Comparison::equal: return equals(heap_, left, right);
        case Comparison::not_equal: return !equals(heap_, left, right);
        case Comparison::less: return less(heap_, left, right);
        case Comparison::less_equal: return less_or_equal(heap_, left, right);
        case Comparison::greater: return less(heap_, right, left);
        case Comparison::greater_equal: return less_or_equal(heap_, right, left);
        case Comparison::in: return contains(heap_, right, left);
        case Comparison::not_in: return !contains(heap_, right, left);
      }
      return false;
    };
    if (!holds()) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_concat(const Expr& expr, const ScopePtr& scope) {
  TextBuilder out(heap_);
  for (const Value& value : eval_all(expr.args, scope)) print(out, value);
  return out.value();
}

Arguments Interpreter::eval_arguments(const Expr& expr, const ScopePtr& scope) {
  Arguments arguments;
  for (size_t i = 1; i < expr.args.size(); ++i) arguments.positional.push_back(eval(*expr.args[i], scope));
  for (const auto& [name, arg] : expr.named) {
    const Value value = eval(*arg, scope);
    if (name == "*") {
      for (Value& item : iterate(heap_, value)) arguments.positional.push_back(std::move(item));
    } else if (name == "**") {
      if (!value.is(Kind::dict)) throw Fault(fmt::format("** needs a dict, found {}", type_name(value)));
      for (const auto& [key, item] : value.pairs())
        arguments.named.emplace_back(to_text(key, "an argument's name"), item);
    } else {
      arguments.named.emplace_back(name, value);
    }
  }
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    heap_.work(static_cast<int64_t>(i) / 8);
    for (size_t j = 0; j < i; ++j)
      if (arguments.named[i].first == arguments.named[j].first)
        throw Fault(fmt::format("argument '{}' is given twice", arguments.named[i].first));
  }
  return arguments;
}

Value Interpreter::eval_call(const Expr& expr, const ScopePtr& scope, const Value* caller) {
  const Value callee = eval(*expr.args[0], scope);
  Arguments arguments = eval_arguments(expr, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = expr.line;
  if (callee.is(Kind::undefined)) throw Fault(callee.text());
  if (!callee.is(Kind::object) || !callee.object().call)
    throw Fault(fmt::format("{} cannot be called", type_name(callee)));
  Value result = callee.object().call(arguments);
  line_ = expr.line;
  return result;
}

Value Interpreter::eval_filter(const Expr& expr, const ScopePtr& scope, const Value* written) {
  const Heap::Level level(heap_);
  Value value;
  if (expr.args[0] == nullptr) {
    value = *written;
  } else if (expr.args[0]->kind == ExprKind::filter) {
    value = eval_filter(*expr.args[0], scope, written);
  } else {
    value = eval(*expr.args[0], scope);
  }
  const Arguments arguments = eval_arguments(expr, scope);
  line_ = expr.line;
  return apply_filter(heap_, expr.name, value, arguments);
}

}  // namespace rw::jinja
