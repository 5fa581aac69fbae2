// Values of templates, with Python's semantics, and the budget they live on. Text, lists and dicts never change once
// made (the sandbox forbids the methods that would), so values share them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rw::jinja {

// What a template did wrong, without the place; whoever runs it adds the line.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Of one rendering. A step is a node of the template evaluated, an item visited, or 64 bytes copied.
struct Limits {
  int64_t steps = 5'000'000;
  int64_t bytes = int64_t{256} << 20;        // of values alive at once
  int64_t output_bytes = int64_t{64} << 20;  // of the text
  int64_t depth = 600;                       // of nodes evaluated within each other, macro calls included
  int64_t range = 100'000;                   // items of range()
};

class Heap;

// A share of a heap's bytes, given back at the end.
class Charge {
 public:
  Charge() = default;
  Charge(Heap& heap, int64_t bytes);
  Charge(Charge&& other) noexcept : heap_(std::exchange(other.heap_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&&) = delete;
  ~Charge();
  void grow(int64_t bytes);

 private:
  Heap* heap_ = nullptr;
  int64_t bytes_ = 0;
};

enum class Kind : uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  range,
  view,      // dict.keys(), .values(), .items()
  iterator,  // what filters like map and select give: read once
  dict,
  object
};

class Value;
struct Arguments;
using Pair = std::pair<Value, Value>;
using NamedValue = std::pair<std::string, Value>;

struct Node {
  explicit Node(Charge c) : charge(std::move(c)) {}
  virtual ~Node() = default;
  Charge charge;
};

class Value {
 public:
  Value() = default;  // none
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value real(double d);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return kind_ == Kind::boolean || kind_ == Kind::integer || kind_ == Kind::real; }
  bool is_integral() const { return kind_ == Kind::boolean || kind_ == Kind::integer; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple || kind_ == Kind::range; }
  bool has_items() const { return kind_ >= Kind::list && kind_ <= Kind::iterator; }

  int64_t as_integer() const { return integer_; }                                                 // boolean, integer
  double as_real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }  // numbers
  const std::string& text() const;          // string; undefined: why
  int64_t code_points() const;              // string
  const std::vector<Value>& items() const;  // has_items()
  const std::vector<Pair>& pairs() const;   // dict
  struct Object& object() const;
  size_t& cursor() const;         // iterator: items already read
  const char* view_name() const;  // "dict_keys", ...
  int64_t depth() const;          // of lists and dicts within each other
  const Node* node() const { return node_.get(); }

 private:
  friend class Heap;
  Kind kind_ = Kind::none;
  union {
    int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Node> node_;
};

struct Text : Node {
  Text(Charge c, std::string b, int64_t n) : Node(std::move(c)), bytes(std::move(b)), code_points(n) {}
  const std::string bytes;  // valid UTF-8
  const int64_t code_points;
};
struct Items : Node {
  Items(Charge c, std::vector<Value> v, int64_t d) : Node(std::move(c)), values(std::move(v)), depth(d) {}
  const std::vector<Value> values;
  const int64_t depth;
  size_t cursor = 0;
  const char* view_name = "";
};
struct Pairs : Node {
  Pairs(Charge c, std::vector<Pair> p, int64_t d) : Node(std::move(c)), pairs(std::move(p)), depth(d) {}
  const std::vector<Pair> pairs;
  const int64_t depth;
};

struct Arguments {
  std::vector<Value> positional = {};
  std::vector<NamedValue> named = {};
};

// Namespaces, macros, loops, functions, methods.
struct Object : Node {
  Object(Charge c, std::string n) : Node(std::move(c)), name(std::move(n)) {}
  std::string name;                                       // as printed: "<Macro 'x'>"
  std::function<Value(const Arguments&)> call = {};       // empty: cannot be called
  std::function<Value(std::string_view)> attribute = {};  // computed ones; undefined: none of that name
  std::function<int64_t()> length = {};                   // empty: has none
  bool is_namespace = false;
  std::vector<NamedValue> fields = {};  // a namespace's
  int64_t depth = 0;                    // of what `call` holds, plus one
};

// Makes values and counts what they cost. Everything a template can make grow goes through here.
class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  const Limits& limits() const { return limits_; }
  void work(int64_t steps);        // throws Fault when there were too many
  void check_room(int64_t bytes);  // throws Fault when as many more would be too many; for what is about to be made
  void work_search(size_t text_bytes, size_t needle_bytes);  // of a search in the worst case
  void hold(int64_t bytes);
  void release(int64_t bytes) { bytes_ -= bytes; }

  Value undefined(std::string why);
  Value text(std::string utf8);
  Value list(std::vector<Value> values) { return items(Kind::list, std::move(values)); }
  Value tuple(std::vector<Value> values) { return items(Kind::tuple, std::move(values)); }
  Value iterator(std::vector<Value> values) { return items(Kind::iterator, std::move(values)); }
  Value range(std::vector<Value> values) { return items(Kind::range, std::move(values)); }
  Value view(const char* name, std::vector<Value> values);
  Value dict(std::vector<Pair> pairs);  // no key twice
  // `held`: depth of the values that `call` holds.
  Value object(std::string name, std::function<Value(const Arguments&)> call = {}, int64_t held = 0);
  Value name_space(std::vector<NamedValue> fields);
  // Run when the heap goes, so that values which hold each other let go.
  void at_end(std::function<void()> clear) { at_end_.push_back(std::move(clear)); }

  // Evaluation within evaluation; throws Fault when too deep.
  class Level {
   public:
    explicit Level(Heap& heap);
    ~Level() { --heap_.level_; }
    Level(const Level&) = delete;

   private:
    Heap& heap_;
  };

 private:
  Value items(Kind kind, std::vector<Value> values);

  const Limits limits_;
  int64_t steps_ = 0, bytes_ = 0, level_ = 0;
  std::vector<std::function<void()>> at_end_;
};

// A text that grows within a heap's budget.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(heap), charge_(heap, 0) {}
  void append(std::string_view text);
  void append(int64_t n, std::string_view text);  // n times
  int64_t size() const { return static_cast<int64_t>(text_.size()); }
  const std::string& view() const { return text_; }
  Value value() { return heap_.text(std::move(text_)); }
  std::string take() { return std::move(text_); }
  Heap& heap() { return heap_; }

 private:
  Heap& heap_;
  std::string text_;
  Charge charge_;
};

// "str", "int", "dict", ...: as Python calls it.
const char* type_name(const Value& value);
bool truth(const Value& value);
int64_t length(const Value& value);  // Fault: has none
// The items that iterating gives (keys of a dict, characters of a string); an iterator is read to its end.
std::vector<Value> iterate(Heap& heap, const Value& value);
bool iterable(const Value& value);
const Value* find_key(Heap& heap, const Value& dict, const Value& key);

}  // namespace rw::jinja
