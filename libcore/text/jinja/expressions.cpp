#include "libcore/text/jinja/expressions.h"

#include <fmt/core.h>

#include <algorithm>

namespace rw::jinja {
namespace {

// Of an expression's tree; a template written by people stays far below.
constexpr int64_t kMaxDepth = 200;

template <typename... T>
std::vector<ExprPtr> list_of(T&&... exprs) {
  std::vector<ExprPtr> out;
  (out.push_back(std::forward<T>(exprs)), ...);
  return out;
}

const char* type_text(TokenType type) {
  switch (type) {
    case TokenType::data: return "text";
    case TokenType::variable_begin: return "{{";
    case TokenType::variable_end: return "}}";
    case TokenType::block_begin: return "{%";
    case TokenType::block_end: return "%}";
    case TokenType::integer:
    case TokenType::real: return "a number";
    case TokenType::string: return "a string";
    case TokenType::end: return "the end of the template";
    default: return "";
  }
}

}  // namespace

class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser& parser) : depth_(parser.nesting_) {
    if (++depth_ > kMaxDepth) throw SyntaxFault{parser.tokens_.now().line, "an expression is nested too deeply"};
  }
  ~Nesting() { --depth_; }

 private:
  int64_t& depth_;
};

const Token& TokenStream::take() {
  const Token& token = tokens_[at_];
  if (token.type != TokenType::end) ++at_;
  return token;
}

bool TokenStream::skip_sign(std::string_view sign) {
  if (!now().is_sign(sign)) return false;
  take();
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!now().is_name(name)) return false;
  take();
  return true;
}

void TokenStream::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) expected(fmt::format("'{}'", sign));
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) expected(fmt::format("'{}'", name));
}

void TokenStream::expect(TokenType type, std::string_view what) {
  if (now().type != type) expected(what);
  take();
}

std::string TokenStream::take_name(std::string_view what) {
  if (now().type != TokenType::name) expected(what);
  return take().text;
}

void TokenStream::expected(std::string_view what) const {
  const bool worded = now().type == TokenType::name || now().type == TokenType::sign;
  const std::string found = worded ? "'" + now().text + "'" : type_text(now().type);
  throw SyntaxFault{now().line, fmt::format("expected {}, found {}", what, found)};
}

ExprPtr ExpressionParser::finished(ExprPtr node) {
  for (const ExprPtr& arg : node->args)
    if (arg != nullptr) node->depth = std::max(node->depth, arg->depth + 1);
  for (const auto& [name, arg] : node->named) node->depth = std::max(node->depth, arg->depth + 1);
  if (node->depth > kMaxDepth) throw SyntaxFault{node->line, "an expression is nested too deeply"};
  return node;
}

ExprPtr ExpressionParser::make(ExprKind kind, int64_t line, std::vector<ExprPtr> args) {
  return finished(std::make_unique<Expr>(Expr{.kind = kind, .line = line, .args = std::move(args)}));
}

ExprPtr ExpressionParser::literal(Value value, int64_t line) {
  return std::make_unique<Expr>(Expr{.kind = ExprKind::literal, .line = line, .value = std::move(value)});
}

ExprPtr ExpressionParser::expression() {
  const Nesting nesting(*this);
  ExprPtr node = either();
  while (tokens_.now().is_name("if")) {
    const int64_t line = tokens_.take().line;
    ExprPtr condition = either();
    ExprPtr otherwise = tokens_.skip_name("else") ? expression() : nullptr;
    node = make(ExprKind::condition, line, list_of(std::move(condition), std::move(node), std::move(otherwise)));
  }
  return node;
}

ExprPtr ExpressionParser::either() {
  ExprPtr left = both();
  while (tokens_.now().is_name("or")) {
    const int64_t line = tokens_.take().line;
    left = make(ExprKind::either, line, list_of(std::move(left), both()));
  }
  return left;
}

ExprPtr ExpressionParser::both() {
  ExprPtr left = invert();
  while (tokens_.now().is_name("and")) {
    const int64_t line = tokens_.take().line;
    left = make(ExprKind::both, line, list_of(std::move(left), invert()));
  }
  return left;
}

