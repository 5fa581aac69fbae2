// Characters as Python's str sees them: white space, classes, case, positions.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace rw::jinja {

bool is_space(uint32_t c);       // str.isspace
bool is_line_break(uint32_t c);  // where str.splitlines splits
bool is_printable(uint32_t c);
bool is_alpha(uint32_t c);
bool is_decimal(uint32_t c);
bool is_numeric(uint32_t c);  // decimal digits and other numbers
bool is_upper(uint32_t c);
bool is_lower(uint32_t c);
bool is_title(uint32_t c);
bool is_cased(uint32_t c);
// \w of Python's re.
bool is_word(uint32_t c);

// Simple case mappings, and of those of several characters the ones of Latin letters.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // str.title: after every letter the rest is lower
std::string swap_case(std::string_view text);
std::string fold_case(std::string_view text);  // Unicode's full case folding

// The byte at which the n-th code point begins; the text's size when there is none.
size_t byte_of(std::string_view text, int64_t n);
int64_t code_points(std::string_view text);
// Bytes of the ends that consist of white space, or of the characters of `chars`.
size_t leading(std::string_view text, std::string_view chars);
size_t trailing(std::string_view text, std::string_view chars);
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

}  // namespace rw::jinja
