// Text of others (names in files, a server's words) on a terminal.
#pragma once
#include <string>
#include <string_view>

namespace rw {

// Characters that a terminal acts on become '?': controls (line breaks stay), those of Latin-1's upper half, marks that
// turn the direction of writing, and bytes that are no UTF-8.
std::string printable(std::string_view text);
// The same with line breaks too: of names that belong into one line.
std::string printable_line(std::string_view text);

}  // namespace rw