ExprPtr ExpressionParser::invert() {
  const Nesting nesting(*this);
  if (!tokens_.now().is_name("not")) return compare();
  const int64_t line = tokens_.take().line;
  return make(ExprKind::invert, line, list_of(invert()));
}

ExprPtr ExpressionParser::compare() {
  static constexpr std::pair<const char*, Comparison> kSigns[] = {
      {"==", Comparison::equal},      {"!=", Comparison::not_equal}, {"<", Comparison::less},
      {"<=", Comparison::less_equal}, {">", Comparison::greater},    {">=", Comparison::greater_equal}};
  const int64_t line = tokens_.now().line;
  std::vector<ExprPtr> args = list_of(sum());
  std::vector<Comparison> comparisons;
  for (;;) {
    const Token& token = tokens_.now();
    const auto sign =
        std::find_if(std::begin(kSigns), std::end(kSigns), [&](const auto& s) { return token.is_sign(s.first); });
    if (sign != std::end(kSigns)) {
      comparisons.push_back(sign->second);
    } else if (token.is_name("in")) {
      comparisons.push_back(Comparison::in);
    } else if (token.is_name("not") && tokens_.ahead().is_name("in")) {
      tokens_.take();
      comparisons.push_back(Comparison::not_in);
    } else {
      break;
    }
    tokens_.take();
    args.push_back(sum());
  }
  if (comparisons.empty()) return std::move(args[0]);
  ExprPtr node = make(ExprKind::compare, line, std::move(args));
  node->comparisons = std::move(comparisons);
  return node;
}

ExprPtr ExpressionParser::sum() {
  ExprPtr left = concat();
  while (tokens_.now().is_sign("+") || tokens_.now().is_sign("-")) {
    const Token& sign = tokens_.take();
    const Operator op = sign.text == "+" ? Operator::add : Operator::subtract;
    left = make(ExprKind::compute, sign.line, list_of(std::move(left), concat()));
    left->op = op;
  }
  return left;
}

ExprPtr ExpressionParser::concat() {
  const int64_t line = tokens_.now().line;
  std::vector<ExprPtr> args = list_of(product());
  while (tokens_.skip_sign("~")) args.push_back(product());
  return args.size() == 1 ? std::move(args[0]) : make(ExprKind::concat, line, std::move(args));
}

ExprPtr ExpressionParser::product() {
  static constexpr std::pair<const char*, Operator> kSigns[] = {
      {"*", Operator::multiply}, {"/", Operator::divide}, {"//", Operator::floor_divide}, {"%", Operator::modulo}};
  ExprPtr left = power();
  for (;;) {
    const Token& token = tokens_.now();
    const auto sign =
        std::find_if(std::begin(kSigns), std::end(kSigns), [&](const auto& s) { return token.is_sign(s.first); });
    if (sign == std::end(kSigns)) return left;
    const int64_t line = tokens_.take().line;
    left = make(ExprKind::compute, line, list_of(std::move(left), power()));
    left->op = sign->second;
  }
}

