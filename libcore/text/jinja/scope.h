// Names and their values while a template runs.
#pragma once
#include <memory>

#include "libcore/text/jinja/value.h"

namespace rw::jinja {

struct Scope;
using ScopePtr = std::shared_ptr<Scope>;  // macros and callers keep the scope they were made in

struct Scope {
  Scope(Heap& heap, ScopePtr outer) : charge(heap, 128), parent(std::move(outer)) {}
  void set(const std::string& name, Value value);
  const Value* find(Heap& heap, const std::string& name) const;  // here or outside; null: nowhere

  Charge charge;
  ScopePtr parent;
  std::vector<NamedValue> names = {};
  bool kept = false;  // until the rendering's end: a macro or caller holds it, and it may hold them
};

}  // namespace rw::jinja
