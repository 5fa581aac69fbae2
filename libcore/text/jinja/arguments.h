// Arguments of a call by the callee's parameters.
#pragma once
#include <initializer_list>
#include <optional>

#include "libcore/text/jinja/value.h"

namespace rw::jinja {

// A built-in filter, test or method: what it is applied to and what stands in the parentheses.
using Function = Value (*)(Heap& heap, const Value& self, const Arguments& arguments);
struct NamedFunction {
  std::string_view name;
  Function function;
};

class Parameters {
 public:
  // Fault when there are more than `names`, of other names, or fewer than the first `required`.
  Parameters(const Arguments& arguments, std::initializer_list<std::string_view> names, size_t required = 0);
  bool given(size_t i) const { return values_[i].has_value(); }
  // Given and not none.
  bool has(size_t i) const { return given(i) && !values_[i]->is(Kind::none); }
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value value(size_t i, Value otherwise) const { return given(i) ? *values_[i] : otherwise; }
  bool flag(size_t i, bool otherwise) const { return given(i) ? truth(*values_[i]) : otherwise; }
  int64_t integer(size_t i, int64_t otherwise) const;  // Fault: another type
  const std::string& text(size_t i) const;             // Fault: another type
  std::string_view text(size_t i, std::string_view otherwise) const;

 private:
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

int64_t to_integer(const Value& value, std::string_view what);          // Fault: no integer
const std::string& to_text(const Value& value, std::string_view what);  // Fault: no string

}  // namespace rw::jinja
