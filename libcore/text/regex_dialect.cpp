#include "libcore/text/regex_dialect.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/text/utf8.h"

namespace rw {
namespace {

// Insides of character classes. Space is White_Space; word is Alphabetic, marks, decimal digits and connectors (UTS
// #18).
constexpr std::string_view kSpace =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

// POSIX brackets whose members differ.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kBrackets{{
    {"[:alpha:]", "\\p{Alphabetic}"},
    {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
    {"[:upper:]", "\\p{Uppercase}"},
    {"[:lower:]", "\\p{Lowercase}"},
    {"[:space:]", kSpace},
    {"[:word:]", kWord},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 38> kCategories{{
    {"letter", "L"},
    {"casedletter", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
}};

std::string word_boundary(bool inside) {
  return inside ? fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord)
                : fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord);
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorKind::input, "{}: regex \"{}\": {} (at byte {}) is not supported", where_, in_, what, at_);
  }
  bool ahead(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  char peek(size_t offset = 0) const { return at_ + offset < in_.size() ? in_[at_ + offset] : '\0'; }
  void copy(size_t n) {
    out_ += in_.substr(at_, n);
    at_ = std::min(at_ + n, in_.size());
  }
  void copy_character() { copy(static_cast<size_t>(std::max(1, utf8_length(in_, at_)))); }

  void step() {
    switch (in_[at_]) {
      case '\\':
        atom_ = out_.size();
        escape(false);
        return;
      case '[':
        atom_ = out_.size();
        character_class();
        return;
      case '(': open_group(); return;
      case ')':
        atom_ = groups_.empty() ? out_.size() : groups_.back();
        if (!groups_.empty()) groups_.pop_back();
        copy(1);
        return;
      case '{': braces(); return;
      case '*':
      case '+':
      case '?': copy(1); return;
      default:
        atom_ = out_.size();
        copy_character();
        return;
    }
  }

  void open_group() {
    if (peek(1) == '*') refuse("a verb (*...)");
    groups_.push_back(out_.size());
    if (peek(1) != '?') return copy(1);
    if (ahead("(?~")) refuse("the absent operator");
    if (ahead("(?#")) {
      groups_.pop_back();
      at_ = std::min(in_.size(), in_.find(')', at_));
      if (at_ < in_.size()) ++at_;
      return;
    }
    size_t end = at_ + 2;
    while (end < in_.size() && (std::isalpha(static_cast<unsigned char>(in_[end])) != 0 || in_[end] == '-')) ++end;
    const bool has_flags = end > at_ + 2 && end < in_.size() && (in_[end] == ')' || in_[end] == ':');
    if (!has_flags) return copy(2);
    std::string flags(in_.substr(at_, end - at_));
    for (char& flag : flags) {
      if (flag == 'm') {
        flag = 's';
      } else if (flag != '(' && flag != '?' && flag != 'i' && flag != '-') {
        refuse(std::string("the flag ") + flag);
      }
    }
    out_ += flags;
    at_ = end;
  }

  void braces() {
    size_t end = at_ + 1;
    const auto digits = [&] {
      const size_t first = end;
      while (end < in_.size() && std::isdigit(static_cast<unsigned char>(in_[end])) != 0) ++end;
      return in_.substr(first, end - first);
    };
    const std::string_view low = digits();
    const bool has_comma = end < in_.size() && in_[end] == ',';
    if (has_comma) ++end;
    const std::string_view high = has_comma ? digits() : low;
    if (end >= in_.size() || in_[end] != '}' || (low.empty() && high.empty())) {
      atom_ = out_.size();
      out_ += "\\{";
      ++at_;
      return;
    }
    out_ += fmt::format("{{{}{}{}}}", low.empty() ? "0" : low, has_comma ? "," : "", has_comma ? high : "");
    at_ = end + 1;
    if (peek() == '+' || (peek() == '?' && !has_comma)) {
      out_.insert(atom_, "(?:");
      out_ += ")";
    }
  }

  void escape(bool in_class) {
    const char c = peek(1);
    const auto put = [&](std::string_view inside, bool negated) {
      if (in_class) {
        out_ += inside;
      } else {
        out_ += fmt::format("[{}{}]", negated ? "^" : "", inside);
      }
      at_ += 2;
    };
    switch (c) {
      case '\0':
        if (at_ + 1 >= in_.size()) refuse("a backslash at the end");
        break;
      case 's': return put(kSpace, false);
      case 'w': return put(kWord, false);
      case 'h': return put("0-9a-fA-F", false);
      case 'S':
        if (in_class) return put("\\P{White_Space}", false);
        return put(kSpace, true);
      case 'W':
        if (in_class) refuse("\\W inside a class");
        return put(kWord, true);
      case 'H':
        if (in_class) refuse("\\H inside a class");
        return put("0-9a-fA-F", true);
      case 'b':
      case 'B':
        if (in_class) return copy(2);
        out_ += word_boundary(c == 'B');
        at_ += 2;
        return;
      case 'v':
        out_ += "\\x0b";
        at_ += 2;
        return;
      case 'u':
        if (in_.size() < at_ + 6) refuse("a short \\u");
        out_ += fmt::format("\\x{{{}}}", in_.substr(at_ + 2, 4));
        at_ += 6;
        return;
      case 'x':
        if (peek(2) != '{' && peek(2) >= '8') refuse("a byte above 0x7F");
        break;
      case 'p':
      case 'P': return property();
      case 'O':
      case 'y':
      case 'Y':
      case 'C':
      case 'Q':
      case 'E': refuse(std::string("\\") + c);
      default: break;
    }
    out_ += '\\';
    ++at_;
    copy_character();
  }

  void property() {
    const size_t close = peek(2) == '{' ? in_.find('}', at_) : std::string_view::npos;
    if (close == std::string_view::npos) return copy(2);
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    const bool has_caret = name.starts_with('^');
    if (has_caret) name.remove_prefix(1);
    std::string plain;
    for (const char c : name) {
      if (c != ' ' && c != '_' && c != '-') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    const auto* known =
        std::find_if(kCategories.begin(), kCategories.end(), [&](const auto& k) { return k.first == plain; });
    out_ += fmt::format("{}{}{}}}", in_.substr(at_, 3), has_caret ? "^" : "",
                        known != kCategories.end() ? known->second : name);
    at_ = close + 1;
  }

  void character_class() {
    copy(1);
    if (peek() == '^') copy(1);
    if (peek() == ']') copy(1);
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '\\') {
        escape(true);
      } else if (ahead("[:")) {
        const size_t close = in_.find(":]", at_ + 2);
        if (close == std::string_view::npos) refuse("a class inside a class");
        const std::string_view bracket = in_.substr(at_, close + 2 - at_);
        const auto* known =
            std::find_if(kBrackets.begin(), kBrackets.end(), [&](const auto& k) { return k.first == bracket; });
        if (known == kBrackets.end()) {
          copy(bracket.size());
        } else {
          out_ += known->second;
          at_ += bracket.size();
        }
      } else if (in_[at_] == '[') {
        refuse("a class inside a class");
      } else if (ahead("&&")) {
        refuse("the set operator &&");
      } else {
        copy_character();
      }
    }
    copy(1);
  }

  std::string_view in_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where in out_ the last atom starts
  std::vector<size_t> groups_;  // where in out_ the open groups start
};

}  // namespace

std::string pcre_pattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

std::string pcre_literal(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\0') {
      out += "\\x00";
      continue;
    }
    if (static_cast<unsigned char>(c) < 0x80 && std::isalnum(static_cast<unsigned char>(c)) == 0) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace rw
