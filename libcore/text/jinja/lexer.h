// A template's text as tokens, with Jinja's white-space control as Hugging Face sets it (trim_blocks, lstrip_blocks).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rw::jinja {

enum class TokenType : uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  sign,
  end
};

struct Token {
  TokenType type = TokenType::end;
  int64_t line = 1;
  std::string text = {};  // data, names, signs and the contents of strings
  int64_t integer = 0;
  double real = 0;

  bool is_sign(std::string_view s) const { return type == TokenType::sign && text == s; }
  bool is_name(std::string_view s) const { return type == TokenType::name && text == s; }
};

// What is wrong in a template's text.
struct SyntaxFault {
  int64_t line;
  std::string what;
};

// The last token is an `end`. Throws SyntaxFault.
std::vector<Token> tokenize(std::string_view source);

}  // namespace rw::jinja
