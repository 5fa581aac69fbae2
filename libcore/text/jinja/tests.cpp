#include "libcore/text/jinja/tests.h"

#include <fmt/core.h>

#include "libcore/text/jinja/arithmetic.h"
#include "libcore/text/jinja/compare.h"
#include "libcore/text/jinja/filters.h"
#include "libcore/text/jinja/methods.h"
#include "libcore/text/jinja/print.h"

namespace rw::jinja {
namespace {

template <bool (*kTest)(const Value&)>
Value of_value(Heap&, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  return Value::boolean(kTest(self));
}

template <bool (*kTest)(Heap&, const Value&, const Value&)>
Value of_two(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"other"}, 1);
  return Value::boolean(kTest(heap, self, p[0]));
}

bool is_defined(const Value& v) { return !v.is(Kind::undefined); }
bool is_undefined(const Value& v) { return v.is(Kind::undefined); }
bool is_none(const Value& v) { return v.is(Kind::none); }
bool is_boolean(const Value& v) { return v.is(Kind::boolean); }
bool is_true(const Value& v) { return v.is(Kind::boolean) && v.as_integer() != 0; }
bool is_false(const Value& v) { return v.is(Kind::boolean) && v.as_integer() == 0; }
bool is_integer(const Value& v) { return v.is(Kind::integer); }
bool is_float(const Value& v) { return v.is(Kind::real); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is(Kind::string); }
bool is_mapping(const Value& v) { return v.is(Kind::dict); }
bool is_sequence(const Value& v) {
  return v.is_sequence() || v.is(Kind::string) || v.is(Kind::dict) || v.is(Kind::undefined);
}
bool is_callable(const Value& v) {
  return v.is(Kind::undefined) || (v.is(Kind::object) && static_cast<bool>(v.object().call));
}
bool is_escaped(const Value&) { return false; }

bool is_odd_by(Heap& heap, const Value& v, const Value& by, int64_t rest) {
  return equals(heap, compute(heap, Operator::modulo, v, by), Value::integer(rest));
}
Value is_odd(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  return Value::boolean(is_odd_by(heap, self, Value::integer(2), 1));
}
Value is_even(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  return Value::boolean(is_odd_by(heap, self, Value::integer(2), 0));
}
Value is_divisible(Heap& heap, const Value& self, const Arguments& arguments) {
  const Parameters p(arguments, {"num"}, 1);
  return Value::boolean(is_odd_by(heap, self, p[0], 0));
}

Value has_case(Heap& heap, const Value& self, const Arguments& arguments, std::string_view method) {
  return find_string_method(method)(heap, to_string(heap, self), arguments);
}
Value is_upper_text(Heap& heap, const Value& self, const Arguments& a) { return has_case(heap, self, a, "isupper"); }
Value is_lower_text(Heap& heap, const Value& self, const Arguments& a) { return has_case(heap, self, a, "islower"); }

bool same(Heap& heap, const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  return a.node() != nullptr ? a.node() == b.node() || (a.is(Kind::string) && equals(heap, a, b)) : equals(heap, a, b);
}
bool not_equal(Heap& heap, const Value& a, const Value& b) { return !equals(heap, a, b); }
bool greater(Heap& heap, const Value& a, const Value& b) { return less(heap, b, a); }
bool greater_or_equal(Heap& heap, const Value& a, const Value& b) { return less_or_equal(heap, b, a); }
bool is_in(Heap& heap, const Value& a, const Value& b) { return contains(heap, b, a); }
bool names(const Value& a, Function (*find)(std::string_view)) {
  check_hashable(a);
  return a.is(Kind::string) && find(a.text()) != nullptr;
}
bool names_filter(Heap&, const Value& a) { return names(a, find_filter); }
bool names_test(Heap&, const Value& a) { return names(a, find_test); }

template <bool (*kTest)(Heap&, const Value&)>
Value of_name(Heap& heap, const Value& self, const Arguments& arguments) {
  Parameters(arguments, {});
  return Value::boolean(kTest(heap, self));
}

constexpr NamedFunction kTests[] = {
    {"!=", of_two<not_equal>},
    {"<", of_two<less>},
    {"<=", of_two<less_or_equal>},
    {"==", of_two<equals>},
    {">", of_two<greater>},
    {">=", of_two<greater_or_equal>},
    {"boolean", of_value<is_boolean>},
    {"callable", of_value<is_callable>},
    {"defined", of_value<is_defined>},
    {"divisibleby", is_divisible},
    {"eq", of_two<equals>},
    {"equalto", of_two<equals>},
    {"escaped", of_value<is_escaped>},
    {"even", is_even},
    {"false", of_value<is_false>},
    {"filter", of_name<names_filter>},
    {"float", of_value<is_float>},
    {"ge", of_two<greater_or_equal>},
    {"greaterthan", of_two<greater>},
    {"gt", of_two<greater>},
    {"in", of_two<is_in>},
    {"integer", of_value<is_integer>},
    {"iterable", of_value<iterable>},
    {"le", of_two<less_or_equal>},
    {"lessthan", of_two<less>},
    {"lower", is_lower_text},
    {"lt", of_two<less>},
    {"mapping", of_value<is_mapping>},
    {"ne", of_two<not_equal>},
    {"none", of_value<is_none>},
    {"number", of_value<is_number>},
    {"odd", is_odd},
    {"sameas", of_two<same>},
    {"sequence", of_value<is_sequence>},
    {"string", of_value<is_string>},
    {"test", of_name<names_test>},
    {"true", of_value<is_true>},
    {"undefined", of_value<is_undefined>},
    {"upper", is_upper_text},
};

}  // namespace

Function find_test(std::string_view name) {
  for (const auto& test : kTests)
    if (test.name == name) return test.function;
  return nullptr;
}

bool apply_test(Heap& heap, std::string_view name, const Value& value, const Arguments& arguments) {
  const Function test = find_test(name);
  if (test == nullptr) throw Fault(fmt::format("there is no test named '{}'", name));
  return truth(test(heap, value, arguments));
}

}  // namespace rw::jinja
