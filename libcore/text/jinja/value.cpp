#include "libcore/text/jinja/value.h"

#include <fmt/core.h>

#include <algorithm>

#include "libcore/text/jinja/compare.h"
#include "libcore/text/utf8.h"

namespace rw::jinja {
namespace {

// Deeper than any message or tool schema is; functions that walk a value recurse.
constexpr int64_t kMaxDepth = 260;
// Of an allocation, beside its payload.
constexpr int64_t kNodeBytes = 64;

int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

int64_t deeper(int64_t depth) {
  if (depth >= kMaxDepth) throw Fault(fmt::format("lists and dicts nested deeper than {} levels", kMaxDepth));
  return depth + 1;
}

}  // namespace

Charge::Charge(Heap& heap, int64_t bytes) : heap_(&heap), bytes_(bytes) { heap.hold(bytes); }

Charge::~Charge() {
  if (heap_ != nullptr) heap_->release(bytes_);
}

void Charge::grow(int64_t bytes) {
  heap_->hold(bytes);
  bytes_ += bytes;
}

Value Value::boolean(bool b) {
  Value v;
  v.kind_ = Kind::boolean;
  v.integer_ = b ? 1 : 0;
  return v;
}

Value Value::integer(int64_t i) {
  Value v;
  v.kind_ = Kind::integer;
  v.integer_ = i;
  return v;
}

Value Value::real(double d) {
  Value v;
  v.kind_ = Kind::real;
  v.real_ = d;
  return v;
}

const std::string& Value::text() const { return static_cast<const Text&>(*node_).bytes; }
int64_t Value::code_points() const { return static_cast<const Text&>(*node_).code_points; }
const std::vector<Value>& Value::items() const { return static_cast<const Items&>(*node_).values; }
const std::vector<Pair>& Value::pairs() const { return static_cast<const Pairs&>(*node_).pairs; }
Object& Value::object() const { return static_cast<Object&>(*node_); }
size_t& Value::cursor() const { return static_cast<Items&>(*node_).cursor; }
const char* Value::view_name() const { return static_cast<const Items&>(*node_).view_name; }

int64_t Value::depth() const {
  if (has_items()) return static_cast<const Items&>(*node_).depth;
  if (kind_ == Kind::object) return object().depth;
  return kind_ == Kind::dict ? static_cast<const Pairs&>(*node_).depth : 0;
}

Heap::~Heap() {
  for (const auto& clear : at_end_) clear();
}

void Heap::work(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps) throw Fault(fmt::format("the template takes more than {} steps", limits_.steps));
}

void Heap::check_room(int64_t bytes) {
  if (bytes > limits_.bytes - bytes_)
    throw Fault(fmt::format("the template's values take more than {} bytes", limits_.bytes));
}

void Heap::work_search(size_t text_bytes, size_t needle_bytes) {
  if (needle_bytes > text_bytes) return;
  work(static_cast<int64_t>(text_bytes / 64 + (text_bytes - needle_bytes + 1) / 64 * (needle_bytes / 64)));
}

void Heap::hold(int64_t bytes) {
  check_room(bytes);
  bytes_ += bytes;
}

Heap::Level::Level(Heap& heap) : heap_(heap) {
  if (heap.level_ >= heap.limits_.depth)
    throw Fault(fmt::format("evaluation nested deeper than {} levels", heap.limits_.depth));
  ++heap.level_;
}

Value Heap::text(std::string utf8) {
  const int64_t size = static_cast<int64_t>(utf8.size());
  work(1 + size / 64);
  const int64_t n = count_code_points(utf8);
  Value v;
  v.node_ =
      std::make_shared<Text>(Charge(*this, kNodeBytes + static_cast<int64_t>(utf8.capacity())), std::move(utf8), n);
  v.kind_ = Kind::string;
  return v;
}

Value Heap::undefined(std::string why) {
  Value v = text(std::move(why));
  v.kind_ = Kind::undefined;
  return v;
}

Value Heap::items(Kind kind, std::vector<Value> values) {
  int64_t depth = 0;
  for (const Value& value : values) depth = std::max(depth, value.depth());
  const int64_t n = static_cast<int64_t>(values.capacity());
  work(1 + n / 8);
  Value v;
  v.node_ = std::make_shared<Items>(Charge(*this, kNodeBytes + n * static_cast<int64_t>(sizeof(Value))),
                                    std::move(values), deeper(depth));
  v.kind_ = kind;
  return v;
}

