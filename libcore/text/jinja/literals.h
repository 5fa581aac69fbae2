// Numbers and strings as a template writes them.
#pragma once
#include <string>
#include <string_view>

namespace rw::jinja {

// "\r\n" and "\r" become "\n".
std::string unify_newlines(std::string_view text);
// The contents of a string literal, with Python's escapes replaced. Fault: a broken one, or half a surrogate pair.
std::string unescape(std::string_view contents);

struct NumberLiteral {
  size_t bytes;
  bool real;
};
// The number that `text` starts with (its first byte is a digit). After a dot only an integer can stand (a.0.1).
NumberLiteral scan_number(std::string_view text, bool after_dot);

}  // namespace rw::jinja
