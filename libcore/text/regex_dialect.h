// From the dialect of tokenizer files to PCRE2's. The Hugging Face library runs its patterns with Oniguruma in Ruby
// syntax; PCRE2 reads nearly all of them the same way. What differs is rewritten here:
//   \s \S \w \W \b \B   Unicode's White_Space and word characters (PCRE2's \s holds U+180E, its \w no marks)
//   [:alpha:] ...       the same inside classes
//   \h \H \v \uHHHH     hexadecimal digits, the vertical tab, a code point
//   \p{Letter} ...      long names of general categories
//   X{,n}               X{0,n}
//   X{n,m}+  X{n}?      a repeated (X{n,m}), an optional (X{n}): not possessive, not lazy
//   (?m)                the dot matches newlines, PCRE2's (?s)
// What has no counterpart (set operations and classes inside classes, \W inside a class, absent operators, bytes above
// 0x7F) is refused with a message instead of being read differently.
#pragma once
#include <string>
#include <string_view>

namespace rw {

std::string pcre_pattern(std::string_view pattern, const std::string& where);
// A pattern that matches `text` and nothing else.
std::string pcre_literal(std::string_view text);

}  // namespace rw
