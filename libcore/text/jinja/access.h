// Attributes, items and slices of values, as Jinja looks them up: what is not there is undefined, not an error.
#pragma once
#include <optional>

#include "libcore/text/jinja/value.h"

namespace rw::jinja {

// value.name: an attribute (a method, a namespace's field), else an item. Fault: of an undefined value.
Value get_attribute(Heap& heap, const Value& value, const std::string& name);
// value[key]: an item, else an attribute.
Value get_item(Heap& heap, const Value& value, const Value& key);
// value[start:stop:step]; each none or an integer.
struct Slice {
  Value start, stop, step;
};
Value get_slice(Heap& heap, const Value& value, const Slice& slice);
// An attribute alone, undefined when there is none.
Value only_attribute(Heap& heap, const Value& value, const std::string& name);

// What filters do with attribute="a.b.0": items of items. No attribute: the value itself.
class AttributePath {
 public:
  AttributePath(Heap& heap, const Value* attribute);  // none, an integer, or a string
  Value of(Heap& heap, const Value& value) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace rw::jinja
