#include "libcore/text/jinja/characters.h"

#include <utf8proc.h>

#include <algorithm>

#include "libcore/text/utf8.h"
#include "libcore/text/word_character.h"

namespace rw::jinja {
namespace {

int category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

size_t width(std::string_view text, size_t at) { return static_cast<size_t>(utf8_length(text, at)); }

size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

void append_upper(std::string& out, uint32_t c) {
  switch (c) {
    case 0xDF: out += "SS"; break;
    case 0x149: out += "\xCA\xBCN"; break;
    case 0xFB00: out += "FF"; break;
    case 0xFB01: out += "FI"; break;
    case 0xFB02: out += "FL"; break;
    case 0xFB03: out += "FFI"; break;
    case 0xFB04: out += "FFL"; break;
    case 0xFB05:
    case 0xFB06: out += "ST"; break;
    default: append_utf8(out, static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, uint32_t c) {
  switch (c) {
    case 0xDF: out += "Ss"; break;
    case 0xFB00: out += "Ff"; break;
    case 0xFB01: out += "Fi"; break;
    case 0xFB02: out += "Fl"; break;
    case 0xFB03: out += "Ffi"; break;
    case 0xFB04: out += "Ffl"; break;
    case 0xFB05:
    case 0xFB06: out += "St"; break;
    default: append_utf8(out, static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

// A sigma that ends a word has a form of its own (Unicode 15, table 3-17).
bool final_sigma(std::string_view text, size_t at) {
  const auto cased = [&](size_t from, bool backwards) {
    while (backwards ? from > 0 : from < text.size()) {
      if (backwards) from = last_character(text.substr(0, from));
      const uint32_t c = utf8_at(text, from);
      const int k = category(c);
      const bool ignorable = k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
                             k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' ||
                             c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019;
      if (!ignorable) return is_cased(c);
      if (!backwards) from += width(text, from);
    }
    return false;
  };
  return cased(at, true) && !cased(at + width(text, at), false);
}

void append_lower(std::string& out, std::string_view text, size_t at) {
  const uint32_t c = utf8_at(text, at);
  if (c == 0x130) {
    out += "i\xCC\x87";
  } else if (c == 0x3A3) {
    append_utf8(out, final_sigma(text, at) ? 0x3C2 : 0x3C3);
  } else {
    append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

}  // namespace

bool is_space(uint32_t c) { return is_space_character(c) || (c >= 0x1C && c <= 0x1F); }
bool is_line_break(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}
bool is_printable(uint32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return true;
  }
}
bool is_alpha(uint32_t c) {
  const int k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_numeric(uint32_t c) {
  const int k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}
bool is_title(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_upper(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F); }
bool is_lower(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2170 && c <= 0x217F);
}
bool is_cased(uint32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }
bool is_word(uint32_t c) { return is_alpha(c) || is_numeric(c) || c == '_'; }

std::string upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += width(text, at)) append_upper(out, utf8_at(text, at));
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += width(text, at)) append_lower(out, text, at);
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += width(text, at)) {
    if (at == 0) {
      append_title(out, utf8_at(text, at));
    } else {
      append_lower(out, text, at);
    }
  }
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size(); at += width(text, at)) {
    const uint32_t c = utf8_at(text, at);
    if (in_word) {
      append_lower(out, text, at);
    } else {
      append_title(out, c);
    }
    in_word = is_cased(c);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += width(text, at)) {
    const uint32_t c = utf8_at(text, at);
    if (is_upper(c)) {
      append_lower(out, text, at);
    } else if (is_lower(c)) {
      append_upper(out, c);
    } else {
      append_utf8(out, c);
    }
  }
  return out;
}

std::string fold_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += width(text, at)) {
    utf8proc_int32_t folded[4];
    int last_class = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(utf8_at(text, at)), folded, 4,
                                           UTF8PROC_CASEFOLD, &last_class);
    for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(n, 4); ++i)
      append_utf8(out, static_cast<uint32_t>(folded[i]));
  }
  return out;
}

size_t byte_of(std::string_view text, int64_t n) {
  size_t at = 0;
  for (; at < text.size(); ++at)
    if ((text[at] & 0xC0) != 0x80 && n-- == 0) break;
  return at;
}

int64_t code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

size_t leading(std::string_view text, std::string_view chars) {
  size_t at = 0;
  while (at < text.size() && chars.find(text.substr(at, width(text, at))) != std::string_view::npos)
    at += width(text, at);
  return at;
}

size_t trailing(std::string_view text, std::string_view chars) {
  const size_t whole = text.size();
  while (!text.empty()) {
    const size_t at = last_character(text);
    if (chars.find(text.substr(at)) == std::string_view::npos) break;
    text = text.substr(0, at);
  }
  return whole - text.size();
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_space(utf8_at(text, at))) at += width(text, at);
  return at;
}

size_t trailing_space(std::string_view text) {
  const size_t whole = text.size();
  while (!text.empty() && is_space(utf8_at(text, last_character(text)))) text = text.substr(0, last_character(text));
  return whole - text.size();
}

}  // namespace rw::jinja
