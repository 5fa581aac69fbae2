// Comparison of values, as Python compares.
#pragma once
#include "libcore/text/jinja/value.h"

namespace rw::jinja {

bool equals(Heap& heap, const Value& a, const Value& b);
bool less(Heap& heap, const Value& a, const Value& b);           // a < b; Fault: they have no order
bool less_or_equal(Heap& heap, const Value& a, const Value& b);  // not the same as !less(b, a): NaN
bool contains(Heap& heap, const Value& container, const Value& item);
void check_hashable(const Value& value);  // Fault: lists and dicts are no keys

}  // namespace rw::jinja
