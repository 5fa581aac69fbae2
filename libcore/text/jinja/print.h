// Values as text: Python's str() and repr().
#pragma once
#include <string>

#include "libcore/text/jinja/value.h"

namespace rw::jinja {

void print(TextBuilder& out, const Value& value);         // str(): a string as it is
void print_quoted(TextBuilder& out, const Value& value);  // repr(): a string in quotes
std::string number_text(double d);                        // repr(float)
std::string printed(Heap& heap, const Value& value);      // str()
Value to_string(Heap& heap, const Value& value);          // a string as it is, anything else printed

}  // namespace rw::jinja
