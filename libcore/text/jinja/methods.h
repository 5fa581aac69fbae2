// The methods of strings, lists, tuples, ranges and dicts that templates may call: Python's, without those that change
// their object.
#pragma once
#include "libcore/text/jinja/arguments.h"

namespace rw::jinja {

// Null: the value has no such method.
Function find_method(const Value& value, std::string_view name);
Function find_string_method(std::string_view name);
Function find_collection_method(Kind kind, std::string_view name);
// A method that Python has and the sandbox refuses: the name is no key either.
bool is_forbidden_method(const Value& value, std::string_view name);

// str.split and str.strip as filters use them too.
std::vector<Value> split_lines(Heap& heap, const std::string& text, bool keep_ends);
Value strip(Heap& heap, const std::string& text, const Value* chars, bool left, bool right);
Value replace(Heap& heap, const std::string& text, const std::string& old, const std::string& with, int64_t count);

}  // namespace rw::jinja