Value Heap::view(const char* name, std::vector<Value> values) {
  Value v = items(Kind::view, std::move(values));
  static_cast<Items&>(*v.node_).view_name = name;
  return v;
}

Value Heap::dict(std::vector<Pair> pairs) {
  int64_t depth = 0;
  for (const auto& [key, value] : pairs) depth = std::max({depth, key.depth(), value.depth()});
  const int64_t n = static_cast<int64_t>(pairs.capacity());
  work(1 + n / 8);
  Value v;
  v.node_ = std::make_shared<Pairs>(Charge(*this, kNodeBytes + n * static_cast<int64_t>(sizeof(Pair))),
                                    std::move(pairs), deeper(depth));
  v.kind_ = Kind::dict;
  return v;
}

Value Heap::object(std::string name, std::function<Value(const Arguments&)> call, int64_t held) {
  work(1);
  Value v;
  auto object = std::make_shared<Object>(Charge(*this, 4 * kNodeBytes), std::move(name));
  object->call = std::move(call);
  object->depth = deeper(held);
  v.node_ = std::move(object);
  v.kind_ = Kind::object;
  return v;
}

Value Heap::name_space(std::vector<NamedValue> fields) {
  const Value v = object("namespace");
  v.object().is_namespace = true;
  v.object().fields = std::move(fields);
  // One may hold itself. The heap owns it until the end, so that a long chain of them is not destroyed recursively.
  at_end_.push_back([node = v.node_] { static_cast<Object&>(*node).fields.clear(); });
  return v;
}

void TextBuilder::append(std::string_view text) { append(1, text); }

void TextBuilder::append(int64_t n, std::string_view text) {
  if (n <= 0 || text.empty()) return;
  const int64_t size = static_cast<int64_t>(text.size());
  if (n > heap_.limits().bytes / size) heap_.check_room(heap_.limits().bytes + 1);
  heap_.work(n * size / 64);
  charge_.grow(n * size);
  for (int64_t i = 0; i < n; ++i) text_ += text;
}

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return "str";
    case Kind::list: return "list";
    case Kind::tuple: return "tuple";
    case Kind::range: return "range";
    case Kind::view: return value.view_name();
    case Kind::iterator: return "generator";
    case Kind::dict: return "dict";
    case Kind::object: return value.object().name.c_str();
  }
  return "";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return value.as_integer() != 0;
    case Kind::real: return value.as_real() != 0;
    case Kind::iterator: return true;
    case Kind::object: return !value.object().length || value.object().length() > 0;
    default: return length(value) > 0;
  }
}

int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return value.code_points();
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::view: return static_cast<int64_t>(value.items().size());
    case Kind::dict: return static_cast<int64_t>(value.pairs().size());
    case Kind::object:
      if (value.object().length) return value.object().length();
      break;
    default: break;
  }
  throw Fault(fmt::format("expected a value that has a length, found {}", type_name(value)));
}

bool iterable(const Value& value) {
  return value.is(Kind::undefined) || value.is(Kind::string) || value.has_items() || value.is(Kind::dict);
}

std::vector<Value> iterate(Heap& heap, const Value& value) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::undefined: break;
    case Kind::string: {
      const std::string& text = value.text();
      for (size_t at = 0; at < text.size();) {
        const size_t n = static_cast<size_t>(utf8_length(text, at));
        out.push_back(heap.text(text.substr(at, n)));
        at += n;
      }
      break;
    }
    case Kind::dict:
      for (const auto& [key, item] : value.pairs()) out.push_back(key);
      break;
    case Kind::iterator: {
      size_t& cursor = value.cursor();
      out.assign(value.items().begin() + static_cast<std::ptrdiff_t>(cursor), value.items().end());
      cursor = value.items().size();
      break;
    }
    default:
      if (!value.has_items())
        throw Fault(fmt::format("expected something to iterate over, found {}", type_name(value)));
      out = value.items();
      break;
  }
  heap.work(static_cast<int64_t>(out.size()) / 8);
  return out;
}

const Value* find_key(Heap& heap, const Value& dict, const Value& key) {
  check_hashable(key);
  heap.work(static_cast<int64_t>(dict.pairs().size()) / 8);
  for (const auto& [name, value] : dict.pairs())
    if (equals(heap, name, key)) return &value;
  return nullptr;
}

}  // namespace rw::jinja
