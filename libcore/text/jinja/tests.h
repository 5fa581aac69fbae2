// The tests behind "is".
#pragma once
#include "libcore/text/jinja/arguments.h"

namespace rw::jinja {

Function find_test(std::string_view name);  // null: unknown
bool apply_test(Heap& heap, std::string_view name, const Value& value, const Arguments& arguments);

}  // namespace rw::jinja
