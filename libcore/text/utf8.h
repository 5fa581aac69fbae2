// UTF-8 at the byte level: what is valid, and what takes the place of what is not.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace rw {

// Bytes of the well-formed UTF-8 sequence that starts at text[at] (1 to 4), or 0 when there is none (Unicode 15, table
// 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).
int utf8_length(std::string_view text, size_t at);
bool valid_utf8(std::string_view text);
// Every maximal subpart of an ill-formed sequence becomes one U+FFFD (Unicode 15, section 3.9; Python's
// errors="replace").
std::string replace_invalid_utf8(std::string_view text);
// The code point at text[at]; the text is valid.
uint32_t utf8_at(std::string_view text, size_t at);
void append_utf8(std::string& text, uint32_t code_point);

}  // namespace rw