// 2 ** 3 ** 2 is (2 ** 3) ** 2 in Jinja.
ExprPtr ExpressionParser::power() {
  ExprPtr left = unary(true);
  while (tokens_.now().is_sign("**")) {
    const int64_t line = tokens_.take().line;
    left = make(ExprKind::compute, line, list_of(std::move(left), unary(true)));
    left->op = Operator::power;
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  const Nesting nesting(*this);
  ExprPtr node;
  if (tokens_.now().is_sign("-") || tokens_.now().is_sign("+")) {
    const Token& sign = tokens_.take();
    const ExprKind kind = sign.text == "-" ? ExprKind::negate : ExprKind::positive;
    node = make(kind, sign.line, list_of(unary(false)));
  } else {
    node = primary(false);
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::primary(bool fields) {
  const Token& token = tokens_.now();
  switch (token.type) {
    case TokenType::name: return named_value(fields);
    case TokenType::string: return string();
    case TokenType::integer: return literal(Value::integer(token.integer), tokens_.take().line);
    case TokenType::real: return literal(Value::real(token.real), tokens_.take().line);
    default: break;
  }
  if (token.is_sign("[")) return list();
  if (token.is_sign("{")) return dict();
  if (!tokens_.skip_sign("(")) tokens_.expected("an expression");
  ExprPtr node = tuple({.parentheses = true});
  tokens_.expect_sign(")");
  return node;
}

ExprPtr ExpressionParser::named_value(bool fields) {
  const Token& token = tokens_.take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return literal(Value::boolean(true), token.line);
  if (name == "false" || name == "False") return literal(Value::boolean(false), token.line);
  if (name == "none" || name == "None") return literal(Value(), token.line);
  ExprPtr node = make(ExprKind::name, token.line);
  node->name = name;
  if (fields && tokens_.skip_sign(".")) {
    node->kind = ExprKind::field;
    node->text = tokens_.take_name("the name of a namespace's field");
  }
  if (name == "caller" || name == "kwargs" || name == "varargs")
    for (auto& names : used_) names.insert(name);
  return node;
}

ExprPtr ExpressionParser::string() {
  const int64_t line = tokens_.now().line;
  std::string text;
  while (tokens_.now().type == TokenType::string) text += tokens_.take().text;
  return literal(constants_.text(std::move(text)), line);
}

ExprPtr ExpressionParser::list() {
  const int64_t line = tokens_.take().line;
  std::vector<ExprPtr> args;
  while (!tokens_.now().is_sign("]")) {
    if (!args.empty()) tokens_.expect_sign(",");
    if (tokens_.now().is_sign("]")) break;
    args.push_back(expression());
  }
  tokens_.expect_sign("]");
  return make(ExprKind::list, line, std::move(args));
}

ExprPtr ExpressionParser::dict() {
  const int64_t line = tokens_.take().line;
  std::vector<ExprPtr> args;
  while (!tokens_.now().is_sign("}")) {
    if (!args.empty()) tokens_.expect_sign(",");
    if (tokens_.now().is_sign("}")) break;
    args.push_back(expression());
    tokens_.expect_sign(":");
    args.push_back(expression());
  }
  tokens_.expect_sign("}");
  return make(ExprKind::dict, line, std::move(args));
}

bool ExpressionParser::tuple_ends() const {
  const Token& token = tokens_.now();
  return token.type == TokenType::variable_end || token.type == TokenType::block_end || token.is_sign(")") ||
         token.is_name("in") || token.is_name("recursive");
}

ExprPtr ExpressionParser::tuple(TupleStyle style) {
  const int64_t line = tokens_.now().line;
  std::vector<ExprPtr> args;
  bool comma = false;
  while (!tuple_ends()) {
    args.push_back(style.conditions ? expression() : either());
    if (!tokens_.skip_sign(",")) break;
    comma = true;
  }
  if (!comma && !args.empty()) return std::move(args[0]);
  if (args.empty() && !style.parentheses) tokens_.expected("an expression");
  return make(ExprKind::tuple, line, std::move(args));
}

ExprPtr ExpressionParser::target(bool fields) {
  const int64_t line = tokens_.now().line;
  const Nesting nesting(*this);
  std::vector<ExprPtr> args;
  bool comma = false;
  while (!tuple_ends() && !tokens_.now().is_sign("=")) {
    if (tokens_.skip_sign("(")) {
      args.push_back(target(fields));
      tokens_.expect_sign(")");
    } else {
      args.push_back(primary(fields));
      const ExprKind kind = args.back()->kind;
      if (kind != ExprKind::name && kind != ExprKind::field)
        throw SyntaxFault{line, "only names (and in set tags a namespace's fields) can be assigned to"};
    }
    if (!tokens_.skip_sign(",")) break;
    comma = true;
  }
  if (args.empty()) tokens_.expected("a name to assign to");
  return comma ? make(ExprKind::tuple, line, std::move(args)) : std::move(args[0]);
}

}  // namespace rw::jinja
