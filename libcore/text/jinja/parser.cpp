#include "libcore/text/jinja/parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include "libcore/text/jinja/expressions.h"

namespace rw::jinja {
namespace {

// Of blocks within each other; more than any template needs.
constexpr int64_t kMaxNesting = 100;

class StatementParser {
 public:
  StatementParser(TokenStream& tokens, Heap& constants) : tokens_(tokens), expressions_(tokens, constants) {}

  Body whole() {
    Body body = statements({});
    if (tokens_.now().type != TokenType::end) tokens_.expected("the end of the template");
    return body;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  bool at_end(Ends ends) const {
    return tokens_.now().type == TokenType::name &&
           std::find(ends.begin(), ends.end(), tokens_.now().text) != ends.end();
  }

  // Up to a tag that begins with one of `ends`, its name not read; without ends, up to the template's end.
  Body statements(Ends ends) {
    if (++nesting_ > kMaxNesting) throw SyntaxFault{tokens_.now().line, "blocks are nested too deeply"};
    Body body;
    for (;;) {
      const Token& token = tokens_.now();
      if (token.type == TokenType::end) {
        if (ends.size() > 0) tokens_.expected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
        break;
      }
      if (token.type == TokenType::data) {
        body.push_back({.kind = StmtKind::text, .line = token.line, .text = tokens_.take().text});
      } else if (token.type == TokenType::variable_begin) {
        const int64_t line = tokens_.take().line;
        body.push_back({.kind = StmtKind::output, .line = line, .expr = expressions_.tuple()});
        tokens_.expect(TokenType::variable_end, "}}");
      } else {
        tokens_.expect(TokenType::block_begin, "{%");
        if (at_end(ends)) break;
        statement(body);
        tokens_.expect(TokenType::block_end, "%}");
      }
    }
    --nesting_;
    return body;
  }

  // The body of a block after the rest of its opening tag; the name of the closing tag is read.
  Body block(Ends ends) {
    tokens_.skip_sign(":");
    tokens_.expect(TokenType::block_end, "%}");
    return statements(ends);
  }
  Body closed_block(std::string_view end) {
    Body body = block({end});
    tokens_.take();
    return body;
  }

  void statement(Body& body) {
    const int64_t line = tokens_.now().line;
    const std::string tag = tokens_.take_name("the name of a tag");
    Stmt stmt{.kind = StmtKind::scope, .line = line};
    if (tag == "for") loop(stmt);
    else if (tag == "if") branch(stmt);
    else if (tag == "set") set(stmt);
    else if (tag == "macro") macro(stmt);
    else if (tag == "call") call(stmt);
    else if (tag == "filter") filter(stmt);
    else if (tag == "with") with(stmt);
    else if (tag == "generation") generation(stmt);
    else if (tag == "break" || tag == "continue") jump(stmt, tag);
    else if (tag == "print") return print(body, line);
    else throw SyntaxFault{line, fmt::format("unknown or unsupported tag '{}'", tag)};
    body.push_back(std::move(stmt));
  }

  void loop(Stmt& stmt) {
    stmt.kind = StmtKind::loop;
    stmt.target = expressions_.target(false);
    tokens_.expect_name("in");
    stmt.expr = expressions_.tuple({.conditions = false});
    if (tokens_.skip_name("if")) stmt.condition = expressions_.expression();
    stmt.recursive = tokens_.skip_name("recursive");
    ++loops_;
    stmt.body = block({"else", "endfor"});
    --loops_;
    if (tokens_.take().text == "else") stmt.otherwise = closed_block("endfor");
  }

  void branch(Stmt& stmt) {
    stmt.kind = StmtKind::branch;
    for (;;) {
      ExprPtr condition = expressions_.tuple({.conditions = false});
      Body body = block({"elif", "else", "endif"});
      stmt.branches.push_back({std::move(condition), std::move(body)});
      const std::string next = tokens_.take().text;
      if (next == "elif") continue;
      if (next == "else") stmt.otherwise = closed_block("endif");
      return;
    }
  }

  void set(Stmt& stmt) {
    stmt.target = expressions_.target(true);
    if (tokens_.skip_sign("=")) {
      stmt.kind = StmtKind::set;
      stmt.expr = expressions_.tuple();
      return;
    }
    stmt.kind = StmtKind::set_block;
    stmt.expr = expressions_.filters(nullptr, false);
    stmt.body = closed_block("endset");
  }

  void signature(Signature& signature) {
    tokens_.expect_sign("(");
    bool optional = false;
    while (!tokens_.now().is_sign(")")) {
      if (!signature.parameters.empty()) tokens_.expect_sign(",");
      Parameter parameter{.name = tokens_.take_name("the name of a parameter"), .otherwise = nullptr};
      if (tokens_.skip_sign("=")) parameter.otherwise = expressions_.expression();
      else if (optional)
        throw SyntaxFault{tokens_.now().line, "a parameter without a default follows one that has one"};
      optional = parameter.otherwise != nullptr;
      for (const Parameter& other : signature.parameters)
        if (other.name == parameter.name)
          throw SyntaxFault{tokens_.now().line, fmt::format("parameter '{}' stands twice", parameter.name)};
      signature.parameters.push_back(std::move(parameter));
    }
    tokens_.expect_sign(")");
  }

  // A body that is called: no loop of the outside goes on in it.
  void callable(Stmt& stmt, std::string_view end) {
    expressions_.used().emplace_back();
    const int64_t loops = std::exchange(loops_, 0);
    stmt.body = closed_block(end);
    loops_ = loops;
    const std::set<std::string> used = std::move(expressions_.used().back());
    expressions_.used().pop_back();
    const auto binds = [&](const char* name) {
      const auto& p = stmt.signature.parameters;
      return used.contains(name) && std::none_of(p.begin(), p.end(), [&](const auto& q) { return q.name == name; });
    };
    for (const Parameter& p : stmt.signature.parameters)
      if (p.name == "caller" && used.contains("caller") && p.otherwise == nullptr)
        throw SyntaxFault{stmt.line, "a parameter \"caller\" needs a default"};
    stmt.signature.uses_caller = binds("caller");
    stmt.signature.uses_kwargs = binds("kwargs");
    stmt.signature.uses_varargs = binds("varargs");
  }

  void macro(Stmt& stmt) {
    stmt.kind = StmtKind::macro;
    stmt.text = tokens_.take_name("the name of a macro");
    signature(stmt.signature);
    callable(stmt, "endmacro");
  }

  void call(Stmt& stmt) {
    stmt.kind = StmtKind::call;
    if (tokens_.now().is_sign("(")) signature(stmt.signature);
    stmt.expr = expressions_.expression();
    if (stmt.expr->kind != ExprKind::call) throw SyntaxFault{stmt.line, "a call block needs a call"};
    callable(stmt, "endcall");
  }

  void filter(Stmt& stmt) {
    stmt.kind = StmtKind::filter_block;
    stmt.expr = expressions_.filters(nullptr, true);
    stmt.body = closed_block("endfilter");
  }

  void with(Stmt& stmt) {
    while (tokens_.now().type != TokenType::block_end) {
      if (!stmt.assignments.empty()) tokens_.expect_sign(",");
      Assignment assignment{.target = expressions_.target(false), .value = nullptr};
      tokens_.expect_sign("=");
      assignment.value = expressions_.expression();
      stmt.assignments.push_back(std::move(assignment));
    }
    stmt.body = closed_block("endwith");
  }

  // Marks for training which text the assistant wrote; for a prompt it is a scope, and no loop goes on in it.
  void generation(Stmt& stmt) {
    const int64_t loops = std::exchange(loops_, 0);
    stmt.body = closed_block("endgeneration");
    loops_ = loops;
  }

  void jump(Stmt& stmt, const std::string& tag) {
    stmt.kind = tag == "break" ? StmtKind::leave : StmtKind::next;
    if (loops_ == 0) throw SyntaxFault{stmt.line, fmt::format("'{}' stands outside a loop", tag)};
  }

  void print(Body& body, int64_t line) {
    for (bool first = true; tokens_.now().type != TokenType::block_end; first = false) {
      if (!first) tokens_.expect_sign(",");
      body.push_back({.kind = StmtKind::output, .line = line, .expr = expressions_.expression()});
    }
  }

  TokenStream& tokens_;
  ExpressionParser expressions_;
  int64_t nesting_ = 0;
  int64_t loops_ = 0;  // around what is parsed, in the same body
};

}  // namespace

Body parse_template(std::string_view source, Heap& constants) {
  TokenStream tokens(tokenize(source));
  return StatementParser(tokens, constants).whole();
}

}  // namespace rw::jinja
