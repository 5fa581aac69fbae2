#include "libcore/text/word_character.h"

#include <utf8proc.h>

#include "libcore/text/utf8.h"

namespace rw {
namespace {

size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

bool is_space_character(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word_character(uint32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  // Join controls, and the circled and squared letters that are Alphabetic by Unicode's list of exceptions.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

size_t spaces_at_start(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_space_character(utf8_at(text, at))) at += static_cast<size_t>(utf8_length(text, at));
  return at;
}

size_t spaces_at_end(std::string_view text) {
  const size_t whole = text.size();
  while (!text.empty()) {
    const size_t at = last_character(text);
    if (!is_space_character(utf8_at(text, at))) break;
    text = text.substr(0, at);
  }
  return whole - text.size();
}

bool starts_with_word(std::string_view text) { return !text.empty() && is_word_character(utf8_at(text, 0)); }
bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word_character(utf8_at(text, last_character(text)));
}

}  // namespace rw
