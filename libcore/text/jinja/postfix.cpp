// What follows a value in an expression: attributes, items, slices, calls, filters and tests.
#include <fmt/core.h>

#include "libcore/text/jinja/expressions.h"

namespace rw::jinja {

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  for (;;) {
    if (tokens_.now().is_sign(".") || tokens_.now().is_sign("[")) node = subscript(std::move(node));
    else if (tokens_.now().is_sign("(")) node = call(std::move(node));
    else return node;
  }
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr node) {
  for (;;) {
    if (tokens_.now().is_sign("|")) node = filters(std::move(node), false);
    else if (tokens_.now().is_name("is")) node = test(std::move(node));
    else if (tokens_.now().is_sign("(")) node = call(std::move(node));
    else return node;
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr node) {
  const Token& bracket = tokens_.take();
  const int64_t line = bracket.line;
  std::vector<ExprPtr> args;
  args.push_back(std::move(node));
  if (bracket.text == ".") {
    const Token& token = tokens_.now();
    if (token.type == TokenType::integer) {
      args.push_back(literal(Value::integer(token.integer), token.line));
      tokens_.take();
      return make(ExprKind::item, line, std::move(args));
    }
    const std::string name = tokens_.take_name("the name of an attribute");
    ExprPtr attribute = make(ExprKind::attribute, line, std::move(args));
    attribute->name = name;
    return attribute;
  }
  ExprPtr key;
  if (!tokens_.now().is_sign(":")) {
    if (tokens_.now().is_sign("]")) tokens_.expected("an index");
    key = expression();
  }
  if (tokens_.now().is_sign(":")) return slice(std::move(args[0]), std::move(key), line);
  if (tokens_.now().is_sign(",")) {  // a tuple is the key
    std::vector<ExprPtr> keys;
    keys.push_back(std::move(key));
    while (tokens_.skip_sign(",")) keys.push_back(expression());
    key = make(ExprKind::tuple, line, std::move(keys));
  }
  tokens_.expect_sign("]");
  args.push_back(std::move(key));
  return make(ExprKind::item, line, std::move(args));
}

ExprPtr ExpressionParser::slice(ExprPtr node, ExprPtr start, int64_t line) {
  std::vector<ExprPtr> args;
  args.push_back(std::move(node));
  args.push_back(std::move(start));
  for (int part = 0; part < 2; ++part) {
    const bool given = tokens_.skip_sign(":") && !tokens_.now().is_sign(":") && !tokens_.now().is_sign("]");
    args.push_back(given ? expression() : nullptr);
  }
  tokens_.expect_sign("]");
  return make(ExprKind::slice, line, std::move(args));
}

void ExpressionParser::arguments(Expr& node) {
  tokens_.expect_sign("(");
  bool first = true, spread_list = false, spread_dict = false;
  const auto ensure = [&](bool right) {
    if (!right) throw SyntaxFault{node.line, "the arguments of a call are in the wrong order"};
  };
  while (!tokens_.now().is_sign(")")) {
    if (!first) {
      tokens_.expect_sign(",");
      if (tokens_.now().is_sign(")")) break;
    }
    first = false;
    if (tokens_.skip_sign("*")) {
      ensure(!spread_list && !spread_dict);
      spread_list = true;
      node.named.emplace_back("*", expression());
    } else if (tokens_.skip_sign("**")) {
      ensure(!spread_dict);
      spread_dict = true;
      node.named.emplace_back("**", expression());
    } else if (tokens_.now().type == TokenType::name && tokens_.ahead().is_sign("=")) {
      ensure(!spread_dict);
      std::string name = tokens_.take().text;
      tokens_.take();
      node.named.emplace_back(std::move(name), expression());
    } else {
      ensure(node.named.empty());
      node.args.push_back(expression());
    }
  }
  tokens_.expect_sign(")");
}

ExprPtr ExpressionParser::call(ExprPtr callee) {
  std::vector<ExprPtr> args;
  args.push_back(std::move(callee));
  ExprPtr node = make(ExprKind::call, tokens_.now().line, std::move(args));
  arguments(*node);
  return finished(std::move(node));
}

ExprPtr ExpressionParser::filters(ExprPtr node, bool first_without_bar) {
  while (first_without_bar || tokens_.skip_sign("|")) {
    first_without_bar = false;
    std::vector<ExprPtr> args;
    args.push_back(std::move(node));
    node = make(ExprKind::filter, tokens_.now().line, std::move(args));
    node->name = tokens_.take_name("the name of a filter");
    while (tokens_.skip_sign(".")) node->name += "." + tokens_.take_name("the name of a filter");
    if (tokens_.now().is_sign("(")) arguments(*node);
    node = finished(std::move(node));
  }
  return node;
}

ExprPtr ExpressionParser::test(ExprPtr value) {
  const int64_t line = tokens_.take().line;
  const bool negated = tokens_.skip_name("not");
  std::vector<ExprPtr> args;
  args.push_back(std::move(value));
  ExprPtr node = make(ExprKind::test, line, std::move(args));
  node->name = tokens_.take_name("the name of a test");
  while (tokens_.skip_sign(".")) node->name += "." + tokens_.take_name("the name of a test");
  const Token& token = tokens_.now();
  const bool is_value =
      token.type == TokenType::string || token.type == TokenType::integer || token.type == TokenType::real ||
      token.is_sign("[") || token.is_sign("{") ||
      (token.type == TokenType::name && token.text != "else" && token.text != "or" && token.text != "and");
  if (token.is_sign("(")) {
    arguments(*node);
  } else if (is_value) {  // one argument without parentheses
    if (token.is_name("is")) throw SyntaxFault{token.line, "tests cannot be chained with \"is\""};
    node->args.push_back(postfix(primary(false)));
  }
  node = finished(std::move(node));
  if (!negated) return node;
  std::vector<ExprPtr> inverted;
  inverted.push_back(std::move(node));
  return make(ExprKind::invert, line, std::move(inverted));
}

}  // namespace rw::jinja
