// The filters behind "|".
#pragma once
#include "libcore/text/jinja/arguments.h"

namespace rw::jinja {

Function find_filter(std::string_view name);            // null: unknown
Function find_text_filter(std::string_view name);       // of strings and numbers
Function find_sequence_filter(std::string_view name);   // of what can be iterated over
Function find_selection_filter(std::string_view name);  // map, select, reject, selectattr, rejectattr
Value apply_filter(Heap& heap, std::string_view name, const Value& value, const Arguments& arguments);

}  // namespace rw::jinja
