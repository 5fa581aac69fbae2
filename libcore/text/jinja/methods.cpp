#include "libcore/text/jinja/methods.h"

#include <fmt/core.h>

#include <algorithm>

#include "libcore/text/jinja/compare.h"

namespace rw::jinja {
namespace {

void no_arguments(const Arguments& arguments) { Parameters(arguments, {}); }

Value dict_items(Heap& heap, const Value& self, const Arguments& arguments) {
  no_arguments(arguments);
  std::vector<Value> out;
  for (const auto& [key, value] : self.pairs()) out.push_back(heap.tuple({key, value}));
  return heap.view("dict_items", std::move(out));
}

Value dict_keys(Heap& heap, const Value& self, const Arguments& arguments) {
  no_arguments(arguments);
  return heap.view("dict_keys", iterate(heap, self));
}

Value dict_values(Heap& heap, const Value& self, const Arguments& arguments) {
  no_arguments(arguments);
  std::vector<Value> out;
  for (const auto& [key, value] : self.pairs()) out.push_back(value);
  return heap.view("dict_values", std::move(out));
}

Value dict_get(Heap& heap, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) throw Fault("get() takes no named arguments");
  const Parameters p(arguments, {"key", "default"}, 1);
  const Value* found = find_key(heap, self, p[0]);
  return found != nullptr ? *found : p.value(1, Value());
}

Value copy(Heap&, const Value& self, const Arguments& arguments) {
  no_arguments(arguments);
  return self;  // it cannot change
}

Value count(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"value"}, 1);
  return Value::integer(
      std::count_if(self.items().begin(), self.items().end(), [&](const Value& v) { return equals(heap, v, p[0]); }));
}

Value index(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"value", "start", "stop"}, 1);
  const int64_t n = static_cast<int64_t>(self.items().size());
  const auto bound = [&](size_t i, int64_t otherwise) {
    const int64_t v = p.integer(i, otherwise);
    return v < 0 ? std::max<int64_t>(0, v < -n ? 0 : v + n) : std::min(v, n);
  };
  const int64_t stop = bound(2, n);
  for (int64_t i = bound(1, 0); i < stop; ++i)
    if (equals(heap, self.items()[static_cast<size_t>(i)], p[0])) return Value::integer(i);
  throw Fault("index(): the value is not in the list");
}

constexpr NamedFunction kDictMethods[] = {
    {"copy", copy}, {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}};
constexpr NamedFunction kListMethods[] = {{"copy", copy}, {"count", count}, {"index", index}};
constexpr NamedFunction kTupleMethods[] = {{"count", count}, {"index", index}};

constexpr std::string_view kForbiddenOfDict[] = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"};

template <size_t N>
Function find_in(const NamedFunction (&methods)[N], std::string_view name) {
  for (const auto& method : methods)
    if (method.name == name) return method.function;
  return nullptr;
}

}  // namespace

Function find_collection_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::dict: return find_in(kDictMethods, name);
    case Kind::list: return find_in(kListMethods, name);
    case Kind::tuple:
    case Kind::range: return find_in(kTupleMethods, name);
    default: return nullptr;
  }
}

Function find_method(const Value& value, std::string_view name) {
  return value.is(Kind::string) ? find_string_method(name) : find_collection_method(value.kind(), name);
}

bool is_forbidden_method(const Value& value, std::string_view name) {
  return value.is(Kind::dict) &&
         std::find(std::begin(kForbiddenOfDict), std::end(kForbiddenOfDict), name) != std::end(kForbiddenOfDict);
}

}  // namespace rw::jinja
