// Operators on values, as Python computes; integers beyond 64 bits are a Fault.
#pragma once
#include "libcore/text/jinja/value.h"

namespace rw::jinja {

enum class Operator : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };

Value compute(Heap& heap, Operator op, const Value& a, const Value& b);
Value negate(const Value& v);
Value positive(const Value& v);
// round(number, digits): an integer stays one.
Value round_to(const Value& number, int64_t digits);

}  // namespace rw::jinja
