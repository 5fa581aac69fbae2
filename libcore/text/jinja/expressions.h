// Expressions of a template's tags.
#pragma once
#include <set>

#include "libcore/text/jinja/ast.h"
#include "libcore/text/jinja/lexer.h"

namespace rw::jinja {

// Reads tokens; throws SyntaxFault with the line where it stands.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& take();
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  void expect(TokenType type, std::string_view what);
  std::string take_name(std::string_view what);
  [[noreturn]] void expected(std::string_view what) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

class ExpressionParser {
 public:
  // `constants` holds the literals.
  ExpressionParser(TokenStream& tokens, Heap& constants) : tokens_(tokens), constants_(constants) {}

  ExprPtr expression();
  // Also "a, b". Without conditions where "if" belongs to the tag.
  struct TupleStyle {
    bool conditions = true;
    bool parentheses = false;  // an empty one is a tuple
  };
  ExprPtr tuple(TupleStyle style);
  ExprPtr tuple() { return tuple({}); }
  // A name, names, or (of set tags) a namespace's field.
  ExprPtr target(bool fields);
  ExprPtr filters(ExprPtr node, bool first_without_bar);  // null when there are none
  ExprPtr make(ExprKind kind, int64_t line, std::vector<ExprPtr> args = {});

  // Which of caller, kwargs and varargs are named in what is parsed: one set a macro or call block under way.
  std::vector<std::set<std::string>>& used() { return used_; }

 private:
  class Nesting;
  ExprPtr either();
  ExprPtr both();
  ExprPtr invert();
  ExprPtr compare();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary(bool fields);
  ExprPtr named_value(bool fields);
  ExprPtr string();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filters_and_tests(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr slice(ExprPtr node, ExprPtr start, int64_t line);
  ExprPtr test(ExprPtr node);
  ExprPtr call(ExprPtr node);
  void arguments(Expr& node);
  ExprPtr literal(Value value, int64_t line);
  ExprPtr finished(ExprPtr node);
  bool tuple_ends() const;

  TokenStream& tokens_;
  Heap& constants_;
  std::vector<std::set<std::string>> used_;
  int64_t nesting_ = 0;
};

}  // namespace rw::jinja
