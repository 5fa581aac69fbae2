#include "libcore/text/jinja/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "libcore/text/jinja/characters.h"
#include "libcore/text/jinja/literals.h"
#include "libcore/text/jinja/numbers.h"
#include "libcore/text/jinja/value.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

constexpr std::string_view kSigns[] = {"==", "!=", ">=", "<=", "//", "**", "+", "-", "/", "*", "%", "~", "[",
                                       "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

// Line ends are "\n", and the last one is not part of the template.
std::string normalized(std::string_view source) {
  std::string out = unify_newlines(replace_invalid_utf8(source));
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) root();
    add(TokenType::end);
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }

  [[noreturn]] void fault(std::string what) const { throw SyntaxFault{line_, std::move(what)}; }

  void add(TokenType type, std::string text = {}) { tokens_.push_back({type, line_, std::move(text)}); }

  // Moves on, counting lines.
  void skip(size_t n) {
    const std::string_view passed = text_.substr(at_, n);
    line_ += std::count(passed.begin(), passed.end(), '\n');
    at_ += n;
    if (n > 0) line_starts_ = text_[at_ - 1] == '\n';
  }

  // Text up to `end`, where a tag opens: `control` ('-', '+' or 0) and lstrip_blocks say what is cut off it.
  void data(size_t end, char control, bool variable) {
    std::string_view kept = text_.substr(at_, end - at_);
    if (control == '-') {
      kept.remove_suffix(trailing_space(kept));
    } else if (control != '+' && !variable) {
      const size_t newline = kept.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starts_) && leading_space(kept.substr(line)) == kept.size() - line)
        kept = kept.substr(0, line);
    }
    if (!kept.empty()) add(TokenType::data, std::string(kept));
    skip(end - at_);
  }

  char control_at(size_t at) const {
    return at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at] : '\0';
  }

  void root() {
    size_t open = at_;
    while ((open = text_.find('{', open)) != std::string_view::npos && open + 1 < text_.size() &&
           std::string_view("{%#").find(text_[open + 1]) == std::string_view::npos)
      ++open;
    if (open == std::string_view::npos || open + 1 >= text_.size()) {
      add(TokenType::data, std::string(rest()));
      return skip(text_.size() - at_);
    }
    const char kind = text_[open + 1];
    const char control = control_at(open + 2);
    data(open, control, kind == '{');
    const size_t head = control == 0 ? 2 : 3;
    if (kind == '#') {
      skip(head);
      return comment();
    }
    if (kind == '%' && raw_begin(head)) return;
    add(kind == '{' ? TokenType::variable_begin : TokenType::block_begin);
    skip(head);
    tag(kind == '%');
  }

  void comment() {
    if (at_ == text_.size()) return;  // Jinja takes an opening bracket at the very end for an empty comment
    size_t close = text_.find("#}", at_);
    if (close == std::string_view::npos) fault("a comment has no end: expected #}");
    const char control = close > at_ ? text_[close - 1] : '\0';
    skip(close + 2 - at_);
    after_tag(control);
  }

  // What trim_blocks, or a '-' or '+' before the closing bracket, do with the text after a block or comment.
  void after_tag(char control) {
    if (control == '-') skip(leading_space(rest()));
    else if (control != '+' && rest().starts_with('\n')) skip(1);
  }

  // {% WORD %} at the reading position; 0, or the bytes of it. `head`: of the opening bracket with its control.
  size_t word_tag(size_t from, size_t head, std::string_view word, char& control) const {
    size_t at = from + head;
    at += leading_space(text_.substr(at));
    if (!text_.substr(at).starts_with(word)) return 0;
    at += word.size();
    at += leading_space(text_.substr(at));
    control = control_at(at);
    if (control != 0) ++at;
    return text_.substr(at).starts_with("%}") ? at + 2 - from : 0;
  }

  // {% raw %} ... {% endraw %}
  bool raw_begin(size_t head) {
    char control = 0;
    const size_t n = word_tag(at_, head, "raw", control);
    if (n == 0 || control == '+') return false;
    skip(n);
    if (control == '-') skip(leading_space(rest()));  // no newline is trimmed here
    if (at_ == text_.size()) return true;
    for (size_t open = at_; (open = text_.find("{%", open)) != std::string_view::npos; ++open) {
      const char before = control_at(open + 2);
      const size_t end = word_tag(open, before == 0 ? 2 : 3, "endraw", control);
      if (end == 0) continue;
      data(open, before, false);
      skip(end);
      after_tag(control);
      return true;
    }
    fault("a raw block has no end: expected {% endraw %}");
  }

  // The tokens of a tag up to its closing bracket.
  void tag(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    while (at_ < text_.size()) {
      if (brackets_.empty()) {
        const char control = control_at(at_);
        const bool controlled = control == '-' || (control == '+' && block);
        if (rest().substr(controlled ? 1 : 0).starts_with(close)) {
          add(block ? TokenType::block_end : TokenType::variable_end);
          skip((controlled ? 1 : 0) + 2);
          if (block) return after_tag(controlled ? control : '\0');
          if (controlled) skip(leading_space(rest()));
          return;
        }
      }
      if (const size_t space = leading_space(rest()); space > 0) skip(space);
      else token();
    }
    fault(fmt::format("a tag has no end: expected {}", close));
  }

  void token() {
    const char c = text_[at_];
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return string();
    if (is_word(utf8_at(text_, at_))) return name();
    for (const std::string_view sign : kSigns) {
      if (!rest().starts_with(sign)) continue;
      balance(c);
      add(TokenType::sign, std::string(sign));
      return skip(sign.size());
    }
    fault(fmt::format("unexpected character '{}'", text_.substr(at_, static_cast<size_t>(utf8_length(text_, at_)))));
  }

  void balance(char c) {
    if (c == '{') brackets_ += '}';
    if (c == '(') brackets_ += ')';
    if (c == '[') brackets_ += ']';
    if (c != '}' && c != ')' && c != ']') return;
    if (brackets_.empty()) fault(fmt::format("unexpected '{}'", c));
    if (brackets_.back() != c) fault(fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
    brackets_.pop_back();
  }

  void name() {
    size_t end = at_;
    while (end < text_.size() && is_word(utf8_at(text_, end))) end += static_cast<size_t>(utf8_length(text_, end));
    add(TokenType::name, std::string(text_.substr(at_, end - at_)));
    skip(end - at_);
  }

  void string() {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != text_[at_]) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fault("a string has no end");
    try {
      add(TokenType::string, unescape(text_.substr(at_ + 1, end - at_ - 1)));
    } catch (const Fault& f) {
      fault(f.what());
    }
    skip(end + 1 - at_);
  }

  void number() {
    const NumberLiteral literal = scan_number(rest(), at_ > 0 && text_[at_ - 1] == '.');
    const std::string_view digits = rest().substr(0, literal.bytes);
    add(literal.real ? TokenType::real : TokenType::integer);
    Token& token = tokens_.back();
    try {
      if (literal.real) {
        token.real = parse_real(digits).value_or(0);
      } else {
        token.integer = parse_integer(digits, 0).value_or(0);
      }
    } catch (const Fault& f) {
      fault(f.what());
    }
    skip(literal.bytes);
  }

  const std::string source_;
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
  bool line_starts_ = true;
  std::string brackets_;  // that must close, innermost last
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace rw::jinja
