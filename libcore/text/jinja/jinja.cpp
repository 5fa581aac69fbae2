#include "libcore/text/jinja/jinja.h"

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/text/jinja/globals.h"
#include "libcore/text/jinja/interpreter.h"
#include "libcore/text/jinja/lexer.h"
#include "libcore/text/jinja/parser.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

constexpr size_t kMaxSource = size_t{1} << 20;
constexpr int64_t kMaxJsonDepth = 256;

Value value_of(Heap& heap, const Json& json, int64_t depth) {
  if (depth > kMaxJsonDepth) throw Fault("the variables are nested too deeply");
  switch (json.type()) {
    case Json::value_t::boolean: return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer: return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const uint64_t n = json.get<uint64_t>();
      // Beyond 64 bits with a sign: a float, as other JSON readers do.
      return n <= INT64_MAX ? Value::integer(static_cast<int64_t>(n)) : Value::real(static_cast<double>(n));
    }
    case Json::value_t::number_float: return Value::real(json.get<double>());
    case Json::value_t::string: {
      const std::string& text = json.get_ref<const std::string&>();
      return heap.text(valid_utf8(text) ? text : replace_invalid_utf8(text));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(value_of(heap, item, depth + 1));
      return heap.list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<Pair> pairs;
      pairs.reserve(json.size());
      for (const auto& [key, item] : json.items())
        pairs.emplace_back(heap.text(replace_invalid_utf8(key)), value_of(heap, item, depth + 1));
      return heap.dict(std::move(pairs));
    }
    default: return Value();
  }
}

}  // namespace

struct Template::Parsed {
  Heap constants{Limits{.steps = INT64_MAX, .bytes = INT64_MAX}};
  Body body;  // its literals live on the heap above
};

Template::Template(std::string_view source, std::string where)
    : where_(std::move(where)), parsed_(std::make_unique<Parsed>()) {
  if (source.size() > kMaxSource)
    fail(ErrorKind::input, "{}: expected a template of at most {} bytes, found {}", where_, kMaxSource, source.size());
  try {
    parsed_->body = parse_template(source, parsed_->constants);
  } catch (const SyntaxFault& f) {
    fail(ErrorKind::input, "{}: line {}: {}", where_, f.line, f.what);
  }
}

Template::~Template() = default;

std::string Template::render(const RenderArguments& arguments) const {
  Heap heap(arguments.limits);
  Interpreter interpreter(heap);
  try {
    const ScopePtr globals = std::make_shared<Scope>(heap, nullptr);
    define_globals(heap, arguments.now, *globals);
    const ScopePtr variables = std::make_shared<Scope>(heap, globals);
    for (const auto& [name, value] : arguments.variables.items()) variables->set(name, value_of(heap, value, 0));
    TextBuilder out(heap);
    interpreter.run(parsed_->body, std::make_shared<Scope>(heap, variables), out);
    return out.take();
  } catch (const Fault& f) {
    fail(ErrorKind::input, "{}: line {}: {}", where_, interpreter.line(), f.what());
  }
}

}  // namespace rw::jinja
