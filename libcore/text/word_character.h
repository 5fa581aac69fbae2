// White space and word characters as added tokens look at them (Rust's regex classes \s and \w).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rw {

bool is_space_character(uint32_t code_point);  // Unicode's White_Space
bool is_word_character(uint32_t code_point);   // Alphabetic, marks, decimal digits, connectors, joiners

// Bytes of white space at the ends of a valid UTF-8 text.
size_t spaces_at_start(std::string_view text);
size_t spaces_at_end(std::string_view text);
bool starts_with_word(std::string_view text);
bool ends_with_word(std::string_view text);

}  // namespace rw
